package activity

import (
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
)

const start = fsm.Time(1_800_000_000_000_000_000) // the begin of a slot and of a minute

// queue is a queue with its counters.
type queue struct {
	Queue
	counters fsm.Counters
}

// put counts one more put.
func (q *queue) put(s *Shard, now fsm.Time) {
	q.counters.Put++
	s.Count(&q.Queue, &q.counters, now)
}

// TestRecent: the window has what happened within the last minute, and of the oldest slot a part.
func TestRecent(t *testing.T) {
	s, q := &Shard{}, queue{counters: fsm.Counters{Put: 5, Granted: 4, Acked: 3}}
	q.Queue = Since(&q.counters)
	q.counters = fsm.Counters{Put: 15, Granted: 8, Acked: 5}
	s.Count(&q.Queue, &q.counters, start.Add(time.Second))
	s.Count(&q.Queue, &q.counters, start.Add(2*time.Second))
	s.CountFirst(&q.Queue, start, start.Add(4*time.Second))
	s.CountFirst(&q.Queue, start.Add(time.Hour), start.Add(5*time.Second)) // due later than it is leased
	late := [fsm.LateBuckets]uint64{0: 1, 12: 1}
	whole := &fsm.Recent{Window: fsm.RecentWindow, Puts: 10, Grants: 4, Acks: 2, Late: late, LateMax: 4 * time.Second}
	half := *whole
	half.Puts, half.Grants, half.Acks = 5, 2, 1
	for after, want := range map[time.Duration]*fsm.Recent{
		5 * time.Second: whole, time.Minute: whole, 65 * time.Second: &half,
		70 * time.Second: {Window: fsm.RecentWindow}, time.Hour: {Window: fsm.RecentWindow},
	} {
		if diff := cmp.Diff(want, s.Recent(&q.Queue, start.Add(after))); diff != "" {
			t.Errorf("after %v: -want +got:\n%s", after, diff)
		}
	}
}

// TestRecentBefore: at a time before it was counted, activity is not shown.
func TestRecentBefore(t *testing.T) {
	s, q := &Shard{}, queue{}
	q.put(s, start)
	if got := s.Recent(&q.Queue, start-1); got.Puts != 0 {
		t.Errorf("%d puts, want none", got.Puts)
	}
}

// TestSkip: what is skipped is in no figure, what follows is.
func TestSkip(t *testing.T) {
	s, q := &Shard{}, queue{}
	q.counters.Put = 7
	q.Skip(&q.counters)
	if s.Count(&q.Queue, &q.counters, start); s.Len() != 0 {
		t.Error("a queue without activity is counted")
	}
	q.put(s, start)
	if got := s.Recent(&q.Queue, start); got.Puts != 1 {
		t.Errorf("%d puts, want the one after the skipped ones", got.Puts)
	}
}

// TestBound: of too many queues some are not counted, and say so; idle ones make room, once a slot.
func TestBound(t *testing.T) {
	s, queues := &Shard{}, make([]queue, QueuesMax+2)
	for i := range QueuesMax {
		queues[i].put(s, start)
	}
	more := &queues[QueuesMax]
	if more.put(s, start); s.Len() != QueuesMax || s.Recent(&more.Queue, start) != nil {
		t.Errorf("%d are counted, the one too many shows %+v", s.Len(), s.Recent(&more.Queue, start))
	}
	if list, since := s.Minutes(&more.Queue, start); list != nil || since != start {
		t.Errorf("one too many has the minutes %+v since %v, want the present", list, since)
	}
	if got := s.Recent(&more.Queue, start.Add(70*time.Second)); got == nil || got.Puts != 0 {
		t.Errorf("a window after it was refused: %+v", got)
	}
	last := start.Add(time.Second)
	if queues[7].put(s, last); s.Recent(&queues[7].Queue, last).Puts != 2 {
		t.Errorf("one that is counted: %+v", s.Recent(&queues[7].Queue, last))
	}
	last = start.Add(65 * time.Second)
	queues[8].put(s, last)
	last = start.Add(70 * time.Second)
	more.put(s, last)
	if s.Len() != 2 || s.Recent(&more.Queue, last).Puts != 1 || s.Recent(&queues[8].Queue, last).Puts != 1 {
		t.Errorf("after the others were idle %d are counted, the new one shows %+v", s.Len(), s.Recent(&more.Queue, last))
	}
	if _, since := s.Minutes(&more.Queue, last); since != last {
		t.Errorf("its minutes are known since %v, want %v: it may have had counts before", since, last)
	}
	if _, since := s.Minutes(nil, last); since != last {
		t.Errorf("those of a queue that is not there are known since %v, want %v", since, last)
	}
}

