package node

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/propose"
)

// TestTooFewVoters: a shard that has fewer voters than it must have refuses what it would have to
// keep, before it is logged, and takes what makes room. The next start does so from the beginning.
func TestTooFewVoters(t *testing.T) {
	cfg := testConfig(t, t.TempDir())
	cfg.Shards = 1
	n := openNode(t, cfg)
	do := func(commands ...fsm.Command) (propose.Reply, error) {
		return n.Do(t.Context(), 0, &fsm.Request{Commands: commands})
	}
	for range 2 {
		if _, err := do(&fsm.Put{Queue: "q", Partitions: 1, Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	reply, err := do(&fsm.Reserve{Queues: []string{"q"}, Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	grants := reply.Results[0].Grants

	if err := n.RequireVoters(2); err != nil {
		t.Fatal(err)
	}
	before := n.Stats().Shards[0]
	for name, c := range map[string]fsm.Command{
		"put": &fsm.Put{Queue: "q", Partitions: 1, Body: []byte("y")}, "reserve": &fsm.Reserve{Queues: []string{"q"}, Max: 1},
		"extend": &fsm.Extend{Ref: refOf(grants[0])}, "nack": &fsm.Nack{Ref: refOf(grants[0])},
		"release": &fsm.Release{Ref: refOf(grants[0])}, "settings": &fsm.Configure{Queue: "q", Partitions: 1, Version: 1},
	} {
		_, err := do(c)
		short, ok := errors.AsType[*admit.VotersError](err)
		if !ok || *short != (admit.VotersError{Have: 1, Want: 2}) || !errors.Is(err, outcome.ErrTooFewVoters) ||
			outcome.Of(err) != outcome.NotApplied {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := n.Reserve(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"q"},
		Max: 1}}}, Wait{}); !errors.Is(err, outcome.ErrTooFewVoters) {
		t.Errorf("a poll: %v", err)
	}
	after := n.Stats().Shards[0]
	if after.AppliedIndex != before.AppliedIndex || after.TooFewVoters-before.TooFewVoters != 7 {
		t.Errorf("applied %d entries, counted %d refusals", after.AppliedIndex-before.AppliedIndex,
			after.TooFewVoters-before.TooFewVoters)
	}
	if reply, err := do(&fsm.Ack{Ref: refOf(grants[0])}); err != nil || reply.Results[0].Code != fsm.OK {
		t.Errorf("an ack: %+v, %v", reply, err)
	}
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	cfg = testConfig(t, cfg.Dir)
	cfg.Shards = 1
	n = openNode(t, cfg)
	if n.MinVoters() != 2 || n.Status().MinVoters != 2 {
		t.Errorf("the next start asks for %d voters", n.MinVoters())
	}
	if _, err := do(&fsm.Put{Queue: "q", Partitions: 1, Body: []byte("y")}); !errors.Is(err, outcome.ErrTooFewVoters) {
		t.Errorf("a put at the next start: %v", err)
	}
	if reply, err := do(&fsm.Purge{Queue: "q"}); err != nil || reply.Results[0].Code != fsm.OK {
		t.Errorf("a purge: %+v, %v", reply, err)
	}
	if err := n.RequireVoters(1); err != nil {
		t.Fatal(err)
	}
	if _, err := do(&fsm.Put{Queue: "q", Partitions: 1, Body: []byte("y")}); err != nil {
		t.Errorf("a put with one voter that is enough: %v", err)
	}
}

// TestPollsWaitWhileVotersAreTooFew: while there are too few voters, a parked poll gets no jobs,
// and goes on waiting.
func TestPollsWaitWhileVotersAreTooFew(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		do(t, n, 0, put("orders", "x", time.Second))
		poll := startPoll(t, n, time.Hour, 1, "orders")
		if err := n.RequireVoters(2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if !poll.running() {
			t.Fatalf("the poll ended with %+v, %v", poll.reply, poll.err)
		}
		if err := n.RequireVoters(1); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if got := poll.grants(t); len(got) != 1 || poll.at.Sub(start) > admit.ScarcePause {
			t.Errorf("granted %+v after %v", got, poll.at.Sub(start))
		}
	})
}
