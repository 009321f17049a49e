// Command deployer deploys a stack under its lock, and saves the new state: the deployer of document 004.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"belay.example/belay"
)

var (
	url     = flag.String("url", "http://127.0.0.1:7420", "the belay server")
	stack   = flag.String("stack", "shop/prod", "the stack and its environment")
	version = flag.String("version", "v1", "what to deploy")
	target  = flag.String("target", "target", "the file that stands for what is deployed")
	ttl     = flag.Duration("ttl", time.Hour, "the lease")
	pause   = flag.Duration("pause", 0, "how long it takes to make the plan")
)

// state loads the state, or saves it. It returns the ETag, which is "" if there is no state.
func state(ctx context.Context, method, query, body, header, value string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, *url+"/v1/state/"+*stack+query, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set(header, value)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != 200 && response.StatusCode != 404 {
		return "", fmt.Errorf("%s of the state: %s", method, response.Status)
	}
	return response.Header.Get("ETag"), nil
}

func deploy(ctx context.Context, client *belay.Client) error {
	key := "stack:" + strings.Replace(*stack, "/", ":env:", 1)
	lock, err := client.Acquire(ctx, key, belay.Options{Profile: "stack", TTL: *ttl})
	if err != nil {
		return err
	}
	return lock.Run(ctx, func(ctx context.Context) error {
		etag, err := state(ctx, "GET", "", "", "Accept", "application/json")
		header := "If-Match"
		if etag == "" {
			header, etag = "If-None-Match", "*"
		}
		time.Sleep(*pause)
		if err == nil {
			err = lock.Check(ctx) // just before what cannot be undone
		}
		if err == nil {
			err = os.WriteFile(*target, []byte(*version), 0o600)
		}
		if err == nil {
			_, err = state(ctx, "PUT", "?lock_id="+lock.ID(), fmt.Sprintf(`{"outputs":{"version":%q}}`, *version), header, etag)
		}
		return err
	})
}

func main() {
	flag.Parse()
	client, err := belay.Connect(*url)
	if err == nil {
		err = deploy(context.Background(), client)
	}
	if err != nil {
		log.Fatal(err)
	}
}
