package client_test

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

// startServer runs a server for one example. Programs are given the address of theirs.
func startServer() (url string, stop func()) {
	server, stop := openServer()
	return server.URL, stop
}

// startStoppedServer runs a server whose clock stands still at now.
func startStoppedServer(now time.Time) (server *belfrytest.Server, stop func()) {
	return openServer(belfrytest.StoppedAt(now))
}

func openServer(options ...belfrytest.Option) (server *belfrytest.Server, stop func()) {
	dir, err := os.MkdirTemp("", "belfry-example-")
	if err != nil {
		log.Panic(err)
	}
	server, err = belfrytest.Open(context.Background(), dir, options...)
	if err != nil {
		log.Panic(err)
	}
	return server, func() {
		if err := errors.Join(server.Close(), os.RemoveAll(dir)); err != nil {
			log.Panic(err)
		}
	}
}

// A job is put with a delay, reserved when it is due, and acked.
func Example() {
	url, stop := startServer()
	defer stop()
	ctx := context.Background()

	c, err := client.New(url)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()

	put, err := c.Put(ctx, "orders", []byte("close order 42"), client.ID("order-42"), client.In(50*time.Millisecond))
	if err != nil {
		log.Panic(err)
	}
	fmt.Println("put:", put.ID, put.State)

	jobs, err := c.Reserve(ctx, client.ReserveOptions{Queues: []string{"orders"}, Wait: 20 * time.Second})
	if err != nil {
		log.Panic(err)
	}
	for _, job := range jobs {
		fmt.Printf("attempt %d: %s\n", job.Attempt, job.Body)
		if err := job.Ack(ctx); err != nil {
			log.Panic(err)
		}
	}
	// Output:
	// put: order-42 DELAYED
	// attempt 1: close order 42
}

// Any server of a cluster takes any call; the client goes on to the next when one fails.
func ExampleNew() {
	c, err := client.New("http://n1:7400,http://n2:7400,http://n3:7400", client.Coalescing{InFlight: 4})
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()
	// Output:
}

// With an id of the caller's choice a put may be repeated by anyone, at any time: the same put
// changes nothing.
func ExampleClient_Put() {
	url, stop := startServer()
	defer stop()
	ctx := context.Background()
	c, err := client.New(url)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()

	for range 2 {
		put, err := c.Put(ctx, "orders", []byte("close order 42"), client.ID("order-42"), client.In(30*time.Minute))
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(put.ID, "created:", put.Created)
	}
	_, err = c.Put(ctx, "orders", []byte("something else"), client.ID("order-42"))
	fmt.Println("conflict:", errors.Is(err, client.ErrJobExists))
	// Output:
	// order-42 created: true
	// order-42 created: false
	// conflict: true
}

// The entries of a batch stand alone: one that fails does not keep the others out.
func ExampleClient_PutBatch() {
	url, stop := startServer()
	defer stop()
	ctx := context.Background()
	c, err := client.New(url)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()

	results, err := c.PutBatch(ctx, []client.Put{
		{Queue: "mails", Body: []byte("welcome"), Options: []client.PutOption{client.ID("a")}},
		{Queue: "mails", Body: []byte("goodbye"), Options: []client.PutOption{client.ID("a")}},
		{Queue: "bills", Body: []byte("September"), Options: []client.PutOption{client.ID("b"), client.Priority(-1)}},
	})
	fmt.Println("some failed:", err != nil)
	for _, r := range results {
		fmt.Println(r.ID, r.Created, errors.Is(r.Err, client.ErrJobExists))
	}
	// Output:
	// some failed: true
	// a true false
	//  false true
	// b true false
}

// What the handler returns decides what becomes of a job.
func ExampleWorker() {
	url, stop := startServer()
	defer stop()
	c, err := client.New(url)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	if _, err := c.Put(ctx, "mails", []byte("to ann@example.com")); err != nil {
		log.Panic(err)
	}
	worker := client.Worker{Queues: []string{"mails"}, Concurrency: 8}
	err = worker.Run(ctx, c, func(_ context.Context, job *client.Job) error {
		switch job.Attempt {
		case 1:
			fmt.Println("attempt 1: the mail server is busy")
			return client.RetryAfter(20*time.Millisecond, errors.New("smtp 421"))
		case 2:
			fmt.Println("attempt 2: it is broken")
			return errors.New("smtp 451")
		default:
			fmt.Println("attempt 3: sent", string(job.Body))
			cancel() // ends Run when this handler has returned; a service does it when it is told to stop
			return nil
		}
	})
	fmt.Println("stopped:", err)
	// Output:
	// attempt 1: the mail server is busy
	// attempt 2: it is broken
	// attempt 3: sent to ann@example.com
	// stopped: <nil>
}

// Middleware sees every job: to log, to measure, to set something up from the job's headers.
func ExampleWorker_middleware() {
	url, stop := startServer()
	defer stop()
	c, err := client.New(url)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	if _, err := c.Put(ctx, "mails", []byte("hello"), client.Header("shop", "main-3")); err != nil {
		log.Panic(err)
	}
	logged := func(next client.Handler) client.Handler {
		return func(ctx context.Context, job *client.Job) error {
			fmt.Println("begin", job.Headers["shop"])
			err := next(ctx, job)
			fmt.Println("end", err)
			return err
		}
	}
	worker := client.Worker{Queues: []string{"mails"}, Middleware: []func(client.Handler) client.Handler{logged}}
	err = worker.Run(ctx, c, func(_ context.Context, job *client.Job) error {
		fmt.Printf("%s\n", job.Body)
		cancel()
		return nil
	})
	if err != nil {
		log.Panic(err)
	}
	// Output:
	// begin main-3
	// hello
	// end <nil>
}
