package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Order is a job's content.
type Order struct {
	Number int
	Shop   string
}

// A typed queue carries Go values, as JSON unless told otherwise.
func ExampleQueue() {
	url, stop := startServer()
	defer stop()
	c, err := client.New(url)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	orders := client.NewQueue[Order](c, "orders")
	if _, err := orders.Put(ctx, Order{Number: 42, Shop: "Main 3"}, client.In(20*time.Millisecond)); err != nil {
		log.Panic(err)
	}
	err = orders.Work(ctx, client.Worker{}, func(_ context.Context, job *client.JobOf[Order]) error {
		fmt.Printf("close order %d of %s\n", job.Value.Number, job.Value.Shop)
		cancel()
		return nil
	})
	if err != nil {
		log.Panic(err)
	}
	// Output:
	// close order 42 of Main 3
}

// A queue of protobuf messages.
func ExampleQueue_WithCodec() {
	url, stop := startServer()
	defer stop()
	c, err := client.New(url)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()
	ctx := context.Background()

	leases := client.NewQueue[*belfryv1.AckRequest](c, "leases").WithCodec(
		func(m *belfryv1.AckRequest) ([]byte, error) { return proto.Marshal(m) },
		func(body []byte, m **belfryv1.AckRequest) error {
			*m = &belfryv1.AckRequest{}
			return proto.Unmarshal(body, *m)
		},
	)
	put, err := leases.Put(ctx, &belfryv1.AckRequest{Lease: "a lease"})
	if err != nil {
		log.Panic(err)
	}
	job, err := leases.Get(ctx, put.ID)
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(job.Value.GetLease(), len(job.Body))
	// Output:
	// a lease 9
}

// A job that cannot succeed is made dead; when the reason is gone it is redriven.
func ExampleDead() {
	url, stop := startServer()
	defer stop()
	ctx := context.Background()
	c, err := client.New(url)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()

	if _, err := c.Put(ctx, "mails", nil, client.ID("mail-1")); err != nil {
		log.Panic(err)
	}
	jobs, err := c.Reserve(ctx, client.ReserveOptions{Queues: []string{"mails"}, Wait: 20 * time.Second})
	if err != nil {
		log.Panic(err)
	}
	if err := jobs[0].Nack(ctx, client.Dead(errors.New("no such address"))); err != nil {
		log.Panic(err)
	}
	for job, err := range c.List(ctx, "mails", client.ListOptions{State: "DEAD"}) {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(job.ID, "is dead:", job.LastError)
	}
	n, err := c.Redrive(ctx, "mails", "mail-1")
	fmt.Println("redriven:", n, err)
	// Output:
	// mail-1 is dead: no such address
	// redriven: 1 <nil>
}

// A job whose time has not come goes back without costing an attempt.
func ExampleSnooze() {
	url, stop := startServer()
	defer stop()
	c, err := client.New(url)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	if _, err := c.Put(ctx, "reports", nil); err != nil {
		log.Panic(err)
	}
	calls := 0
	err = client.Worker{Queues: []string{"reports"}}.Run(ctx, c, func(_ context.Context, job *client.Job) error {
		if calls++; calls < 3 {
			return client.Snooze(10 * time.Millisecond) // the figures are not there yet
		}
		fmt.Printf("call %d, attempt %d\n", calls, job.Attempt)
		cancel()
		return nil
	})
	if err != nil {
		log.Panic(err)
	}
	// Output:
	// call 3, attempt 1
}

// A job that waits can be moved and cancelled; one that is held can be cancelled by force only.
func ExampleClient_Reschedule() {
	url, stop := startServer()
	defer stop()
	ctx := context.Background()
	c, err := client.New(url)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()

	if _, err := c.Put(ctx, "orders", nil, client.ID("order-42"), client.In(time.Hour)); err != nil {
		log.Panic(err)
	}
	due, err := c.Reschedule(ctx, "orders", "order-42", client.In(2*time.Hour))
	if err != nil {
		log.Panic(err)
	}
	fmt.Println("due in about", time.Until(due).Round(time.Hour))
	state, err := c.Cancel(ctx, "orders", "order-42")
	fmt.Println("it was", state, err)
	_, err = c.Cancel(ctx, "orders", "order-42")
	fmt.Println("it is gone:", errors.Is(err, client.ErrJobNotFound))
	// Output:
	// due in about 2h0m0s
	// it was DELAYED <nil>
	// it is gone: true
}

// Every error says what became of the call.
func ExampleError() {
	url, stop := startServer()
	defer stop()
	ctx := context.Background()
	c, err := client.New(url)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()

	if _, err := c.Admin().CreateQueue(ctx, "orders", 1, &admin.QueueSettings{MaxJobs: new(1)}); err != nil {
		log.Panic(err)
	}
	for range 2 {
		_, err = c.Put(ctx, "orders", nil)
	}
	var e *client.Error
	if errors.As(err, &e) {
		fmt.Println(e.Reason, e.Outcome, errors.Is(err, client.ErrQueueFull), errors.Is(err, client.ErrUnknownOutcome))
	}
	// Output:
	// QUEUE_FULL NOT_APPLIED true false
}

// A queue is paused, inspected and resumed.
func ExampleClient_Admin() {
	url, stop := startServer()
	defer stop()
	ctx := context.Background()
	c, err := client.New(url)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()

	if _, err := c.Put(ctx, "orders", nil); err != nil {
		log.Panic(err)
	}
	if _, err := c.Admin().UpdateQueue(ctx, "orders", &admin.QueueSettings{Paused: new(true)}); err != nil {
		log.Panic(err)
	}
	for queue, err := range c.Admin().Queues(ctx, "") {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(queue.Name, "ready:", queue.Ready, "paused:", *queue.Settings.Paused)
	}
	n, err := c.Admin().DeleteQueue(ctx, "orders")
	fmt.Println("jobs deleted:", n, err)
	// Output:
	// orders ready: 1 paused: true
	// jobs deleted: 1 <nil>
}

// A put and the work on its job are two traces with a link between them.
func ExampleWithTracerProvider() {
	url, stop := startServer()
	defer stop()
	spans := tracetest.NewInMemoryExporter() // a program has otel.GetTracerProvider(), say
	c, err := client.New(url, client.WithTracerProvider(trace.NewTracerProvider(trace.WithSyncer(spans))))
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	if _, err := c.Put(ctx, "orders", []byte("close order 42"), client.In(20*time.Millisecond)); err != nil {
		log.Panic(err)
	}
	err = client.Worker{Queues: []string{"orders"}}.Run(ctx, c, func(context.Context, *client.Job) error {
		cancel()
		return nil
	})
	if err != nil {
		log.Panic(err)
	}
	var put, work tracetest.SpanStub
	for _, span := range spans.GetSpans() {
		fmt.Println(span.Name)
		switch span.Name {
		case "send orders":
			put = span
		case "process orders":
			work = span
		}
	}
	fmt.Println("linked:", work.Links[0].SpanContext.SpanID() == put.SpanContext.SpanID())
	// Output:
	// send orders
	// process orders
	// ack orders
	// linked: true
}
