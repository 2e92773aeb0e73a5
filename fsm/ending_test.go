package fsm

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestEndings: each entry tells which jobs it has ended, with their attempts and the time since their put; a repeated request has ended nothing.
func TestEndings(t *testing.T) {
	m := New(Config{})
	index := uint64(0)
	apply := func(at time.Duration, id string, commands ...Command) []Result {
		t.Helper()
		index++
		results, err := m.Apply(index, AppendEntry(nil, Time(time.Hour+at), [][]byte{AppendRequest(nil, &Request{Caller: "c", ID: id, Commands: commands})}))
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	expect := func(what string, want ...Ending) {
		t.Helper()
		if diff := cmp.Diff(append([]Ending{}, want...), append([]Ending{}, m.Endings()...)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
	reserve := func(at time.Duration, queue string) Ref {
		t.Helper()
		g := apply(at, "", &Reserve{Queues: []string{queue}, Max: 1, TTR: time.Minute})[0].Grants
		if len(g) != 1 {
			t.Fatalf("%d grants", len(g))
		}
		return Ref{Queue: queue, Serial: g[0].Serial, Fence: g[0].Fence}
	}
	put := func(queue string, attempts uint32) Command {
		return &Put{Queue: queue, Partitions: 1, Given: GivenMaxAttempts, MaxAttempts: attempts}
	}

	apply(0, "", put("acked", 3), put("died", 1), put("lapses", 1), &Put{Queue: "expires", Partitions: 1, Given: GivenTTL, TTL: 10 * time.Minute})
	expect("puts")
	apply(time.Second, "", &Nack{Ref: reserve(time.Second, "acked")})
	expect("a nack after which the job goes on")
	ack := &Ack{Ref: reserve(2*time.Second, "acked")}
	apply(5*time.Second, "request", ack)
	expect("an ack", Ending{"acked", Acked, 2, 5 * time.Second})
	apply(6*time.Second, "request", ack)
	expect("a repeated request")
	apply(6*time.Second, "", ack)
	expect("an ack of what is acked")
	lapsing := reserve(7*time.Second, "lapses")
	apply(8*time.Second, "", &Nack{Ref: reserve(8*time.Second, "died")})
	expect("a last nack", Ending{"died", Dead, 1, 8 * time.Second})
	apply(2*time.Minute, "", &Ack{Ref: lapsing})
	expect("a lease that has lapsed", Ending{"lapses", Dead, 1, 2 * time.Minute})
	apply(3*time.Minute, "", &Configure{Queue: "expires", Partitions: 1, Version: 1, Settings: Settings{ExpireToDead: true}})
	apply(11*time.Minute, "", &Expire{})
	expect("a time to live", Ending{"expires", Dead, 0, 11 * time.Minute})
	apply(12*time.Minute, "", &Expire{})
	expect("nothing")
}

// TestEndingsGiveMemoryBack after an entry that has ended very many jobs.
func TestEndingsGiveMemoryBack(t *testing.T) {
	m := New(Config{})
	m.endings = make([]Ending, StepMax+1)
	if _, err := m.Apply(1, AppendEntry(nil, 1, [][]byte{AppendRequest(nil, &Request{Commands: []Command{&Expire{}}})})); err != nil {
		t.Fatal(err)
	}
	if len(m.Endings()) != 0 || cap(m.endings) > StepMax {
		t.Errorf("%d endings with room for %d", len(m.endings), cap(m.endings))
	}
}
