package client_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/client/schedule"
)

// Each shop is settled at half past two of its own time zone, for each day: also for those of an outage,
// in order. The key keeps two settlements of one shop from running at once.
func ExampleClient_Schedules() {
	server, stop := startStoppedServer(time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC))
	defer stop()
	c, err := client.New(server.URL)
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	settings := &admin.QueueSettings{KeyOrdered: new(true), HoldOnDead: new(true)}
	if _, err := c.Admin().CreateQueue(ctx, "settlement", 1, settings); err != nil {
		log.Panic(err)
	}
	_, err = c.Schedules().Put(ctx, "settlement", "shop-7", schedule.Definition{
		Spec: schedule.Spec{Cron: "30 2 * * *", TimeZone: "Asia/Tokyo"},
		// With another Overlap than the default, the days behind the first that waits would be skipped.
		Policy: schedule.Policy{CatchUp: schedule.CatchUpAll, Window: 30 * 24 * time.Hour},
		Job:    schedule.Job{Body: []byte("settle shop 7"), Key: "shop-7"},
	})
	if err != nil {
		log.Panic(err)
	}

	server.Advance(3 * 24 * time.Hour)    // an outage
	shop := time.FixedZone("JST", 9*3600) // a program uses time.LoadLocation
	err = client.Worker{Queues: []string{"settlement"}}.Run(ctx, c, func(_ context.Context, job *client.Job) error {
		nominal, err := time.Parse(time.RFC3339, job.Headers["belfry-nominal"])
		if err != nil {
			return client.Dead(err)
		}
		day := nominal.In(shop).AddDate(0, 0, -1).Format(time.DateOnly)
		fmt.Printf("%s for %s\n", job.Body, day)
		if day == "2027-03-03" {
			cancel() // a service goes on
		}
		return nil
	})
	if err != nil {
		log.Panic(err)
	}
	// Output:
	// settle shop 7 for 2027-03-01
	// settle shop 7 for 2027-03-02
	// settle shop 7 for 2027-03-03
}
