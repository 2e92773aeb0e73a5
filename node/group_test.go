package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/storage"
)

func TestSubmitIsBoundToItsLeadership(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	g := n.shards[0].Load().group
	first, err := g.leader()
	if err != nil {
		t.Fatal(err)
	}
	g.lose()
	before := g.instance().LastIndex()
	if _, err := g.submit(first, []byte("x")); !errors.Is(err, outcome.ErrNoLeader) {
		t.Errorf("an entry of a leadership that is over ended with %v", err)
	}
	if g.serve(first) || g.instance().LastIndex() != before {
		t.Error("a leadership that is over serves, or logs")
	}
	if _, err := g.leader(); !errors.Is(err, outcome.ErrNoLeader) {
		t.Errorf("without a leadership callers get %v", err)
	}
}

// What was confirmed is that this node leads, in whatever term: the read began in another one,
// whose entries it may lack.
func TestReadIsBoundToItsLeadership(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	g := n.shards[0].Load().group
	first, err := g.leader()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.confirm(t.Context(), first); err != nil {
		t.Errorf("a leadership that goes on: %v", err)
	}
	g.lose()
	if err := g.confirm(t.Context(), first); !errors.Is(err, outcome.ErrNoLeader) {
		t.Errorf("a read in a leadership that is over: %v", err)
	}
}

// Raft reports each gain and each loss, so two gains in a row are a leadership lost and regained:
// duties begin anew.
func TestTwoGainsAreALossAndAGain(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	s := n.shards[0].Load()
	first, err := s.leader()
	if err != nil {
		t.Fatal(err)
	}
	before := do(t, n, 0, put("orders", "x", 0)).Witness
	s.lose()
	s.gain(t.Context())
	deadline := time.Now().Add(time.Minute)
	second := s.serving.Load()
	for ; second == nil && time.Now().Before(deadline); second = s.serving.Load() { // ends as soon as the duties are done
		<-time.NewTimer(time.Millisecond).C
	}
	if second == nil || second == first {
		t.Fatalf("the leadership is %p after %p", second, first)
	}
	<-first.over
	// Between them lie the barrier and the Lead of the new leadership.
	if after := do(t, n, 0, put("orders", "x", 0)).Witness; after.Index != before.Index+3 {
		t.Errorf("the put at %d is followed by one at %d, want 3 later", before.Index, after.Index)
	}
}

func TestDutiesOfTwoLeadershipsDoNotOverlap(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		var began atomic.Int64
		release := make(chan struct{})
		g, err := n.StartGroup(t.Context(), GroupConfig{Name: "counter", Machine: &counter{},
			Lead: func(ctx context.Context, _ *Group) {
				began.Add(1)
				<-ctx.Done()
				<-release
			}})
		if err != nil {
			t.Fatal(err)
		}
		g.group.lose()
		g.group.gain(t.Context())
		synctest.Wait()
		if got := began.Load(); got != 1 {
			t.Errorf("the duties began %d times while those of the first leadership went on", got)
		}
		release <- struct{}{}
		synctest.Wait()
		if got := began.Load(); got != 2 {
			t.Errorf("the duties began %d times, want 2", got)
		}
		close(release)
	})
}

// A snapshot may ask for a restart at the moment at which the node is closed.
func TestRestartBesideStopLeavesNothingOpen(t *testing.T) {
	for _, order := range []string{"stop first", "together"} {
		t.Run(order, func(t *testing.T) {
			n := openNode(t, testConfig(t, t.TempDir()))
			of := n.groupConfig("other", groupDir(n.cfg.Dir, "other"))
			of.Machine, of.Lead = &counter{}, func(ctx context.Context, _ *leadership) { <-ctx.Done() }
			g := newGroup(of)
			notify := make(chan bool)
			if err := g.open(notify); err != nil {
				t.Fatal(err)
			}
			g.running.Go(func() { // what watch does with what Raft reports
				for {
					select {
					case <-notify:
					case <-g.done:
						return
					}
				}
			})
			stopped := make(chan error, 1)
			if order == "together" {
				go func() { stopped <- g.stop() }()
			} else {
				stopped <- g.stop()
			}
			if err := g.restart(notify); err != nil && !errors.Is(err, outcome.ErrShuttingDown) {
				t.Errorf("the restart ended with %v", err)
			} else if err == nil && order == "stop first" {
				t.Error("a stopped group was started")
			}
			if err := <-stopped; err != nil {
				t.Errorf("the stop ended with %v", err)
			}
			// Files that were left open could not be opened.
			stores, err := storage.Open(g.dir(), storage.Config{Group: n.id.ClusterID + "/" + n.id.serverID() + "/other",
				Mode: storage.MustExist})
			if err != nil {
				t.Fatal(err)
			}
			if err := stores.Close(); err != nil {
				t.Error(err)
			}
			select {
			case <-g.instance().ended:
			default: // Raft's own state would not tell: an election that begins just then leaves it a candidate
				t.Error("raft has not ended")
			}
		})
	}
}

func TestNothingIsStartedBesideAStop(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	closeNode(t, n)
	run := func() { t.Error("it ran") }
	if n.spawn(run) || n.shards[0].Load().spawn(run) {
		t.Error("a goroutine was started after the stop")
	}
	if _, err := n.StartGroup(t.Context(), GroupConfig{Name: "counter", Machine: &counter{}}); !errors.Is(err,
		outcome.ErrShuttingDown) {
		t.Errorf("starting a group ended with %v", err)
	}
}
