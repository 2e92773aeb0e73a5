package scheduler

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

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
