package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/outcome"
)

// TestFullMemoryForgets: while puts are refused for want of memory the pacer has forgotten what is
// past its time, though no caller logs anything. While there is memory nothing is logged for that.
func TestFullMemoryForgets(t *testing.T) {
	const window, late = fsm.DefaultDedupWindow, 2 * fsm.DefaultDedupWindow
	here := func(_ context.Context, n *Node, h *fakeHeap) { h.set(n, fullMark(n)>>20+1) }
	voter := func(ctx context.Context, n *Node, _ *fakeHeap) {
		go func() {
			again := time.NewTicker((10 * time.Second) / 2)
			defer again.Stop()
			for ctx.Err() == nil {
				n.NotePeerMemory(n.id.ServerID(), &admit.MemoryError{Used: 90, Limit: 100}, nil)
				select {
				case <-again.C:
				case <-ctx.Done():
				}
			}
		}()
	}
	for _, tt := range []struct {
		name    string
		full    func(ctx context.Context, n *Node, h *fakeHeap)
		after   time.Duration // that it is full
		forgets bool
	}{
		{"there is memory", func(context.Context, *Node, *fakeHeap) {}, 0, false},
		{"full before", here, 0, true},
		{"full when it is overdue", here, late, true},
		{"a voter is full before", voter, 0, true},
		{"a voter is full when it is overdue", voter, late, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				n, h := openInMemory(t, dir, 1024)
				endJobs(t, n, 2*fsm.SweepMax+1)
				time.Sleep(tt.after)
				before, entries, left := lastIndex(n), uint64(0), 2*fsm.SweepMax+1
				tt.full(t.Context(), n, h)
				if tt.after == 0 {
					time.Sleep(window - time.Second)
					expectEntries(t, n, before, 0)
				}
				if tt.forgets {
					entries, left = 3, 0
				}
				time.Sleep(time.Minute)
				expectEntries(t, n, before, entries)
				if st := n.Stats().Shards[0].Machine; st.Tombstones != left {
					t.Errorf("%d tombstones are left, want %d", st.Tombstones, left)
				}
				time.Sleep(time.Hour)
				expectEntries(t, n, before, entries)
			})
		})
	}
}

// endJobs puts and cancels so many jobs, which leaves as many tombstones.
func endJobs(t *testing.T, n *Node, jobs int) {
	t.Helper()
	var puts, cancels []fsm.Command
	for i := range jobs {
		id := fmt.Sprint(i)
		puts = append(puts, &fsm.Put{Queue: "orders", ID: id, Partitions: 1})
		cancels = append(cancels, &fsm.Cancel{Queue: "orders", ID: id})
	}
	do(t, n, 0, puts...)
	do(t, n, 0, cancels...)
}

// TestCriticalMemoryIsDrained: while memory is critical few jobs are reserved at a time, and all
// can be ended.
func TestCriticalMemoryIsDrained(t *testing.T) {
	n, h := openInMemory(t, t.TempDir(), 1024)
	const jobs = 3 * admit.CriticalLeases
	for range jobs {
		do(t, n, 0, put("orders", "x", 0))
	}
	h.set(n, criticalMark(n)>>20+1)
	var held []fsm.Grant
	take := func(id string, most uint32, want int) {
		t.Helper()
		req := &fsm.Request{Caller: "c", ID: id, Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"orders"}, Max: most,
			TTR: time.Hour}}}
		reply, err := n.Reserve(t.Context(), 0, req, Wait{})
		if want == 0 {
			if !errors.Is(err, outcome.ErrMemoryFull) {
				t.Errorf("with %d jobs reserved %+v are granted, %v", len(held), reply.Results, err)
			}
			return
		}
		if err != nil || len(reply.Results[0].Grants) != want {
			t.Fatalf("with %d jobs reserved %+v are granted, %v, want %d", len(held), reply.Results, err, want)
		}
		held = append(held, reply.Results[0].Grants...)
	}
	ack := func(count int) {
		t.Helper()
		for _, g := range held[:count] {
			do(t, n, 0, &fsm.Ack{Ref: refOf(g)})
		}
		held = held[count:]
	}
	take("", 100, admit.CriticalLeases)
	take("", 100, 0)
	ack(10)
	take("", 100, 10)
	ack(1)
	take("with an id", 20, 20)
	take("another", 1, 0)
	ack(len(held))
	for ended := admit.CriticalLeases + 30; ended < jobs; ended += admit.CriticalLeases {
		take("", 100, min(admit.CriticalLeases, jobs-ended))
		ack(len(held))
	}
	if counts := queueOf(t, n, "orders").Counts; counts.Jobs() != 0 {
		t.Errorf("left are %+v", counts)
	}
}

