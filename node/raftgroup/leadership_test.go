package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/outcome"
)

func TestSubmitIsBoundToItsLeadership(t *testing.T) {
	g := openCounter(t, &counter{})
	first, err := g.Leadership()
	if err != nil {
		t.Fatal(err)
	}
	g.EndLeadership()
	before := g.instance().LastIndex()
	if _, err := g.Submit(first, []byte("x")); !errors.Is(err, outcome.ErrNoLeader) {
		t.Errorf("an entry of a leadership that is over ended with %v", err)
	}
	if g.Serve(first) || g.instance().LastIndex() != before {
		t.Error("a leadership that is over serves, or logs")
	}
	if _, err := g.Leadership(); !errors.Is(err, outcome.ErrNoLeader) {
		t.Errorf("without a leadership callers get %v", err)
	}
}

// What was confirmed is that this node leads, in whatever term: the read began in another one,
// whose entries it may lack.
func TestReadIsBoundToItsLeadership(t *testing.T) {
	g := openCounter(t, &counter{})
	first, err := g.Leadership()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Confirm(t.Context(), first); err != nil {
		t.Errorf("a leadership that goes on: %v", err)
	}
	g.EndLeadership()
	if err := g.Confirm(t.Context(), first); !errors.Is(err, outcome.ErrNoLeader) {
		t.Errorf("a read in a leadership that is over: %v", err)
	}
}

// Raft reports each gain and each loss, so two gains in a row are a leadership lost and regained:
// duties begin anew.
func TestTwoGainsAreALossAndAGain(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := openGroup(t, testConfig(t, dir, &counter{}))
		first, err := g.Leadership()
		if err != nil {
			t.Fatal(err)
		}
		before := propose(t, g, "x")
		notify := make(chan bool)
		g.running.Go(func() { g.watch(t.Context(), notify) })
		notify <- true
		synctest.Wait()
		second := g.serving.Load()
		if second == nil || second == first {
			t.Fatalf("the leadership is %p after %p", second, first)
		}
		<-first.over
		// Between them lies the barrier of the new leadership.
		if after := propose(t, g, "x"); after.Index != before.Index+2 {
			t.Errorf("the put at %d is followed by one at %d, want 2 later", before.Index, after.Index)
		}
	})
}

func TestDutiesOfTwoLeadershipsDoNotOverlap(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var began atomic.Int64
		release := make(chan struct{})
		cfg := testConfig(t, dir, &counter{})
		cfg.Lead = func(ctx context.Context, _ *Leadership) {
			began.Add(1)
			<-ctx.Done()
			<-release
		}
		g := openGroup(t, cfg)
		g.EndLeadership()
		g.gain(t.Context())
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

func TestLeaderThatRaftKeepsWaitingServesInTheEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := openGroup(t, testConfig(t, dir, &counter{}))
		release := stall(t, g)
		g.EndLeadership()
		g.gain(t.Context())
		time.Sleep(3 * submitTimeout)
		if g.Serves() {
			t.Error("the group serves although nothing was applied")
		}
		release()
		time.Sleep(2 * insistPause)
		synctest.Wait()
		if !g.Serves() {
			t.Fatalf("the group never serves again: %+v", g.Status())
		}
		propose(t, g, "y")
	})
}

func TestInsist(t *testing.T) {
	unknown := fmt.Errorf("%w: disk", outcome.ErrUnknownOutcome)
	tests := []struct {
		name    string
		answers []error
		cancel  bool
		want    error
		calls   int
	}{
		{"taken at once", []error{nil}, false, nil, 1},
		{"taken after refusals", []error{outcome.ErrOverloaded, outcome.ErrNotLeader, outcome.ErrNoLeader, nil},
			false, nil, 4},
		{"unknown", []error{outcome.ErrOverloaded, unknown, nil}, false, unknown, 2},
		{"over", []error{outcome.ErrOverloaded, nil}, true, outcome.ErrOverloaded, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancel {
					cancel()
				}
				calls := 0
				err := Insist(ctx, func() error { calls++; return tt.answers[calls-1] })
				if !errors.Is(err, tt.want) || calls != tt.calls {
					t.Errorf("ended with %v after %d attempts, want %v after %d", err, calls, tt.want, tt.calls)
				}
			})
		})
	}
}

// stall has a counter stop at its next entry until the function that it returns is called, and
// fills the ways to it until Raft takes no entry any more, as in the replay of a long log.
func stall(t *testing.T, g *Group) (release func()) {
	t.Helper()
	held := make(chan struct{})
	g.replica.View(func(m Machine, _ Position) { // no entry is being applied
		m.(*counter).applying = func() { <-held }
	})
	for range 10_000 {
		if enqueueFailed(g.instance().Apply([]byte("x"), time.Second)) {
			return func() { close(held) }
		}
	}
	t.Fatal("raft takes entries without end")
	return nil
}

// enqueueFailed reports whether an entry was refused because Raft is busy. It does not wait for an
// entry that was taken.
func enqueueFailed(future raft.ApplyFuture) bool {
	ended := make(chan error, 1)
	go func() { ended <- future.Error() }()
	synctest.Wait()
	select {
	case err := <-ended:
		return errors.Is(err, raft.ErrEnqueueTimeout)
	default:
		return false
	}
}
