package propose

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

func TestProposerGathersWhileAnEntryIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProposer(t, Config{EntriesInFlight: 3, EntryBytesMax: 150})
		b.send(t, 1)
		alone := b.next(t)
		many := func(n int) { // of which two fit into an entry
			for range n {
				b.send(t, 20)
			}
		}
		many(2)
		b.none(t) // there may come more
		many(1)
		full := b.next(t)
		b.none(t)
		alone.apply(t, 1)
		b.none(t) // another is in flight
		full.apply(t, 2)
		rest := b.next(t)
		many(5)
		second, third := b.next(t), b.next(t)
		b.none(t)
		for i, f := range []*fakeFuture{rest, second, third} {
			f.apply(t, uint64(i+3)) //nolint:gosec // a few
		}
		b.next(t).apply(t, 6)
		synctest.Wait()
		if !b.Idle() || len(b.entries) > 0 {
			t.Error("something seems to be in flight in the end")
		}
	})
}

// An entry whose callers were given up may never end; what waits behind it does not wait for that.
func TestProposerGoesOnBesideAnEntryThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProposer(t, Config{EntriesInFlight: 2, ProposeTimeout: 10 * time.Second})
		b.send(t, 1)
		stuck := b.next(t)
		b.send(t, 1) // it has waited as long by then
		time.Sleep(9 * time.Second)
		b.none(t)
		time.Sleep(time.Second)
		b.next(t).apply(t, 1)
		stuck.apply(t, 2)
	})
}

// An entry is full of work also where it is short, or if it copies 4 MiB.
func TestProposerTakesMuchWorkForAFullEntry(t *testing.T) {
	reserve := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"q"}, Max: entryCostMax / 4}}}
	for what, work := range map[string]Proposal{
		"reserve": {Request: reserve}, "copy": {Request: &fsm.Request{Commands: reserve.Commands[:0]}, Copies: 1 << 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := startProposer(t, Config{EntriesInFlight: 2})
			b.send(t, 1)
			alone := b.next(t)
			for range 4 {
				b.none(t)
				if err := b.Enqueue(&Proposal{Request: work.Request, Encoded: codec.AppendRequest(nil, work.Request),
					Copies: work.Copies, Complete: func(Reply, error) {}}); err != nil {
					t.Fatal(err)
				}
			}
			full := b.next(t)
			if _, n := b.Waiting(); n > 0 || b.cost > 0 {
				t.Errorf("%s: %d bytes and work of %d are left", what, n, b.cost)
			}
			alone.apply(t, 1)
			full.apply(t, 2)
		})
	}
}
