package machine

import (
	"bytes"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// lately applies commands at a time and returns what the queue did until then.
func lately(t *testing.T, m *Machine, now fsm.Time, queue string, commands ...fsm.Command) *fsm.Recent {
	t.Helper()
	entry := codec.AppendEntry(nil, now, [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: commands})})
	if _, err := m.Apply(m.Index()+1, entry); err != nil {
		t.Fatal(err)
	}
	return recentOf(t, m, queue, now)
}

func recentOf(t *testing.T, m *Machine, queue string, now fsm.Time) *fsm.Recent {
	t.Helper()
	r := m.Answer(&fsm.QueueQuery{Queue: queue}, now)
	if len(r.Queues) != 1 {
		t.Fatalf("there is no queue %s", queue)
	}
	return r.Queues[0].Recent
}

// TestRecent: every replica tells what a queue did within the last minute, by shard time.
func TestRecent(t *testing.T) {
	const start = fsm.Time(1_800_000_000_000_000_000) // the begin of a slot
	at := func(d time.Duration) fsm.Time { return start.Add(d) }
	m := New(fsm.Config{})
	var got *fsm.Recent
	for i := range 10 {
		got = lately(t, m, at(time.Second), "a", &fsm.Put{Queue: "a", Partitions: 1, ID: fmt.Sprint(i)})
	}
	if got.Puts != 10 || got.Grants != 0 || got.Window != fsm.RecentWindow {
		t.Fatalf("after ten puts: %+v", got)
	}
	got = lately(t, m, at(5*time.Second), "a", &fsm.Reserve{
		Queues: []string{"a"}, Max: 3,
	}, &fsm.Put{Queue: "a", Partitions: 1, ID: "0"})
	if got.Puts != 10 || got.Grants != 3 || got.Late[12] != 3 || got.LateMax != 4*time.Second {
		t.Fatalf("after three grants that were 4 s late, and a put that made no job: %+v", got)
	}
	if got := recentOf(t, m, "a", at(59*time.Second)); got.Puts != 10 || got.Grants != 3 {
		t.Errorf("within the minute: %+v", got)
	}
	if got := recentOf(t, m, "a", at(65*time.Second)); got.Puts != 5 || got.Grants != 1 {
		t.Errorf("when half of the slot is older than a minute: %+v", got)
	}
	if got := recentOf(t, m, "a", at(70*time.Second)); *got != (fsm.Recent{Window: fsm.RecentWindow}) {
		t.Errorf("after it: %+v", got)
	}
	// A replica that is restored knows what it applied itself.
	got = lately(t, m, at(100*time.Second), "a", &fsm.Put{Queue: "a", Partitions: 1, ID: "x"})
	restored, err := Restore(fsm.Config{}, bytes.NewReader(snapshotBytes(t, m)))
	if err != nil {
		t.Fatal(err)
	}
	if got.Puts != 1 || recentOf(t, restored, "a", at(100*time.Second)) != nil {
		t.Errorf("at the restore: %+v and %+v", got, recentOf(t, restored, "a", at(100*time.Second)))
	}
	got = lately(t, restored, at(110*time.Second), "a", &fsm.Put{Queue: "a", Partitions: 1, ID: "y"})
	if got.Puts != 1 || got.Window != 10*time.Second {
		t.Errorf("10 s after the restore: %+v", got)
	}
}

// TestRecentIsBounded: of too many queues some are not counted, and say so; idle ones make room.
func TestRecentIsBounded(t *testing.T) {
	const start = fsm.Time(1_800_000_000_000_000_000)
	m := New(fsm.Config{})
	put := func(now fsm.Time, i int) *fsm.Recent {
		name := fmt.Sprint("q", i)
		return lately(t, m, now, name, &fsm.Put{Queue: name, Partitions: 1})
	}
	for i := range recentQueuesMax {
		put(start, i)
	}
	if got := put(start, recentQueuesMax); got != nil {
		t.Errorf("one too many: %+v", got)
	}
	if got := put(start.Add(time.Second), 7); got == nil || got.Puts != 2 {
		t.Errorf("one that is counted: %+v", got)
	}
	if got := put(start.Add(80*time.Second), recentQueuesMax); got == nil || got.Puts != 1 || len(m.recents.queues) != 1 {
		t.Errorf("after the others were idle: %+v, %d are counted", got, len(m.recents.queues))
	}
}

// TestAttemptsOfAnEndedJob: readers are told them as long as the machine saw the job end.
func TestAttemptsOfAnEndedJob(t *testing.T) {
	const start = fsm.Time(1_800_000_000_000_000_000)
	m := New(fsm.Config{})
	apply := func(commands ...fsm.Command) []fsm.Result {
		t.Helper()
		results, err := m.Apply(m.Index()+1,
			codec.AppendEntry(nil, start, [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: commands})}))
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	apply(&fsm.Put{Queue: "q", Partitions: 1, ID: "twice"})
	for attempt := range 2 {
		g := apply(&fsm.Reserve{Queues: []string{"q"}, Max: 1})[0].Grants[0]
		ref := fsm.Ref{Queue: "q", Serial: g.Serial, Fence: g.Fence}
		if attempt == 0 {
			apply(&fsm.Nack{Ref: ref})
		} else {
			apply(&fsm.Ack{Ref: ref})
		}
	}
	apply(&fsm.Put{Queue: "q", Partitions: 1, ID: "never"})
	apply(&fsm.Cancel{Queue: "q", ID: "never"})
	ended := func(m *Machine, id string) fsm.Job {
		t.Helper()
		r := m.Answer(&fsm.JobQuery{Queue: "q", ID: id, Ended: true}, start)
		if len(r.Jobs) != 1 {
			t.Fatalf("%s: %+v", id, r)
		}
		return r.Jobs[0]
	}
	if j := ended(m, "twice"); j.State != fsm.Acked || j.Attempt != 2 || j.AttemptUnknown || j.Ended != start {
		t.Errorf("after a nack and an ack: %+v", j)
	}
	if j := ended(m, "never"); j.State != fsm.Cancelled || j.Attempt != 0 || j.AttemptUnknown {
		t.Errorf("cancelled before it was handed out: %+v", j)
	}
	restored, err := Restore(fsm.Config{}, bytes.NewReader(snapshotBytes(t, m)))
	if err != nil {
		t.Fatal(err)
	}
	if j := ended(restored, "twice"); j.State != fsm.Acked || !j.AttemptUnknown {
		t.Errorf("from a snapshot: %+v", j)
	}
	if r := m.Answer(&fsm.JobQuery{Queue: "q", ID: "twice"}, start); len(r.Jobs) != 0 {
		t.Errorf("not asked for: %+v", r)
	}
}

func TestSizeOfRecentCounts(t *testing.T) {
	if n := unsafe.Sizeof(recent{}); n != recentBytes {
		t.Errorf("the recent counts of a queue take %d bytes, the memory budget counts on %d", n, recentBytes)
	}
}
