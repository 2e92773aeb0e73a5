package oneway_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/fromlmstfy"
	"github.com/belfrydb/belfry/mirror/fromyouzan"
	"github.com/belfrydb/belfry/mirror/oneway"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// untrue are the checks that are not so.
func untrue(checks []pair.Check) (what []string) {
	for _, c := range checks {
		if !c.OK {
			what = append(what, c.What)
		}
	}
	return what
}

// TestFinalizeLmstfy ends an import of one job of each kind.
func TestFinalizeLmstfy(t *testing.T) {
	t.Parallel()
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	s := &lmstfyServer{redisDo: redisDo{t, r}, ns: "ns1", q: "q1"}
	now := time.Now()
	s.publish(now, "held", 0, 0, 2)
	s.consume(now, time.Minute)
	s.publish(now, "ready", 0, 0, 2)
	s.publish(now, "delayed", time.Hour, 0, 1)
	finalizes(t, r, c, "lmstfy:ns1/q1", func(o oneway.Options) (oneway.Counts, error) {
		return fromlmstfy.Import(t.Context(), r, c, fromlmstfy.Options{Options: o, Source: source()})
	}, func(o oneway.Options) ([]pair.Check, error) {
		return fromlmstfy.Finalize(t.Context(), r, c, fromlmstfy.Options{Options: o, Source: source()})
	})
}

// TestFinalizeYouzan ends an import of one job of each kind.
func TestFinalizeYouzan(t *testing.T) {
	t.Parallel()
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	s := &youzanServer{redisDo: redisDo{t, r}}
	now := time.Now()
	s.push("order", "held", now.Add(-time.Second), 60, "")
	s.tick(now)
	s.pop("order", now)
	s.push("order", "ready", now.Add(-time.Second), 60, "")
	s.tick(now)
	s.push("order", "delayed", now.Add(time.Hour), 60, "")
	finalizes(t, r, c, "youzan:order", func(o oneway.Options) (oneway.Counts, error) {
		return fromyouzan.Import(t.Context(), r, c, fromyouzan.Options{Options: o, Topic: "order"})
	}, func(o oneway.Options) ([]pair.Check, error) {
		return fromyouzan.Finalize(t.Context(), r, c, fromyouzan.Options{Options: o, Topic: "order"})
	})
}

// finalizes ends the import of a source that has three jobs, one of which a consumer holds: not
// while anything is left, and a second time as the first.
func finalizes(
	t *testing.T, r *redis.Client, c *client.Client, source string,
	run func(o oneway.Options) (oneway.Counts, error), end func(o oneway.Options) ([]pair.Check, error),
) {
	t.Helper()
	o := oneway.Options{Queue: "jobs", Share: 1}
	state, aside := "belfry_mirror:"+source, "belfry_aside:"+source
	refused := func(want string) {
		t.Helper()
		before := redistest.Dump(t, r)
		checks, err := end(o)
		if diff := cmp.Diff([]string{want}, untrue(checks)); err == nil || diff != "" {
			t.Errorf("it ended with %v; what is not so (-want +got):\n%s", err, diff)
		}
		after := redistest.Dump(t, r)
		delete(before, state) // it has the fence of the last bridge
		delete(after, state)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("it changed something (-before +after):\n%s", diff)
		}
	}
	refused("no job waits at the source")
	if counts, err := run(o); err != nil || counts.Reserved != 1 || counts.Total != 2 {
		t.Fatalf("the import counted %+v, error %v", counts, err)
	}
	refused("no job waits at the source")
	o.Stopped = true
	if counts, err := run(o); err != nil || counts.Acked != 1 || counts.Total != 1 {
		t.Fatalf("the import counted %+v, error %v", counts, err)
	}
	r.HSet(t.Context(), aside, "job", "record")
	refused("no job is set aside")
	remembers(t, c, "jobs", true)
	r.Del(t.Context(), aside)
	for range 2 {
		if checks, err := end(o); err != nil || len(checks) < 3 || untrue(checks) != nil {
			t.Errorf("it ended with %v: %+v", err, checks)
		}
	}
	remembers(t, c, "jobs", false)
	nothingLeft(t, r, state)
	if left := r.HKeys(t.Context(), state).Val(); !slices.Equal(slices.Sorted(slices.Values(left)), []string{"ended",
		"fence"}) || r.TTL(t.Context(), state).Val() <= 0 {
		t.Errorf("the mirror's note has %q", left)
	}
}

// TestFinalizeLmstfyDead ends an import that left dead letters, and not one that was to take them.
// The queue of dead letters forgets ids again too.
func TestFinalizeLmstfyDead(t *testing.T) {
	t.Parallel()
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	s := &lmstfyServer{redisDo: redisDo{t, r}, ns: "ns1", q: "q1"}
	long := time.Now().Add(-time.Hour)
	s.publish(long, "dead", 0, 0, 1)
	s.consume(long, time.Minute)
	s.pump(long.Add(time.Minute))
	s.publish(long, "dying", 0, 0, 1) // its last lease ended while no server looked
	s.consume(long, time.Minute)
	o := fromlmstfy.Options{Options: oneway.Options{Queue: "jobs", Stopped: true, Share: 1}, Source: source()}
	if counts, err := fromlmstfy.Import(t.Context(), r, c, o); err != nil || counts.Dead != 2 || counts.Total != 0 {
		t.Fatalf("the import counted %+v, error %v", counts, err)
	}
	if checks, err := fromlmstfy.Finalize(t.Context(), r, c, o); err != nil || untrue(checks) != nil {
		t.Errorf("it ended with %v: %+v", err, checks)
	}
	o.Dead = fromlmstfy.DeadQueue
	if checks, err := fromlmstfy.Finalize(t.Context(), r, c, o); err == nil || untrue(checks) == nil {
		t.Errorf("it passed with %+v", checks)
	}
	if counts, err := fromlmstfy.Import(t.Context(), r, c, o); err != nil || counts.Acked != 2 || counts.Total != 2 {
		t.Fatalf("the import counted %+v, error %v", counts, err)
	}
	remembers(t, c, "jobs.dead", true)
	if checks, err := fromlmstfy.Finalize(t.Context(), r, c, o); err != nil || untrue(checks) != nil {
		t.Errorf("it ended with %v: %+v", err, checks)
	}
	remembers(t, c, "jobs", false)
	remembers(t, c, "jobs.dead", false)
}

// remembers looks whether a queue remembers ids without end.
func remembers(t *testing.T, c *client.Client, queue string, want bool) {
	t.Helper()
	if q, err := c.Admin().Queue(t.Context(), queue); err != nil || *q.Settings.DedupForever != want {
		t.Errorf("the queue %s remembers ids without end, want %v: %v, error %v", queue, want, q.Settings, err)
	}
}
