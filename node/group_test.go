package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSubmitIsBoundToItsLeadership(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	g := n.shards[0].group
	first, err := g.leader()
	if err != nil {
		t.Fatal(err)
	}
	g.lose()
	before := g.instance().LastIndex()
	if _, err := g.submit(first, []byte("x")); !errors.Is(err, ErrNoLeader) {
		t.Errorf("an entry of a leadership that is over ended with %v", err)
	}
	if g.serve(first) || g.instance().LastIndex() != before {
		t.Error("a leadership that is over serves, or logs")
	}
	if _, err := g.leader(); !errors.Is(err, ErrNoLeader) {
		t.Errorf("without a leadership callers get %v", err)
	}
}

// Raft reports each gain and each loss, so two gains in a row are a leadership lost and regained: duties begin anew.
func TestTwoGainsAreALossAndAGain(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	s := n.shards[0]
	first, err := s.leader()
	if err != nil {
		t.Fatal(err)
	}
	before := do(t, n, 0, put("orders", "x", 0)).Witness
	s.lose()
	s.gain(t.Context())
	deadline := time.Now().Add(10 * time.Second)
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
		g, err := n.StartGroup(t.Context(), GroupConfig{Name: "counter", Machine: &counter{}, Lead: func(ctx context.Context, _ *Group) {
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
