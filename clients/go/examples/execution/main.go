// Command execution runs one command at a time under a lock name: the execution lock of document 002.
//
//	execution run terraform-prod execution-abc123 terraform apply
//	execution list
//	execution status terraform-prod
//	execution release terraform-prod
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"belay.example/belay"
)

// run holds the lock while the command runs. It is renewed for as long as that takes, and released as completed or as
// failed. The same execution may have it several times; the command is killed if the lock is lost.
func run(ctx context.Context, client *belay.Client, name, execution string, command []string) error {
	lock, err := client.Acquire(ctx, name, belay.Options{Owner: execution, Profile: "execution"})
	var e *belay.Error
	if errors.Is(err, belay.ErrHeld) && errors.As(err, &e) && e.Lock != nil {
		return fmt.Errorf("Execution blocked: lock '%s' held by %s until %s", name, e.Lock.LockedBy,
			e.Lock.ExpiresAt.Format(time.RFC3339))
	}
	if err != nil {
		return err
	}
	return lock.Run(ctx, func(ctx context.Context) error {
		c := exec.CommandContext(ctx, command[0], command[1:]...)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		return c.Run()
	})
}

func show(locks ...belay.Info) {
	for _, lock := range locks {
		fmt.Printf("%s\t%s\t%s\t%s\n", lock.Key, lock.Status, lock.LockedBy, lock.ExpiresAt.Format(time.RFC3339))
	}
}

func do(ctx context.Context, client *belay.Client, args []string) error {
	switch {
	case len(args) >= 4 && args[0] == "run":
		return run(ctx, client, args[1], args[2], args[3:])
	case len(args) == 1 && args[0] == "list":
		locks, err := client.List(ctx, belay.ListOptions{Status: "active"})
		show(locks...)
		return err
	case len(args) == 2 && args[0] == "status":
		lock, err := client.Status(ctx, args[1])
		if err == nil {
			show(lock)
		}
		return err
	case len(args) == 2 && args[0] == "release":
		_, err := client.Force(ctx, args[1], belay.ForceOptions{Reason: "stuck"})
		return err
	}
	return errors.New("use: execution run LOCK EXECUTION COMMAND... | list | status LOCK | release LOCK")
}

func main() {
	client, err := belay.Connect(os.Getenv("BELAY_URL"))
	if err == nil {
		err = do(context.Background(), client, os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
