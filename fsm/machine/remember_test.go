package machine

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// TestNextForget: an entry forgets something when NextForget says so and not before, until nothing
// is remembered.
func TestNextForget(t *testing.T) {
	m := New(fsm.Config{})
	index, now := uint64(0), fsm.Time(time.Hour)
	apply := func(at fsm.Time, id string, c fsm.Command) fsm.Result {
		t.Helper()
		index++
		req := &fsm.Request{Caller: "c", ID: id, Commands: []fsm.Command{c}}
		results, err := m.Apply(index, codec.AppendEntry(nil, at, [][]byte{codec.AppendRequest(nil, req)}))
		if err != nil {
			t.Fatal(err)
		}
		return results[0]
	}
	if at, ok := m.NextForget(); ok {
		t.Errorf("of nothing something is forgotten at %d", at)
	}
	for _, name := range []string{"a", "b"} {
		apply(now, name+"1", &fsm.Put{Queue: "q", ID: name, Partitions: 1})
		g := apply(now+1, "", &fsm.Reserve{Queues: []string{"q"}, Max: 1}).Grants[0]
		if m.Leases() != 1 {
			t.Errorf("%d jobs are reserved", m.Leases())
		}
		apply(now+2, name+"2", &fsm.Ack{Ref: fsm.Ref{Queue: "q", Serial: g.Serial, Fence: g.Fence}})
		now = now.Add(time.Second)
	}
	remembered := func() int {
		st := m.Stats()
		return st.Answers + st.Tombstones + st.Finished
	}
	if m.Leases() != 0 || remembered() != 8 {
		t.Errorf("%d jobs are reserved, %d things are remembered", m.Leases(), remembered())
	}
	for remembered() > 0 {
		at, ok := m.NextForget()
		if !ok {
			t.Fatalf("nothing is to be forgotten of %+v", m.Stats())
		}
		before := remembered()
		if apply(at-1, "", &fsm.Expire{}); remembered() != before {
			t.Errorf("%d things are forgotten before %d", before-remembered(), at)
		}
		if apply(at, "", &fsm.Expire{}); remembered() >= before {
			t.Fatalf("nothing is forgotten at %d of %+v", at, m.Stats())
		}
	}
}

// TestRememberingReusesMemory: the answer to a request is made where the one before was, and stays
// as it is when others follow.
func TestRememberingReusesMemory(t *testing.T) {
	m := New(fsm.Config{})
	m.scalars.Clock = fsm.Time(time.Hour)
	answer := func(n int) *fsm.Answer {
		return &fsm.Answer{
			Caller: "c", ID: string(rune('a' + n%2000)), At: m.scalars.Clock, Results: make([]fsm.Result, 1+n%100),
		}
	}
	n := 0
	remember := func() {
		n++
		m.remembered.Remember(answer(n))
	}
	for range 300 {
		remember()
	}
	for k := 1; k <= 300; k++ {
		a := answer(k)
		index := m.store.Answers.Find(a.Caller, a.ID)
		if index == 0 || string(m.store.Answers.Encoded(index)) != string(codec.AppendAnswer(nil, a)) {
			t.Fatalf("request %d is remembered at %d otherwise than it was", k, index)
		}
	}
	// the answer itself, its id and results, and now and then a page
	if allocs := testing.AllocsPerRun(200, remember); allocs > 4 {
		t.Errorf("%v pieces of memory for an answer", allocs)
	}
}
