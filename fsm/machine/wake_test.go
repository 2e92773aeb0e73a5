package machine

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// wakingMachine returns a machine with so many keys whose second job waits for a token, which comes a
// minute later.
func wakingMachine(tb testing.TB, cfg fsm.Config, keys int, fair bool) *keyedMachine {
	tb.Helper()
	m := newKeyedMachine(tb)
	m.Machine = New(cfg)
	m.configure("q", fsm.KeySettings{Rate: fsm.KeyRate{Count: 1, Per: time.Minute}, Fair: fair})
	for from := 0; from < keys; from += 1000 {
		var puts []fsm.Command
		for n := from; n < min(keys, from+1000); n++ {
			put := &fsm.Put{Queue: "q", Partitions: 1, Key: fmt.Sprint("k", n)}
			puts = append(puts, put, put)
		}
		m.apply(puts...)
	}
	if grants := m.reserve("q", uint32(keys)); len(grants) != keys { //nolint:gosec // a few thousand
		tb.Fatalf("%d jobs of %d keys were handed out", len(grants), keys)
	}
	return m
}

// asleep returns how many keys wait for a token, or have one and were not woken.
func (m *keyedMachine) asleep() int { return m.Stats().KeysBlocked[fsm.BlockedByRate] }

// TestEntryWakesAStepOfKeys: the first Reserve of an entry wakes at most WakeMax keys, which is StepMax
// unless it is given, and each later one as many as it asks for. The keys that are
// left count as available all the while.
func TestEntryWakesAStepOfKeys(t *testing.T) {
	t.Parallel()
	for most, cfg := range map[int]fsm.Config{fsm.StepMax: {}, 50: {WakeMax: 50}} {
		const left = 100
		fair := cfg.WakeMax > 0
		m := wakingMachine(t, cfg, most+left, fair)
		m.now = m.now.Add(time.Minute)
		reserve := func(n uint32) fsm.Command { return &fsm.Reserve{Queues: []string{"q"}, Max: n, TTR: time.Hour} }
		granted := 0
		for i, entry := range []struct {
			commands []fsm.Command
			grants   int
			asleep   int
		}{
			{[]fsm.Command{reserve(1)}, 1, left},
			{[]fsm.Command{reserve(1), reserve(left)}, 1 + left, 0},
		} {
			m.apply(entry.commands...)
			granted += entry.grants
			if got := m.asleep(); got != entry.asleep {
				t.Errorf("fair %v: entry %d left %d keys asleep, should leave %d", fair, i, got, entry.asleep)
			}
			if n, _ := m.Available("q", m.now); n != uint64(most+left-granted) { //nolint:gosec // a few thousand
				t.Errorf("fair %v: after entry %d there are %d jobs, of which %d were handed out", fair, i, n, granted)
			}
		}

		m = wakingMachine(t, cfg, most+left, fair)
		m.now = m.now.Add(time.Minute)
		m.apply(reserve(1), reserve(3), reserve(2))
		if got, want := m.asleep(), left-3-2; got != want {
			t.Errorf("fair %v: an entry of three reservations left %d keys asleep, should leave %d", fair, got, want)
		}
	}
}

// TestSnapshotBetweenTwoWakes: a replica that is restored while some of the keys with a token are awake
// goes on as the original does.
func TestSnapshotBetweenTwoWakes(t *testing.T) {
	t.Parallel()
	for _, fair := range []bool{false, true} {
		m := wakingMachine(t, fsm.Config{WakeMax: 50}, 200, fair)
		m.now = m.now.Add(time.Minute)
		m.reserve("q", 10)
		restored, err := Restore(fsm.Config{Seed: 9, WakeMax: 50}, bytes.NewReader(snapshotBytes(t, m.Machine)))
		if err != nil {
			t.Fatal(err)
		}
		replica := &keyedMachine{restored, t, m.now}
		for _, most := range []uint32{50, 0, 3, 100, 50} {
			if m.asleep() != replica.asleep() {
				t.Errorf("fair %v: %d keys are asleep, on the replica %d", fair, m.asleep(), replica.asleep())
			}
			m.reserve("q", most)
			replica.reserve("q", most)
			n, next := m.Available("q", m.now)
			if have, then := replica.Available("q", m.now); have != n || then != next {
				t.Errorf("fair %v: %d jobs until %d, on the replica %d until %d", fair, n, next, have, then)
			}
			if m.Digest() != replica.Digest() {
				t.Fatalf("fair %v: digest %016x, of the replica %016x", fair, m.Digest(), replica.Digest())
			}
		}
	}
}
