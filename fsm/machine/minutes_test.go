package machine

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

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

// TestMinutesWithoutRoom: a queue that is not counted for want of room has no minutes that seem to be
// empty.
func TestMinutesWithoutRoom(t *testing.T) {
	m := New(fsm.Config{})
	m.recents.refused = 1
	if r := m.Answer(&fsm.MinuteQuery{Queue: "q"}, 100*fsm.Hour); r.Since != 100*fsm.Hour {
		t.Errorf("since %v, want the present", r.Since)
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
