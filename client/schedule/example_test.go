package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/client/schedule"
)

// startServer runs a server for one example, whose clock begins at now. Programs are given the address
// of theirs.
func startServer(now time.Time) (server *belfrytest.Server, stop func()) {
	dir, err := os.MkdirTemp("", "belfry-example-")
	if err != nil {
		log.Panic(err)
	}
	server, err = belfrytest.Open(context.Background(), dir, belfrytest.StoppedAt(now))
	if err != nil {
		log.Panic(err)
	}
	return server, func() {
		if err := errors.Join(server.Close(), os.RemoveAll(dir)); err != nil {
			log.Panic(err)
		}
	}
}

// A report is due every night at half past two in Berlin. On the night in which that time does not
// exist it is due at three.
func Example() {
	server, stop := startServer(time.Date(2027, 3, 27, 12, 0, 0, 0, time.UTC))
	defer stop()
	c, err := client.New(server.URL)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()
	ctx := context.Background()

	put, err := c.Schedules().Put(ctx, "reports", "nightly", schedule.Definition{
		Spec:   schedule.Spec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"},
		Policy: schedule.Policy{Overlap: schedule.OverlapSkip},
		Job:    schedule.Job{Body: []byte("all shops"), MaxAttempts: new(3)},
	})
	if err != nil {
		log.Panic(err)
	}
	for _, at := range put.Times[:2] {
		fmt.Println(at.Local)
	}

	server.Advance(24 * time.Hour) // a test need not wait
	jobs, err := c.Reserve(ctx, client.ReserveOptions{Queues: []string{"reports"}, Wait: 20 * time.Second})
	if err != nil {
		log.Panic(err)
	}
	for _, job := range jobs {
		fmt.Printf("%s: %s\n", job.ID, job.Body)
	}
	// Output:
	// 2027-03-28T03:00:00+02:00 CEST
	// 2027-03-29T02:30:00+02:00 CEST
	// cron:nightly@2027-03-28T01:00:00Z: all shops
}

// A part of a schedule is changed, unless somebody else has changed it in the meantime.
func ExampleIfVersion() {
	server, stop := startServer(time.Date(2027, 3, 27, 12, 0, 0, 0, time.UTC))
	defer stop()
	c, err := client.New(server.URL)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()
	ctx, schedules := context.Background(), c.Schedules()
	if _, err := schedules.Put(ctx, "sync", "shop-7", schedule.Definition{
		Spec: schedule.Spec{Every: 15 * time.Minute}, Job: schedule.Job{Body: []byte("shop 7")},
	}); err != nil {
		log.Panic(err)
	}

	held, err := schedules.Get(ctx, "sync", "shop-7")
	if err != nil {
		log.Panic(err)
	}
	held.Spec.Every = 10 * time.Minute
	put, err := schedules.Put(ctx, "sync", "shop-7", held.Definition, schedule.IfVersion(held.Version))
	fmt.Println(put.Replaced, put.Version > held.Version, err)

	_, err = schedules.Put(ctx, "sync", "shop-7", schedule.Definition{Spec: schedule.Spec{Every: time.Hour}},
		schedule.IfVersion(held.Version))
	if changed, ok := errors.AsType[*client.Error](err); ok && errors.Is(err, client.ErrVersionChanged) {
		fmt.Println("it has the version of the first change:", changed.Version == put.Version)
	}
	// Output:
	// true true <nil>
	// it has the version of the first change: true
}
