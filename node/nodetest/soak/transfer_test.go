package soak

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// A leader that was deposed while it handed over to a follower that did not answer serves when it is elected again. Whether Raft gets into trouble
// is a matter of chance, so it is tried a few times.
func TestLeaderServesAfterAHandoverThatNeverEnded(t *testing.T) {
	const rounds = 5
	left := bubble(t, func(t *testing.T) {
		w := newWorld(Options{Seed: 1, plan: func(p *plan) { p.nodes = 3 }})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		if err := w.found(ctx); err != nil {
			t.Fatal(err)
		}
		for range rounds {
			leads, l := w.leader(shardGroup)
			if l == nil {
				t.Fatal("nobody leads")
			}
			others := slices.DeleteFunc(w.all(), func(m *member) bool { return m == leads })
			w.network.alter(w.network.lossy, around(others[0].name, w.names()), 1)
			c := &client{world: w, name: "c", guess: slices.Index(w.all(), leads)}
			for range 2 { // an entry that the follower lacks, and a handing over that waits for it
				put := &fsm.Request{Commands: []fsm.Command{&fsm.Put{Queue: "q", Partitions: 1}}}
				_, err := l.node.Do(ctx, 0, put)
				for err != nil && node.OutcomeOf(err) == node.NotApplied && c.rest(ctx, 100*time.Millisecond) { // Raft may be handing over yet
					_, err = l.node.Do(ctx, 0, put)
				}
				if err != nil {
					t.Fatal(err)
				}
				_ = l.node.TransferLeader(ctx, shardGroup, w.idOf(others[0])) // nobody answers
			}
			w.network.alter(w.network.lossy, around(leads.name, w.names()), 1)
			c.rest(ctx, 20*time.Second)
			w.network.alter(w.network.lossy, around(leads.name, w.names()), -1)
			w.network.alter(w.network.lossy, around(others[0].name, w.names()), -1)
			c.rest(ctx, 15*time.Second)
			attempt, cancel := context.WithTimeout(ctx, time.Minute)
			if !w.leadTo(attempt, leads) {
				t.Errorf("%s does not serve any more: %+v", leads.name, w.lifeOf(leads).status(shardGroup))
			}
			cancel()
		}
		t.Logf("what happened: %v", w.history.counts)
		if len(w.history.violations) > 0 {
			t.Errorf("violations:\n%s", strings.Join(w.history.violations, "\n"))
		}
		for _, m := range w.all() {
			w.kill(m, nil, nil, diskfault.KeepNames)
		}
		w.dying.Wait()
	})
	for _, stack := range left {
		t.Error(stack)
	}
}
