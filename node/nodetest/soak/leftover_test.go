package soak

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
)

// A goroutine that is left behind must not keep what its world needed: a run of hours leaves
// hundreds.
func TestAGoroutineLeftBehindKeepsNoWorld(t *testing.T) {
	type large struct {
		_      [1 << 20]byte
		closed bool
	}
	var kept weak.Pointer[large]
	left := bubble(t, func(*testing.T) {
		var never sync.WaitGroup
		never.Add(1)
		go never.Wait()
		world := &large{}
		kept = weak.Make(world)
		time.AfterFunc(time.Hour, func() { world.closed = true }).Stop()
	})
	if len(left) > 0 {
		t.Fatalf("goroutines of nobody are complained of: %v", left)
	}
	for range 10 {
		runtime.GC()
	}
	if kept.Value() != nil {
		t.Error("what a stopped timer refers to is kept")
	}
}

// A visitor that could not leave in time is never taken for a member whose disk is replaced: it
// would stay for good.
func TestAVisitorThatStayedIsSentAway(t *testing.T) {
	left := bubble(t, func(t *testing.T) {
		w := newWorld(Options{Seed: 1})
		w.plan.nodes = 1
		defer w.killAll()
		if err := w.found(t.Context()); err != nil {
			t.Error(err)
			return
		}
		if !w.await(t.Context(), func() bool { return w.whole() == "" }) {
			t.Error(w.whole())
			return
		}
		m := w.newMember("v1")
		w.members = append(w.members, m)
		w.startMember(m)
		if err := w.admit(t.Context(), m); err != nil {
			t.Error(err)
			return
		}
		m.leaving = append(m.leaving, w.idOf(m))
		random := rand.New(rand.NewPCG(1, 1))
		for struck := 0; slices.Contains(w.all(), m) && struck < 100; struck++ {
			replaceMember(t.Context(), w, random)
		}
		if slices.Contains(w.all(), m) {
			t.Error("the visitor is still there")
		}
		if missing := w.whole(); missing != "" {
			t.Errorf("the cluster is not what it was: %s", missing)
		}
	})
	if len(left) > 0 {
		t.Error(left)
	}
}

// Shard time may be ahead by what one wild clock can do, and by no more; before there was one, only
// by what the others are wrong by.
func TestHowFarShardTimeMayBeAhead(t *testing.T) {
	const wildAt = 10 * time.Second
	for _, c := range []struct {
		name      string
		wildAt    time.Duration
		ahead     time.Duration
		violation bool
	}{
		{"no clock is wild, within the skew", 0, skewMax, false},
		{"no clock is wild, beyond the skew", 0, skewMax + 10*time.Millisecond, true},
		{"a clock was not wild yet", wildAt + time.Hour, skewMax + 10*time.Millisecond, true},
		{"a clock is wild, and its node led until half the bound", wildAt, 3 * skewMax, false},
		{"a clock is wild, and its node leads on", wildAt, 3*skewMax + 10*time.Millisecond, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(Options{Seed: 1})
			w.wild.Store(int64(c.wildAt))
			at := wildAt + time.Second
			stamp := fsm.Time(w.history.start.Add(at + c.ahead).UnixNano())
			request := codec.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{&fsm.Expire{}}})
			data := codec.AppendEntry(nil, stamp, [][]byte{request})
			machine := machine.New(fsm.Config{Seed: 1})
			if _, err := machine.Apply(1, data); err != nil {
				t.Fatal(err)
			}
			w.replay([]*entry{{index: 1, at: at, data: data, digest: machine.Digest()}})
			if got := len(w.history.violations) > 0; got != c.violation {
				t.Errorf("violations: %v", w.history.violations)
			}
		})
	}
}
