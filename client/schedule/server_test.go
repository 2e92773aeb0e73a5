package schedule_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/client/schedule"
)

// noon is when the clock of the server begins.
var noon = time.Date(2027, 3, 27, 12, 0, 0, 0, time.UTC)

// full has each field of a definition.
func full() schedule.Definition {
	return schedule.Definition{
		Spec: schedule.Spec{
			Cron: "0 * * * *", TimeZone: "Europe/Berlin", DST: schedule.DSTSkip, Start: noon, End: noon.Add(48 * time.Hour),
			Jitter: time.Minute, Exclude: []string{"* 3 * * *"},
		},
		Policy: schedule.Policy{
			CatchUp: schedule.CatchUpAll, Window: time.Hour, Overlap: schedule.OverlapOneWaiting, MaxFires: 7,
			PauseOnDead: true,
		},
		Job: schedule.Job{
			Body: []byte{0xff, 0}, Headers: map[string]string{"a": "1"}, Key: "k", TTR: time.Minute, TTL: time.Hour,
			Priority: new(int64(0)), MaxAttempts: new(0), RetryDelays: []time.Duration{0, time.Second},
		},
	}
}

// TestServer: what is put at a server is read as it was put, and the calls act on it.
func TestServer(t *testing.T) {
	server := belfrytest.Start(t, belfrytest.StoppedAt(noon))
	sdk, ctx := server.Client(t), t.Context()
	c := sdk.Schedules()
	for range 2 { // the second time nothing changes
		if put, err := c.Put(ctx, "q", "a/hourly", full()); err != nil || put.Version != 1 || len(put.Times) == 0 {
			t.Fatalf("%+v, %v", put, err)
		}
	}
	held, err := c.Get(ctx, "q", "a/hourly")
	if diff := cmp.Diff(full(), held.Definition); diff != "" || err != nil {
		t.Errorf("%v (-put +read):\n%s", err, diff)
	}
	if !held.CreatedAt.Equal(noon) || !held.Next.Equal(noon.Add(time.Hour)) || held.Queue != "q" ||
		held.Name != "a/hourly" {
		t.Errorf("%+v", held)
	}
	if put, err := c.Put(ctx, "q", "a/hourly", held.Definition); err != nil || put.Created || put.Replaced {
		t.Errorf("what was read is something else: %+v, %v", put, err)
	}
	if p, err := c.Pause(ctx, "q", schedule.Selection{Prefix: "a/"}, "why"); p.Changed != 1 || err != nil {
		t.Errorf("pause: %+v, %v", p, err)
	}
	for s, err := range c.List(ctx, "q", "a/") {
		if err != nil || s.Name != "a/hourly" || !s.Paused || s.Note != "why" || s.Job.Body != nil {
			t.Errorf("list: %+v, %v", s, err)
		}
	}
	for _, created := range []bool{true, false} {
		trigger, err := c.Trigger(ctx, "q", "a/hourly", noon)
		if err != nil || trigger.Created != created || trigger.ID != "cron:a/hourly@2027-03-27T12:00:00Z" {
			t.Errorf("trigger: %+v, %v", trigger, err)
		}
	}
	if now, err := c.Trigger(ctx, "q", "a/hourly", time.Time{}); err != nil || !now.Created {
		t.Errorf("trigger now: %+v, %v", now, err)
	}
	server.Advance(30 * time.Minute)
	span := schedule.Span{From: noon, To: noon.Add(30 * time.Minute)}
	if b, err := c.Backfill(ctx, "q", "a/hourly", span); err != nil || b.Existing != 1 || b.Put != 0 || !b.Rest.IsZero() {
		t.Errorf("backfill: %+v, %v", b, err)
	}
	resumed, err := c.Resume(ctx, "q", schedule.Selection{Names: []string{"a/hourly", "none"}}, "")
	if err != nil || resumed.Changed != 1 || !slices.Equal(resumed.Missing, []string{"none"}) {
		t.Errorf("resume: %+v, %v", resumed, err)
	}
	if n, err := c.Delete(ctx, "q", "a/hourly", schedule.CancelWaiting()); n != 2 || err != nil {
		t.Errorf("delete: %d, %v", n, err)
	}
}