// TestDrop: a queue that is dropped makes room, and has no figures.
func TestDrop(t *testing.T) {
	s, a, b := &Shard{}, queue{}, queue{}
	s.Drop(&a.Queue) // it has no counts
	a.put(s, start)
	b.put(s, start)
	s.Drop(&a.Queue)
	if s.Len() != 1 || s.Recent(&a.Queue, start).Puts != 0 || s.Recent(&b.Queue, start).Puts != 1 {
		t.Errorf("%d are counted: %+v and %+v", s.Len(), s.Recent(&a.Queue, start), s.Recent(&b.Queue, start))
	}
}

// TestMinutes: minutes have their gains and quantiles, for an hour.
func TestMinutes(t *testing.T) {
	s, q := &Shard{}, queue{counters: fsm.Counters{Put: 1}}
	q.Queue = Since(&q.counters)
	s.Restart(start)
	q.counters = fsm.Counters{Put: 4, Granted: 100, Acked: 1, Nacked: 1, Lapsed: 2}
	s.Count(&q.Queue, &q.counters, start)
	for i := range 100 {
		late := 3 * time.Millisecond
		if i >= 98 {
			late = time.Second
		}
		s.CountFirst(&q.Queue, start, start.Add(late))
	}
	q.put(s, start+2*fsm.Minute)
	s.CountFirst(&q.Queue, start+2*fsm.Minute, (start + 2*fsm.Minute).Add(3*time.Millisecond))
	want := []fsm.QueueMinute{
		{
			Start: start, Puts: 3, Grants: 100, Acks: 1, Failures: 3,
			LateP50: 4 * time.Millisecond, LateP99: 1024 * time.Millisecond,
		},
		{Start: start + 2*fsm.Minute, Puts: 1, LateP50: 4 * time.Millisecond, LateP99: 4 * time.Millisecond},
	}
	for _, step := range []struct {
		after, since fsm.Time
		want         []fsm.QueueMinute
	}{
		{2 * fsm.Minute, 0, want}, {59 * fsm.Minute, 0, want}, {60 * fsm.Minute, fsm.Minute, want[1:]},
		{62 * fsm.Minute, 3 * fsm.Minute, nil},
	} {
		list, since := s.Minutes(&q.Queue, start+step.after)
		if diff := cmp.Diff(step.want, list); diff != "" || since != start+step.since {
			t.Errorf("after %v since %v: -want +got:\n%s", step.after, since-start, diff)
		}
	}
	if _, since := s.Minutes(nil, start+fsm.Minute); since != start {
		t.Errorf("those of a queue without activity are known since %v, want %v", since, start)
	}
	s.Restart(start - fsm.Hour)
	if list, since := s.Minutes(&q.Queue, start); len(list) != 0 || since != start-59*fsm.Minute || s.Len() != 0 {
		t.Errorf("after the clock was set back: %+v since %v", list, since)
	}
	if got := s.Recent(&q.Queue, start-fsm.Hour); got != nil {
		t.Errorf("when the clock is set back nothing is known, not %+v", got)
	}
}

// TestQueueBytes: the memory budget counts on what the counts of a queue take.
func TestQueueBytes(t *testing.T) {
	if n := unsafe.Sizeof(counts{}); n != QueueBytes {
		t.Errorf("the counts of a queue take %d bytes, want %d", n, QueueBytes)
	}
}
