package belfrytest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
)

// The clock of the server moves when it is told to, here in a program that is no test.
func ExampleServer_Advance() {
	dir, err := os.MkdirTemp("", "belfry-example-")
	if err != nil {
		log.Panic(err)
	}
	ctx := context.Background()
	server, err := belfrytest.Open(ctx, dir, belfrytest.StoppedAt(time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)))
	if err != nil {
		log.Panic(err)
	}
	c, err := client.New(server.URL)
	if err != nil {
		log.Panic(err)
	}
	defer func() {
		if err := errors.Join(c.Close(), server.Close(), os.RemoveAll(dir)); err != nil {
			log.Panic(err)
		}
	}()

	if _, err := c.Put(ctx, "unpaid", []byte("order 42"), client.In(30*time.Minute)); err != nil {
		log.Panic(err)
	}
	for range 2 {
		jobs, err := c.Reserve(ctx, client.ReserveOptions{Queues: []string{"unpaid"}})
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(server.Now().UTC().Format(time.TimeOnly), len(jobs), "to cancel")
		server.Advance(30 * time.Minute)
	}
	// Output:
	// 09:00:00 0 to cancel
	// 09:30:00 1 to cancel
}