// TestWritersAtOnce: many callers that give a schedule another content and another rule after a firing has
// come leave one schedule, and that firing has one job, with the last content.
func TestWritersAtOnce(t *testing.T) {
	server := belfrytest.Start(t, belfrytest.StoppedAt(noon))
	sdk, ctx := server.Client(t), t.Context()
	c, this := sdk.Schedules(), schedule.Selection{Names: []string{"s"}}
	rules := []schedule.Spec{{Every: time.Second}, {Cron: "* * * * * *"}}
	put := func(n int) {
		d := schedule.Definition{Spec: rules[n%2], Job: schedule.Job{Body: fmt.Append(nil, n)}}
		if _, err := c.Put(ctx, "q", "s", d); err != nil {
			t.Error(err)
		}
	}
	put(0)
	for round := 1; round <= 3; round++ {
		paused, err := c.Pause(ctx, "q", this, "")
		server.Advance(time.Second)
		var writers sync.WaitGroup
		for i := range 10 {
			writers.Go(func() {
				put(20*round + i)
				put(20*round + 10 + i)
			})
		}
		writers.Wait()
		nominal := noon.Add(time.Duration(round) * time.Second)
		held, err2 := c.Get(ctx, "q", "s")
		if all := count(t, c); err != nil || err2 != nil || paused.Changed != 1 || all != 1 || !held.Next.Equal(nominal) {
			t.Fatalf("%d schedules, %+v, %v and %v; one is to fire at %v: %+v", all, paused, err, err2, nominal, held)
		}
		if _, err := c.Resume(ctx, "q", this, ""); err != nil {
			t.Fatal(err)
		}
		jobs, err := sdk.Reserve(ctx, client.ReserveOptions{Queues: []string{"q"}, Max: 10, Wait: time.Minute})
		if err != nil || len(jobs) != 1 || jobs[0].ID != "cron:s@"+nominal.Format(time.RFC3339) ||
			!bytes.Equal(jobs[0].Body, held.Job.Body) {
			t.Errorf("%d jobs, %v: %+v", len(jobs), err, jobs)
		}
	}
	if held, err := c.Get(ctx, "q", "s"); err != nil || held.Counts != (schedule.Counts{Fired: 3}) {
		t.Errorf("%v, %+v", err, held)
	}
}

// count returns how many schedules the queue has.
func count(t *testing.T, c schedule.Client) (n int) {
	t.Helper()
	for _, err := range c.List(t.Context(), "q", "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// TestServerRefuses: the errors of the calls are those of package client, and name what is wrong.
func TestServerRefuses(t *testing.T) {
	server := belfrytest.Start(t, belfrytest.StoppedAt(noon))
	c, ctx := server.Client(t).Schedules(), t.Context()
	hourly := schedule.Definition{Spec: schedule.Spec{Every: time.Hour}}
	if _, err := c.Put(ctx, "q", "n", hourly); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		want client.Reason
		call func() error
	}{
		"get":         {client.ErrScheduleNotFound, func() error { _, err := c.Get(ctx, "q", "x"); return err }},
		"get, queue":  {"QUEUE_NOT_FOUND", func() error { _, err := c.Get(ctx, "none", "x"); return err }},
		"delete":      {client.ErrScheduleNotFound, func() error { _, err := c.Delete(ctx, "q", "x"); return err }},
		"trigger":     {client.ErrScheduleNotFound, func() error { _, err := c.Trigger(ctx, "q", "x", noon); return err }},
		"pause, none": {"INVALID", func() error { _, err := c.Pause(ctx, "q", schedule.Selection{}, ""); return err }},
		"put, version": {client.ErrVersionChanged, func() error {
			_, err := c.Put(ctx, "q", "n", hourly, schedule.IfVersion(9))
			return err
		}},
		"put, choice": {"INVALID", func() error {
			_, err := c.Put(ctx, "q", "n", schedule.Definition{Spec: schedule.Spec{Cron: "@daily", DST: -1}})
			return err
		}},
		"preview": {"INVALID", func() error {
			_, err := c.Preview(ctx, schedule.PreviewRequest{Spec: schedule.Spec{Cron: "0 0 30 2 *"}})
			return err
		}},
		"backfill": {"INVALID", func() error {
			_, err := c.Backfill(ctx, "q", "n", schedule.Span{From: noon, To: noon.Add(time.Hour)})
			return err
		}},
	} {
		if err := tt.call(); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
	for s, err := range c.List(ctx, "none", "") {
		t.Errorf("a queue that is not there has %+v, %v", s, err)
	}
	next, err := c.Preview(ctx, schedule.PreviewRequest{Spec: schedule.Spec{Cron: "@daily"}, After: noon, Count: 1})
	if err != nil || len(next.Times) != 1 || next.Rule != "0 0 * * *" || next.ZoneData == "" {
		t.Errorf("preview: %+v, %v", next, err)
	}
}