// TestLetThroughIsCountedAnew: what is let through and not logged is not counted for long.
func TestLetThroughIsCountedAnew(t *testing.T) {
	n, h := openInMemory(t, t.TempDir(), 1024)
	do(t, n, 0, put("orders", "x", 0))
	h.set(n, criticalMark(n)>>20+1)
	s := n.shards[0].Load()
	if _, err := s.admission.Admit(t.Context(),
		&fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Max: admit.CriticalLeases}}}, nil); err != nil {
		t.Fatal(err)
	}
	n.sumMemory()
	if g := reserve(t, n, 0, "orders", 0); len(g) != 1 {
		t.Errorf("granted %+v", g)
	}
}

// TestRepeatsPassAFullMemory: a request that was carried out is answered as before, since its
// repeat adds nothing.
func TestRepeatsPassAFullMemory(t *testing.T) {
	n, h := openInMemory(t, t.TempDir(), 1024)
	named := func(id string, c fsm.Command) *fsm.Request {
		return &fsm.Request{Caller: "c", ID: id, Commands: []fsm.Command{c}}
	}
	puts := []*fsm.Request{named("p", put("orders", "x", 0)),
		named("", &fsm.Put{Queue: "orders", ID: "chosen", Partitions: 1})}
	for _, req := range puts {
		if _, err := n.Do(t.Context(), 0, req); err != nil {
			t.Fatal(err)
		}
	}
	for range admit.CriticalLeases {
		do(t, n, 0, put("orders", "y", 0))
	}
	take := named("r", &fsm.Reserve{Queues: []string{"orders"}, Max: 1, TTR: time.Hour})
	first, err := n.Reserve(t.Context(), 0, take, Wait{})
	if err != nil {
		t.Fatal(err)
	}
	do(t, n, 0, &fsm.Reserve{Queues: []string{"orders"}, Max: admit.CriticalLeases - 1, TTR: time.Hour})
	h.set(n, criticalMark(n)>>20+1)
	check := func(when string) {
		t.Helper()
		for _, req := range puts {
			if reply, err := n.Do(t.Context(), 0, req); err != nil || reply.Results[0].Code != fsm.OK || req.ID == "" &&
				reply.Results[0].Created {
				t.Errorf("%s: the repeat of a put ended with %+v, %v", when, reply.Results, err)
			}
		}
		if _, err := n.Do(t.Context(), 0, named("new", put("orders", "z", 0))); !errors.Is(err, outcome.ErrMemoryFull) {
			t.Errorf("%s: a new put ended with %v", when, err)
		}
	}
	again, err := n.Reserve(t.Context(), 0, take, Wait{})
	if err != nil || len(again.Results[0].Grants) != 1 || again.Results[0].Grants[0] != first.Results[0].Grants[0] {
		t.Errorf("the repeat of a reserve ended with %+v, %v", again.Results, err)
	}
	check("critical")
	h.set(n, 100)
	n.NotePeerMemory(n.id.ServerID(), &admit.MemoryError{Used: 90, Limit: 100}, nil)
	check("a voter is full")
}
