package machine

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// TestActivityOfARestore: what a restore brings is not counted, what comes after it is.
func TestActivityOfARestore(t *testing.T) {
	const start = fsm.Time(1_800_000_000_000_000_000)
	put := &fsm.Put{Queue: "a", Partitions: 1}
	source := New(fsm.Config{})
	lately(t, source, start, "a", put, put)
	records, _, err := readBackup(backupBytes(t, source))
	if err != nil {
		t.Fatal(err)
	}
	records = slices.DeleteFunc(records, func(r fsm.BackupRecord) bool {
		return r.Kind != fsm.BackupQueue && r.Kind != fsm.BackupJob
	})
	m := New(fsm.Config{})
	got := lately(t, m, start, "a", &fsm.Import{Step: fsm.ImportBegin}, &fsm.Import{
		Step: fsm.ImportRecords, Sequence: 1, Floor: 9, Records: records,
	})
	if *got != (fsm.Recent{Window: fsm.RecentWindow}) {
		t.Errorf("while it is open: %+v", got)
	}
	got = lately(t, m, start, "a", &fsm.Import{Step: fsm.ImportEnd, Total: uint64(len(records))}, put)
	if got.Puts != 1 {
		t.Errorf("a put after it: %+v", got)
	}
}

// TestMinutes: the activity of a queue is counted by minutes of UTC, for an hour, from the restore on.
func TestMinutes(t *testing.T) {
	m, hour := New(fsm.Config{}), 100*fsm.Hour
	do := func(at fsm.Time, commands ...fsm.Command) []fsm.Result {
		t.Helper()
		entry := codec.AppendEntry(nil, at, [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: commands})})
		results, err := m.Apply(m.Index()+1, entry)
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	answer := func(at fsm.Time) fsm.Reading { return m.Answer(&fsm.MinuteQuery{Queue: "q"}, at) }
	put := &fsm.Put{Queue: "q", Partitions: 1}
	ref := func(g fsm.Grant) fsm.Ref { return fsm.Ref{Queue: g.Queue, Serial: g.Serial, Fence: g.Fence} }

	do(hour, put, put, put)
	take := &fsm.Reserve{Queues: []string{"q"}, Max: 2, TTR: 90 * time.Second}
	granted := do(hour.Add(3*time.Millisecond), take)[0].Grants
	do(hour.Add(time.Minute-1), &fsm.Ack{Ref: ref(granted[0])})
	do(hour.Add(61*time.Second), &fsm.Reserve{Queues: []string{"q"}, Max: 1})
	do(hour.Add(2*time.Minute), &fsm.Expire{})
	want := []fsm.QueueMinute{
		{Start: hour, Puts: 3, Grants: 2, Acks: 1, LateP50: 4 * time.Millisecond, LateP99: 4 * time.Millisecond},
		{Start: hour + fsm.Minute, Grants: 1, LateP50: 65536 * time.Millisecond, LateP99: 65536 * time.Millisecond},
		{Start: hour + 2*fsm.Minute, Failures: 2},
	}
	if r := answer(hour.Add(2 * time.Minute)); cmp.Diff(want, r.Minutes) != "" || r.Since != hour-57*fsm.Minute {
		t.Errorf("since %v (-want +got):\n%s", r.Since, cmp.Diff(want, r.Minutes))
	}
	if r := answer(hour.Add(time.Hour)); cmp.Diff(want[1:], r.Minutes) != "" {
		t.Errorf("an hour later (-want +got):\n%s", cmp.Diff(want[1:], r.Minutes))
	}
	if r := answer(hour.Add(3 * time.Hour)); len(r.Minutes) != 0 || r.Since != hour+121*fsm.Minute {
		t.Errorf("three hours later: %v since %v", r.Minutes, r.Since)
	}
	m, err := Restore(fsm.Config{}, bytes.NewReader(snapshotBytes(t, m)))
	if err != nil {
		t.Fatal(err)
	}
	if r := answer(hour.Add(time.Hour)); len(r.Minutes) != 0 || r.Since != hour+2*fsm.Minute {
		t.Errorf("after a restore: %v since %v", r.Minutes, r.Since)
	}
}

// TestMinutesAfterAReset: when the clock is set back, counting begins anew.
func TestMinutesAfterAReset(t *testing.T) {
	m := New(fsm.Config{})
	do := func(at fsm.Time, c fsm.Command) {
		t.Helper()
		entry := codec.AppendEntry(nil, at, [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{c}})})
		if _, err := m.Apply(m.Index()+1, entry); err != nil {
			t.Fatal(err)
		}
	}
	wrong, right := 1000*fsm.Hour, 100*fsm.Hour
	do(wrong, &fsm.Put{Queue: "q", Partitions: 1})
	do(wrong, &fsm.ResetClock{To: right})
	do(right.Add(time.Minute), &fsm.Put{Queue: "q", Partitions: 1})
	r := m.Answer(&fsm.MinuteQuery{Queue: "q"}, right.Add(time.Minute))
	want := []fsm.QueueMinute{{Start: right + fsm.Minute, Puts: 1}}
	if diff := cmp.Diff(want, r.Minutes); diff != "" || r.Since != right {
		t.Errorf("since %v (-want +got):\n%s", r.Since, diff)
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
	if j := ended(m, "twice"); j.State != fsm.Acked || j.Attempt != 2 || *j.End != (fsm.End{At: start}) {
		t.Errorf("after a nack and an ack: %+v", j)
	}
	if j := ended(m, "never"); j.State != fsm.Cancelled || j.Attempt != 0 || j.End.AttemptUnknown {
		t.Errorf("cancelled before it was handed out: %+v", j)
	}
	restored, err := Restore(fsm.Config{}, bytes.NewReader(snapshotBytes(t, m)))
	if err != nil {
		t.Fatal(err)
	}
	if j := ended(restored, "twice"); j.State != fsm.Acked || !j.End.AttemptUnknown {
		t.Errorf("from a snapshot: %+v", j)
	}
	if r := m.Answer(&fsm.JobQuery{Queue: "q", ID: "twice"}, start); len(r.Jobs) != 0 {
		t.Errorf("not asked for: %+v", r)
	}
}
