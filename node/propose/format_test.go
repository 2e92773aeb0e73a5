package propose

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/google/go-cmp/cmp"
)

// TestFormatOfEntries: an entry has the format in which its requests were encoded, and never
// requests of two formats.
func TestFormatOfEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProposer(t, Config{EntriesInFlight: 1})
		b.send(t, 1)
		flying := b.next(t)
		const second = fsm.FirstFormat + 1
		for _, b.format = range []fsm.Format{fsm.FirstFormat, fsm.FirstFormat, second, second, second, fsm.FirstFormat} {
			b.send(t, 1)
		}
		var got []int
		for range 3 {
			flying.fail(outcome.ErrShuttingDown)
			flying = b.next(t)
			got = append(got, int(flying.entry[0]))
		}
		flying.fail(outcome.ErrShuttingDown)
		if diff := cmp.Diff([]int{1, 2, 1}, got); diff != "" {
			t.Errorf("formats of the entries (-want +got):\n%s", diff)
		}
	})
}

// TestFormatsAreRefusedTogether: each waiting caller is answered when a leadership ends, whatever
// the format.
func TestFormatsAreRefusedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProposer(t, Config{EntriesInFlight: 1})
		b.send(t, 1)
		flying := b.next(t)
		var waiting []chan result
		for _, b.format = range []fsm.Format{1, 2, 1} {
			_, answers := b.send(t, 1)
			waiting = append(waiting, answers)
		}
		b.Close(outcome.ErrNoLeader)
		for i, answers := range waiting {
			if len(answers) != 1 || !errors.Is((<-answers).err, outcome.ErrNoLeader) {
				t.Errorf("request %d was not refused", i)
			}
		}
		flying.fail(outcome.ErrNoLeader)
	})
}
