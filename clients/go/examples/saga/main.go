// Command saga creates a user's default graph at most once, however many workers try it at the same time: the resource
// lock of document 001, around a saga that undoes its steps if one of them fails.
//
//	saga -user alice -dir /srv/graphs
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"belay.example/belay"
)

type step struct {
	name     string
	do, undo func() error
}

// run does the steps in their order. If one fails, it undoes those before it, in the opposite order. A saga that has
// lost its lock does nothing more: the next holder may be at work.
func run(ctx context.Context, steps []step) error {
	for i, s := range steps {
		err := ctx.Err()
		if err == nil {
			err = s.do()
		}
		if err == nil {
			continue
		}
		for i--; i >= 0 && ctx.Err() == nil; i-- {
			err = fmt.Errorf("%w (undone: %s, %v)", err, steps[i].name, steps[i].undo())
		}
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

func main() {
	url := flag.String("url", "http://127.0.0.1:7420", "the belay server")
	user := flag.String("user", "alice", "whose default graph to create")
	dir := flag.String("dir", ".", "where the graphs are")
	pause := flag.Duration("pause", 0, "how long the first step takes")
	isBroken := flag.Bool("fail", false, "let the second step fail")
	flag.Parse()
	graph, node := *dir+"/graph-"+*user, *dir+"/node-"+*user
	create := func(path string) error { return os.WriteFile(path, nil, 0o600) }
	steps := []step{
		{"node", func() error { defer time.Sleep(*pause); return create(node) }, func() error { return os.Remove(node) }},
		{"graph", func() error {
			if *isBroken {
				return errors.New("out of space")
			}
			fmt.Println("created")
			return create(graph)
		}, nil},
	}
	client, err := belay.Connect(*url)
	if err != nil {
		log.Fatal(err)
	}
	options := belay.Options{TTL: 3 * time.Second, Wait: 20 * time.Second}
	lock, err := client.Acquire(context.Background(), "default_graph_creation_"+*user, options)
	if err != nil {
		log.Fatal(err)
	}
	if err = lock.Run(context.Background(), func(ctx context.Context) error {
		if _, err := os.Stat(graph); err == nil { // check again, now that no other client changes it
			return nil
		}
		return run(ctx, steps)
	}); err != nil {
		log.Fatal(err)
	}
}
