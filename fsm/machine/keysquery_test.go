package machine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// keysOf asks a machine for keys in steps of scan, and returns them by name with the readings.
func keysOf(m *Machine, query fsm.KeysQuery, now fsm.Time) (keys []fsm.Key, readings int) {
	for {
		r := m.Answer(&query, now)
		keys = append(keys, r.Keys...)
		readings++
		if query.From = r.Next; query.From == 0 {
			slices.SortFunc(keys, func(a, b fsm.Key) int { return strings.Compare(a.Name, b.Name) })
			return keys, readings
		}
	}
}

// keyedMachine applies commands at times, each in an entry of its own.
type keyedMachine struct {
	*Machine
	tb  testing.TB
	now fsm.Time
}

func newKeyedMachine(tb testing.TB) *keyedMachine {
	return &keyedMachine{New(fsm.Config{}), tb, 1_800_000_000_000_000_000}
}

func (m *keyedMachine) apply(commands ...fsm.Command) []fsm.Result {
	m.tb.Helper()
	request := codec.AppendRequestIn(nil, fsm.KeysFormat, &fsm.Request{Commands: commands})
	results, err := m.Apply(m.Index()+1, codec.AppendEntryIn(nil, fsm.KeysFormat, m.now, [][]byte{request}))
	if err != nil {
		m.tb.Fatal(err)
	}
	return results
}

func (m *keyedMachine) put(queue, key string, delay time.Duration) {
	m.apply(&fsm.Put{Queue: queue, Partitions: 1, Key: key, Given: fsm.GivenDelay, Delay: delay})
}

func (m *keyedMachine) configure(queue string, s fsm.KeySettings) {
	m.apply(&fsm.Configure{Queue: queue, Partitions: 1, Version: m.Index() + 1, Settings: fsm.Settings{Keys: s}})
}

func (m *keyedMachine) reserve(queue string, most uint32) []fsm.Grant {
	return m.apply(&fsm.Reserve{Queues: []string{queue}, Max: most, TTR: time.Hour})[0].Grants
}

// TestKeysSayWhyTheyAreBlocked has a key for each reason, and for each two the one that comes first.
func TestKeysSayWhyTheyAreBlocked(t *testing.T) {
	m := newKeyedMachine(t)
	start := m.now
	m.configure("q", fsm.KeySettings{Concurrency: 1, Rate: fsm.KeyRate{Count: 1, Per: time.Minute}, HoldOnDead: true})
	for _, key := range []string{"limit", "rate", "dead", "paused"} {
		m.put("q", key, 0)
		m.put("q", key, 0)
	}
	m.put("q", "later", time.Hour)
	grants := m.reserve("q", 10)
	if len(grants) != 4 {
		t.Fatalf("%d jobs were handed out", len(grants))
	}
	for _, g := range grants[1:] {
		ref := fsm.Ref{Queue: "q", Serial: g.Serial, Fence: g.Fence}
		if g == grants[2] || g == grants[3] {
			m.apply(&fsm.Nack{Ref: ref, Dead: true})
		} else {
			m.apply(&fsm.Ack{Ref: ref})
		}
	}
	m.apply(&fsm.PauseKey{Queue: "q", Key: "paused"})
	m.apply(&fsm.PauseKey{Queue: "q", Key: "pausedalone"})
	m.put("q", "", 0)
	m.put("q", "free", 0)
	token := start.Add(time.Minute)
	want := []fsm.Key{
		{Name: "dead", Ready: 1, Dead: 1, NextToken: token, Blocked: fsm.BlockedByDead, HeadDue: start},
		{Name: "free", Ready: 1, HeadDue: start},
		{Name: "later", Delayed: 1},
		{Name: "limit", Ready: 1, Reserved: 1, NextToken: token, Blocked: fsm.BlockedByLimit, HeadDue: start},
		{Name: "paused", Ready: 1, Dead: 1, Paused: true, NextToken: token, Blocked: fsm.BlockedByPause, HeadDue: start},
		{Name: "pausedalone", Paused: true},
		{Name: "rate", Ready: 1, NextToken: token, Blocked: fsm.BlockedByRate, HeadDue: start},
	}
	got, _ := keysOf(m.Machine, fsm.KeysQuery{Queue: "q", Scan: 3}, m.now)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	for i := range want {
		want[i].NextToken = 0
		if want[i].Blocked == fsm.BlockedByRate {
			want[i].Blocked = fsm.NotBlocked
		}
	}
	got, _ = keysOf(m.Machine, fsm.KeysQuery{Queue: "q", Scan: 3}, token)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys when they have tokens (-want +got):\n%s", diff)
	}
}

// TestOrderedKeyWaitsForItsHead: a job that is READY behind a DELAYED one is held back by the order.
func TestOrderedKeyWaitsForItsHead(t *testing.T) {
	m := newKeyedMachine(t)
	m.configure("q", fsm.KeySettings{Ordered: true})
	m.put("q", "a", time.Hour)
	m.put("q", "a", 0)
	head := m.now.Add(time.Hour)
	want := []fsm.Key{{Name: "a", Delayed: 1, Ready: 1, Blocked: fsm.BlockedByOrder, HeadDue: head}}
	if got, _ := keysOf(m.Machine, fsm.KeysQuery{Queue: "q", Scan: 10}, m.now); !cmp.Equal(want, got) {
		t.Errorf("%s", cmp.Diff(want, got))
	}
}

