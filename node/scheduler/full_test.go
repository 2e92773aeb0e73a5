package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// TestFullQueueWithABacklog: a full queue is tried with one command, and gets more only as they fit. So
// few commands are refused, also while its room grows slowly, and what is too late is missed in time.
func TestFullQueueWithABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		d.apply(&fsm.Configure{Queue: "full", Partitions: 1, Version: 1, Settings: fsm.Settings{MaxJobs: 1}})
		const all, past = 100, 200
		begins := now()/second*second - past*second
		for i := range all {
			d.apply(&fsm.PutSchedule{
				Queue: "full", Partitions: 1, Name: fmt.Sprintf("s%d", i), Next: begins,
				Policy: fsm.SchedulePolicy{CatchUp: fsm.CatchUpAll},
			})
		}
		d.apply(&fsm.PutSchedule{
			Queue: "full", Partitions: 1, Name: "once", Next: now(), Spec: fsm.ScheduleSpec{Cron: "once"},
			Policy: fsm.SchedulePolicy{Window: 5 * time.Second},
		})
		d.lead(10*time.Second + 500*time.Millisecond)
		if n := d.jobs("full"); n != 1 || d.refused > commandsMax+20 {
			t.Errorf("%d jobs, %d commands were refused", n, d.refused)
		}
		once := d.m.Answer(&fsm.ScheduleQuery{Queue: "full", Name: "once"}, d.now()).Schedules[0]
		if once.Counts.Missed != 1 {
			t.Errorf("the firing whose window has ended: %+v", once.Counts)
		}
		d.refused = 0
		go func() {
			for room := range uint64(30) {
				settings := fsm.Settings{MaxJobs: 2 + room}
				d.apply(&fsm.Configure{Queue: "full", Partitions: 1, Version: 2 + room, Settings: settings})
				time.Sleep(time.Second / 3)
			}
		}()
		d.lead(12 * time.Second)
		if n := d.jobs("full"); n != 31 || d.refused > commandsMax+60 {
			t.Errorf("%d jobs as room grew slowly, %d commands were refused", n, d.refused)
		}
		d.apply(&fsm.Configure{Queue: "full", Partitions: 1, Version: 40})
		d.lead(5 * time.Second)
		if n, want := d.jobs("full"), uint64(now().Sub(begins)/time.Second+1)*all; n != want {
			t.Errorf("%d jobs once the queue had room again, want %d", n, want)
		}
	})
}

// TestFullQueueMissesInTime: what is too late for a full queue counts as missed while the queue is full, also
// of schedules that have later times.
func TestFullQueueMissesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		d.apply(&fsm.Configure{Queue: "full", Partitions: 1, Version: 1, Settings: fsm.Settings{MaxJobs: 1}})
		names := []string{"a", "b", "c"}
		for _, name := range names {
			d.apply(&fsm.PutSchedule{
				Queue: "full", Partitions: 1, Name: name, Next: everySecond{}.Next(d.now()),
				Policy: fsm.SchedulePolicy{CatchUp: fsm.CatchUpAll, Window: 5 * time.Second},
			})
		}
		const seconds = 30
		d.lead(seconds*time.Second + 500*time.Millisecond)
		for _, name := range names {
			s := d.m.Answer(&fsm.ScheduleQuery{Queue: "full", Name: name}, d.now()).Schedules[0]
			// The window, the second for which a full queue is held, and one round more.
			if n := s.Counts.Missed + s.Counts.Fired; n < seconds-7 {
				t.Errorf("%s: %d of %d times are dealt with", name, n, seconds)
			}
		}
		if n := d.jobs("full"); n != 1 || d.refused > 2*seconds {
			t.Errorf("%d jobs, %d commands were refused", n, d.refused)
		}
	})
}

// TestFullQueueForLargeJobs: a job that is too large for its queue does not keep smaller ones out of it.
func TestFullQueueForLargeJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		d.apply(&fsm.Configure{Queue: "q", Partitions: 1, Version: 1, Settings: fsm.Settings{MaxBytes: 170_000}})
		for _, name := range []string{"large1", "large2", "small1", "small2", "small3"} {
			size := 10
			if strings.HasPrefix(name, "large") {
				size = 50_000
			}
			d.apply(&fsm.PutSchedule{
				Queue: "q", Partitions: 1, Name: name, Next: everySecond{}.Next(d.now()), Job: fsm.Put{Body: make([]byte, size)},
				Policy: fsm.SchedulePolicy{CatchUp: fsm.CatchUpAll},
			})
		}
		d.lead(20*time.Second + 500*time.Millisecond)
		if n := d.jobs("q"); n != 1+3*20 || d.refused > 60 {
			t.Errorf("%d jobs, %d commands were refused", n, d.refused)
		}
	})
}

