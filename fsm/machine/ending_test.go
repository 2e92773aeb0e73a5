package machine

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/google/go-cmp/cmp"
)

// TestEndings: each entry tells which jobs it has ended, with their attempts and the time since
// their put; a repeated request has ended nothing.
func TestEndings(t *testing.T) {
	m := New(fsm.Config{})
	index := uint64(0)
	apply := func(at time.Duration, id string, commands ...fsm.Command) []fsm.Result {
		t.Helper()
		index++
		results, err := m.Apply(index,
			codec.AppendEntry(nil, fsm.Time(time.Hour+at), [][]byte{codec.AppendRequest(nil, &fsm.Request{
				Caller: "c", ID: id, Commands: commands,
			})}))
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	expect := func(what string, want ...fsm.Ending) {
		t.Helper()
		if diff := cmp.Diff(append([]fsm.Ending{}, want...), append([]fsm.Ending{}, m.Endings()...)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
	reserve := func(at time.Duration, queue string) fsm.Ref {
		t.Helper()
		g := apply(at, "", &fsm.Reserve{Queues: []string{queue}, Max: 1, TTR: time.Minute})[0].Grants
		if len(g) != 1 {
			t.Fatalf("%d grants", len(g))
		}
		return fsm.Ref{Queue: queue, Serial: g[0].Serial, Fence: g[0].Fence}
	}
	put := func(queue string, attempts uint32) fsm.Command {
		return &fsm.Put{Queue: queue, Partitions: 1, Given: fsm.GivenMaxAttempts, MaxAttempts: attempts}
	}

	apply(0, "", put("acked", 3), put("died", 1), put("lapses", 1), &fsm.Put{
		Queue: "expires", Partitions: 1, Given: fsm.GivenTTL, TTL: 10 * time.Minute,
	})
	expect("puts")
	apply(time.Second, "", &fsm.Nack{Ref: reserve(time.Second, "acked")})
	expect("a nack after which the job goes on")
	ack := &fsm.Ack{Ref: reserve(2*time.Second, "acked")}
	apply(5*time.Second, "request", ack)
	expect("an ack", fsm.Ending{Queue: "acked", State: fsm.Acked, Attempts: 2, Took: 5 * time.Second})
	apply(6*time.Second, "request", ack)
	expect("a repeated request")
	apply(6*time.Second, "", ack)
	expect("an ack of what is acked")
	lapsing := reserve(7*time.Second, "lapses")
	apply(8*time.Second, "", &fsm.Nack{Ref: reserve(8*time.Second, "died")})
	expect("a last nack", fsm.Ending{Queue: "died", State: fsm.Dead, Attempts: 1, Took: 8 * time.Second})
	apply(2*time.Minute, "", &fsm.Ack{Ref: lapsing})
	expect("a lease that has lapsed", fsm.Ending{Queue: "lapses", State: fsm.Dead, Attempts: 1, Took: 2 * time.Minute})
	apply(3*time.Minute, "", &fsm.Configure{
		Queue: "expires", Partitions: 1, Version: 1, Settings: fsm.Settings{ExpireToDead: true},
	})
	apply(11*time.Minute, "", &fsm.Expire{})
	expect("a time to live", fsm.Ending{Queue: "expires", State: fsm.Dead, Attempts: 0, Took: 11 * time.Minute})
	apply(12*time.Minute, "", &fsm.Expire{})
	expect("nothing")
}

// TestEndingsGiveMemoryBack after an entry that has ended very many jobs.
func TestEndingsGiveMemoryBack(t *testing.T) {
	m := New(fsm.Config{})
	m.endings = make([]fsm.Ending, fsm.StepMax+1)
	if _, err := m.Apply(1,
		codec.AppendEntry(nil, 1,
			[][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{&fsm.Expire{}}})})); err != nil {
		t.Fatal(err)
	}
	if len(m.Endings()) != 0 || cap(m.endings) > fsm.StepMax {
		t.Errorf("%d endings with room for %d", len(m.endings), cap(m.endings))
	}
}