// TestKeysQueryIsBounded: a query looks at no more keys than it may, those of other queues among them,
// and finds all keys of its queue in the end.
func TestKeysQueryIsBounded(t *testing.T) {
	m := newKeyedMachine(t)
	const keys = fsm.KeysScanMax + 100
	for i := range keys {
		m.apply(&fsm.Put{Queue: "q", Partitions: 1, Key: fmt.Sprint("k", i)},
			&fsm.Put{Queue: "other", Partitions: 1, Key: fmt.Sprint("k", i)})
	}
	got, readings := keysOf(m.Machine, fsm.KeysQuery{Queue: "q", Scan: 1 << 30}, m.now)
	if len(got) != keys || readings != 3 {
		t.Errorf("%d keys in %d readings", len(got), readings)
	}
	if got, readings := keysOf(m.Machine, fsm.KeysQuery{Queue: "q", Prefix: "k10", Scan: 1000}, m.now); len(got) != 111 ||
		readings != 9 {
		t.Errorf("%d keys in %d readings", len(got), readings)
	}
	m.apply(&fsm.Purge{Queue: "q", States: fsm.Set(fsm.Ready)})
	m.apply(&fsm.Purge{Queue: "q", States: fsm.Set(fsm.Ready)})
	for query, want := range map[fsm.KeysQuery]int{
		{Queue: "q", Scan: 1000}: 0, {Queue: "other", Scan: 1000, State: fsm.Ready}: keys, {Queue: "none", Scan: 1}: 0,
		{Queue: "other", Scan: 1000, State: fsm.Dead}: 0,
	} {
		if got, _ := keysOf(m.Machine, query, m.now); len(got) != want {
			t.Errorf("%+v: %d keys, want %d", query, len(got), want)
		}
	}
}

// BenchmarkKeysQuery is what one query of KeysScanMax keys takes, which holds up the shard.
func BenchmarkKeysQuery(b *testing.B) {
	m := newKeyedMachine(b)
	m.configure("q", fsm.KeySettings{Rate: fsm.KeyRate{Count: 1, Per: time.Hour}})
	const keys = 200_000
	for i := 0; i < keys; i += 1000 {
		commands := make([]fsm.Command, 1000)
		for k := range commands {
			commands[k] = &fsm.Put{Queue: "q", Partitions: 1, Key: fmt.Sprintf("customer-%07d", i+k)}
		}
		m.apply(commands...)
		m.reserve("q", 500)
	}
	b.ResetTimer()
	read := 0
	query := &fsm.KeysQuery{Queue: "q", Scan: fsm.KeysScanMax}
	for b.Loop() {
		r := m.Answer(query, m.now)
		read += len(r.Keys)
		query.From = r.Next
	}
	b.ReportMetric(float64(read)/float64(b.Elapsed().Milliseconds()+1), "keys/ms")
}

// TestDeleteQueueForgetsKeysInSteps: a queue with more memories of keys than a step goes in two entries,
// on a restored replica as well, and those of other queues stay.
func TestDeleteQueueForgetsKeysInSteps(t *testing.T) {
	t.Parallel()
	const extra = 10
	m := newKeyedMachine(t)
	pauses := []fsm.Command{&fsm.Open{Queue: "other", Partitions: 1}, &fsm.PauseKey{Queue: "other", Key: "k"},
		&fsm.Open{Queue: "q", Partitions: 1}}
	for n := range fsm.StepMax + extra {
		pauses = append(pauses, &fsm.PauseKey{Queue: "q", Key: fmt.Sprint("k", n)})
	}
	m.apply(pauses...)
	replica := &keyedMachine{nil, t, m.now}
	for i, want := range []struct{ keys, queues int }{{extra + 1, 2}, {1, 1}} {
		before, err := Restore(fsm.Config{Seed: 5}, bytes.NewReader(snapshotBytes(t, m.Machine)))
		if err != nil {
			t.Fatal(err)
		}
		replica.Machine = before
		for _, m := range []*keyedMachine{m, replica} {
			r := m.apply(&fsm.DeleteQueue{Queue: "q"})[0]
			if r.Code != fsm.OK || r.More != (want.queues > 1) || m.Stats().Keys != want.keys ||
				m.keys.Paused != want.keys || m.Stats().Queues != want.queues {
				t.Errorf("delete %d: %+v, %d keys and %d pauses are left in %d queues", i, r, m.Stats().Keys,
					m.keys.Paused, m.Stats().Queues)
			}
		}
		if m.Digest() != replica.Digest() {
			t.Errorf("after delete %d the digest is %016x, of a restored replica %016x", i, m.Digest(), replica.Digest())
		}
	}
}
