package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
)

// Notifications of payments go out one at a time for each merchant, in the order of the puts. One that
// fails is tried again for a day, and holds back the later ones of its merchant meanwhile.
func ExampleKey() {
	url, stop := startServer()
	defer stop()
	c, err := client.New(url)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	// Nine delays follow the first nine attempts; the tenth is the last.
	settings := &admin.QueueSettings{
		KeyOrdered: new(true), MaxAttempts: new(10),
		RetryDelays: []time.Duration{
			0, 0, 2 * time.Minute, 10 * time.Minute, 10 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 15 * time.Hour,
		},
	}
	_, err = c.Admin().CreateQueue(ctx, "payments", 1, settings)
	if err != nil && !errors.Is(err, client.Reason("QUEUE_EXISTS")) {
		log.Panic(err)
	}
	for _, event := range []string{"paid", "refunded"} {
		_, err := c.Put(ctx, "payments", []byte("order 1 is "+event), client.ID("order-1-"+event), client.Key("merchant-7"))
		if err != nil {
			log.Panic(err)
		}
	}

	worker := client.Worker{Queues: []string{"payments"}, Concurrency: 32} // 32 merchants at a time
	err = worker.Run(ctx, c, func(_ context.Context, job *client.Job) error {
		fmt.Printf("%s: %s, attempt %d\n", job.Key, job.Body, job.Attempt)
		switch {
		case string(job.Body) == "order 1 is refunded":
			cancel() // a service goes on
		case job.Attempt < 3:
			return errors.New("status 503") // the merchant's server is busy
		}
		return nil
	})
	if err != nil {
		log.Panic(err)
	}
	// Output:
	// merchant-7: order 1 is paid, attempt 1
	// merchant-7: order 1 is paid, attempt 2
	// merchant-7: order 1 is paid, attempt 3
	// merchant-7: order 1 is refunded, attempt 1
}

// An order is cancelled half an hour after the last change of its cart, and an hour after the first
// one at the latest.
func ExampleOnExisting() {
	server, stop := startStoppedServer(time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC))
	defer stop()
	c, err := client.New(server.URL)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()
	ctx := context.Background()
	change := func(cart string) (client.PutResult, error) {
		return c.Put(ctx, "unpaid", []byte(cart), client.ID("order-42"), client.In(30*time.Minute),
			client.OnExisting(client.ReplaceExisting), client.MaxWait(time.Hour))
	}

	for _, cart := range []string{"a book", "2 books", "3 books"} {
		put, err := change(cart)
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(server.Now().UTC().Format(time.TimeOnly), cart, "until", put.DueAt.UTC().Format(time.TimeOnly))
		server.Advance(20 * time.Minute)
	}
	jobs, err := c.Reserve(ctx, client.ReserveOptions{Queues: []string{"unpaid"}})
	if err != nil {
		log.Panic(err)
	}
	fmt.Printf("%s: %s is to be cancelled: %s\n", server.Now().UTC().Format(time.TimeOnly), jobs[0].ID, jobs[0].Body)
	_, err = change("4 books")
	fmt.Println("too late:", errors.Is(err, client.ErrJobReserved))
	// Output:
	// 09:00:00 a book until 09:30:00
	// 09:20:00 2 books until 09:50:00
	// 09:40:00 3 books until 10:00:00
	// 10:00:00: order-42 is to be cancelled: 3 books
	// too late: true
}