// TestMissedFiringsMakeNoRoom: a round that only counts missed firings says nothing about the room of a
// queue.
func TestMissedFiringsMakeNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		fill(d)
		begins := d.now()
		put := func(name string, next fsm.Time, spec fsm.ScheduleSpec, window time.Duration) {
			d.apply(&fsm.PutSchedule{
				Queue: "full", Partitions: 1, Name: name, Next: next, Spec: spec,
				Policy: fsm.SchedulePolicy{Window: window},
			})
		}
		put("first", begins, fsm.ScheduleSpec{Cron: "once"}, time.Second) // refused twice, and missed
		for i := range 300 {
			put(fmt.Sprintf("s%d", i), begins+3*second, fsm.ScheduleSpec{Cron: "once"}, 0)
		}
		go func() {
			time.Sleep(2500 * time.Millisecond)
			put("past", begins-50_000*second, fsm.ScheduleSpec{Cron: "ends", End: begins - 3600*second}, time.Second)
		}()
		d.lead(3500 * time.Millisecond)
		if d.refused > 5 { // one each time that the queue is tried
			t.Errorf("%d commands were refused", d.refused)
		}
	})
}

// TestSkippedFiringsMakeRoom: the firings that a schedule skips need no room, so a full queue does not make
// them take a round each.
func TestSkippedFiringsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		const skipping = 300
		d.apply(&fsm.Configure{Queue: "full", Partitions: 1, Version: 1, Settings: fsm.Settings{MaxJobs: skipping}})
		begins := everySecond{}.Next(d.now())
		for i := range skipping {
			d.apply(&fsm.PutSchedule{
				Queue: "full", Partitions: 1, Name: fmt.Sprintf("s%d", i), Next: begins,
				Policy: fsm.SchedulePolicy{Overlap: fsm.OverlapSkip},
			})
		}
		d.apply(&fsm.PutSchedule{Queue: "full", Partitions: 1, Name: "z", Next: begins})
		const seconds = 5
		d.lead(seconds*time.Second + 500*time.Millisecond)
		if n := d.jobs("full"); n != skipping || d.proposed > 20*seconds {
			t.Errorf("%d jobs, %d requests", n, d.proposed)
		}
	})
}

// TestFullQueuePlans: a schedule whose next firing a leader has to find needs no room for that.
func TestFullQueuePlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		fill(d)
		d.put("full", "a", fsm.ScheduleSpec{})
		d.lead(1500 * time.Millisecond)
		ahead := d.now() + 3600*second
		d.apply(&fsm.PutSchedule{Queue: "full", Partitions: 1, Name: "ahead", NextAfter: ahead, Next: ahead + second})
		d.lead(3 * time.Second)
		s := d.m.Answer(&fsm.ScheduleQuery{Queue: "full", Name: "ahead"}, d.now()).Schedules[0]
		if s.Replan {
			t.Errorf("its next firing is not known: %+v", s)
		}
	})
}

// fill makes a queue with room for one job, and puts that.
func fill(d *shard) {
	d.apply(&fsm.Configure{Queue: "full", Partitions: 1, Version: 1, Settings: fsm.Settings{MaxJobs: 1}},
		&fsm.Put{Queue: "full", Partitions: 1})
}

// TestNamespaceIsHeld: when the quota of a namespace refuses a request, the other queues of the namespace
// are not tried one after the other.
func TestNamespaceIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		begins := everySecond{}.Next(d.now())
		for i := range 50 {
			d.apply(&fsm.PutSchedule{
				Queue: fmt.Sprintf("short1/q%d", i), Partitions: 1, Name: "s", Next: begins + fsm.Time(i)*second/50,
			})
		}
		d.lead(begins.Sub(d.now()) + 10*time.Second)
		if d.proposed < 4 || d.proposed > 6 { // it waits for a second, and is held for one
			t.Errorf("%d requests in ten seconds", d.proposed)
		}
	})
}

// TestQuotasThatFail: while namespaces without quota have their firings refused one after the other, the
// schedules that are held are not looked at each time.
func TestQuotasThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newShard(t)
		fill(d)
		const full = 10_000
		for i := range full {
			d.put("full", fmt.Sprintf("s%d", i), fsm.ScheduleSpec{})
		}
		begins := everySecond{}.Next(d.now())
		for i := range 100 {
			d.apply(&fsm.PutSchedule{
				Queue: fmt.Sprintf("short%d/q", i), Partitions: 1, Name: "s", Next: begins + fsm.Time(i)*second/200,
			})
		}
		d.lead(begins.Sub(d.now()) + 2*time.Second)
		if d.looked > 50*full { // at most every 100 ms, and when the queue is tried
			t.Errorf("it looked at %d schedules", d.looked)
		}
	})
}
