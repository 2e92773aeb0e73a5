package schedules

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
)

// everySecond is a calendar of every whole second from 1 s on, up to last.
type everySecond struct {
	last fsm.Time
	data string
}

const second = fsm.Time(time.Second)

func (c everySecond) Next(t fsm.Time) fsm.Time {
	next := (t/second + 1) * second
	if c.last != 0 && next > c.last {
		return 0
	}
	return next
}

func (everySecond) Due(nominal fsm.Time) fsm.Time { return nominal + 7 }
func (c everySecond) ZoneData() string            { return c.data }

// step is one command of a plan, in short.
type step struct {
	Missed          uint64
	LastMissed, Put fsm.Time
	Next            fsm.Time
}

// apply carries out a plan as a machine does, and fails if a command does not go on.
func apply(t *testing.T, s *fsm.Schedule, now fsm.Time, plan []*fsm.Fire) (steps []step) {
	t.Helper()
	for _, c := range plan {
		if !GoesOn(s, c, now) {
			t.Fatalf("%+v does not go on from %+v", c, s)
		}
		MoveOn(s, c, now)
		if c.Put != 0 {
			if c.Due != c.Put+7 {
				t.Errorf("the job of %d is due at %d", c.Put, c.Due)
			}
			Count(s, fsm.Fired, c.Put, now)
		}
		steps = append(steps, step{c.Missed, c.LastMissed / second, c.Put / second, c.Next / second})
	}
	return steps
}

func TestPlan(t *testing.T) {
	for name, tc := range map[string]struct {
		policy fsm.SchedulePolicy
		now    fsm.Time // in seconds; the schedule was to fire at second 10
		last   fsm.Time
		want   []step
	}{
		"in time":         {now: 10, want: []step{{0, 0, 10, 11}}},
		"the latest":      {now: 14, want: []step{{4, 13, 14, 15}}},
		"the last of all": {now: 10, last: 10, want: []step{{0, 0, 10, 0}}},
		"all": {fsm.SchedulePolicy{CatchUp: fsm.CatchUpAll}, 12, 0, []step{
			{0, 0, 10, 11}, {0, 0, 11, 12}, {0, 0, 12, 13},
		}},
		"all of the window": {
			fsm.SchedulePolicy{CatchUp: fsm.CatchUpAll, Window: time.Second}, 13, 0, []step{{2, 11, 12, 13}, {0, 0, 13, 14}},
		},
		"none is in the window": {
			fsm.SchedulePolicy{CatchUp: fsm.CatchUpAll, Window: time.Second}, 20, 12, []step{{3, 12, 0, 0}},
		},
		"the latest is too late":   {fsm.SchedulePolicy{Window: time.Second}, 20, 12, []step{{3, 12, 0, 0}}},
		"none, and a little late":  {fsm.SchedulePolicy{CatchUp: fsm.CatchUpNone}, 12, 0, []step{{2, 11, 12, 13}}},
		"none, and more than that": {fsm.SchedulePolicy{CatchUp: fsm.CatchUpNone}, 80, 12, []step{{3, 12, 0, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fsm.Schedule{Serial: 1, Next: 10 * second, Policy: tc.policy}
			plan, _ := Plan(s, tc.now*second, everySecond{last: tc.last * second}, 100)
			if diff := cmp.Diff(tc.want, apply(t, s, tc.now*second, plan)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPlanIsBounded: a long outage is caught up with in several plans, and no nominal time is left out
// or comes twice.
func TestPlanIsBounded(t *testing.T) {
	for _, policy := range []fsm.CatchUp{fsm.CatchUpLatest, fsm.CatchUpAll, fsm.CatchUpNone} {
		s := &fsm.Schedule{Serial: 1, Next: 10 * second, Policy: fsm.SchedulePolicy{CatchUp: policy}}
		now := 30_000 * second
		for s.Next <= now {
			plan, lags := Plan(s, now, everySecond{}, 10_000)
			if len(plan) == 0 || len(plan) > planJobsMax+1 {
				t.Fatalf("policy %d: a plan of %d commands", policy, len(plan))
			}
			if apply(t, s, now, plan); lags != (s.Next <= now) {
				t.Errorf("policy %d: next %d of %d, it lags: %v", policy, s.Next, now, lags)
			}
		}
		if n := s.Counts.Fired + s.Counts.Missed; n != 29_991 || s.Next != now+second || s.Last != now {
			t.Errorf("policy %d: %d firings, last %d, next %d", policy, n, s.Last, s.Next)
		}
		if fired := s.Counts.Fired; (policy == fsm.CatchUpAll) != (fired == 29_991) || fired == 0 {
			t.Errorf("policy %d: %d jobs", policy, fired)
		}
	}
}

// TestPlanAgain: with other time-zone data, or if the next time is not known, the leader finds it
// first.
func TestPlanAgain(t *testing.T) {
	s := &fsm.Schedule{Serial: 1, Next: 10*second + 5, ZoneData: "a", Last: 8 * second}
	plan, _ := Plan(s, 11*second, everySecond{data: "b"}, 100)
	if want := []step{{0, 0, 0, 9}}; !slices.Equal(apply(t, s, 11*second, plan), want) || s.ZoneData != "b" {
		t.Errorf("other data: %+v, data %q", plan[0], s.ZoneData)
	}
	s.Next, s.Replan = 8*second, true
	plan, _ = Plan(s, 11*second, everySecond{data: "b"}, 100)
	if want := []step{{0, 0, 0, 9}}; !slices.Equal(apply(t, s, 11*second, plan), want) || s.Replan {
		t.Errorf("not known: %+v", plan[0])
	}
	s.ZoneData = "c" // the same time by other data
	plan, _ = Plan(s, 9*second, everySecond{data: "d"}, 100)
	if want := []step{{0, 0, 9, 10}}; !slices.Equal(apply(t, s, 9*second, plan), want) || s.ZoneData != "d" {
		t.Errorf("the same time: %+v", plan[0])
	}
}

// TestFiresOnce: a Fire does not apply twice, out of order, early, or to another schedule.
func TestFiresOnce(t *testing.T) {
	now := 20 * second
	good := fsm.Fire{
		Serial: 3, Version: 4, Nominal: 10 * second, Missed: 1, LastMissed: 10 * second, Put: 11 * second, Next: 12 * second,
	}
	for name, change := range map[string]func(*fsm.Schedule, *fsm.Fire){
		"another schedule": func(_ *fsm.Schedule, c *fsm.Fire) { c.Serial++ },
		"another rule":     func(s *fsm.Schedule, _ *fsm.Fire) { s.Version, s.RuleVersion = 5, 5 },
		"a later content":  func(_ *fsm.Schedule, c *fsm.Fire) { c.Version++ },
		"a dropped one": func(s *fsm.Schedule, c *fsm.Fire) {
			s.Pending, c.Missed, c.LastMissed, c.Put = true, 0, 0, 0
		},
		"another firing":      func(_ *fsm.Schedule, c *fsm.Fire) { c.Nominal++ },
		"paused":              func(s *fsm.Schedule, _ *fsm.Fire) { s.Paused = true },
		"ended":               func(s *fsm.Schedule, c *fsm.Fire) { s.Next, c.Nominal = 0, 0 },
		"early":               func(_ *fsm.Schedule, c *fsm.Fire) { c.Put = now + 1; c.Next = now + 2 },
		"missed early":        func(_ *fsm.Schedule, c *fsm.Fire) { c.LastMissed, c.Put, c.Next = now+1, 0, now+2 },
		"missed before it":    func(_ *fsm.Schedule, c *fsm.Fire) { c.LastMissed-- },
		"no number of missed": func(_ *fsm.Schedule, c *fsm.Fire) { c.Missed = 0 },
		"put what was missed": func(_ *fsm.Schedule, c *fsm.Fire) { c.Put = c.LastMissed },
		"put before the last": func(s *fsm.Schedule, _ *fsm.Fire) { s.Last = 11 * second },
		"next is put already": func(_ *fsm.Schedule, c *fsm.Fire) { c.Next = c.Put },
		"next is before the last": func(s *fsm.Schedule, c *fsm.Fire) {
			s.Last, c.Missed, c.LastMissed, c.Put = 15*second, 0, 0, 0
		},
	} {
		s, c := fsm.Schedule{Serial: 3, Version: 4, Next: 10 * second}, good
		if !GoesOn(&s, &c, now) {
			t.Fatal("the command as it is does not go on")
		}
		if change(&s, &c); GoesOn(&s, &c, now) {
			t.Errorf("%s: it goes on", name)
		}
	}
	s, c := fsm.Schedule{Serial: 3, Version: 4, Next: 10 * second}, good
	MoveOn(&s, &c, now)
	if GoesOn(&s, &c, now) {
		t.Error("it goes on twice")
	}
}

// TestRedefine: a firing that has come stays pending over another rule, and one rule keeps its firings.
func TestRedefine(t *testing.T) {
	put := func(rule string, next fsm.Time) *fsm.PutSchedule {
		return &fsm.PutSchedule{Spec: fsm.ScheduleSpec{Cron: rule}, Next: next * second, Job: fsm.Put{Priority: int64(next)}}
	}
	ahead := func(now, next fsm.Time) *fsm.PutSchedule {
		c := put("b", next)
		c.NextAfter = now * second
		return c
	}
	for name, tc := range map[string]struct {
		before fsm.Schedule // with rule a
		put    *fsm.PutSchedule
		want   fsm.Schedule // its times, and what was missed
	}{
		"new": {put: put("a", 20), want: fsm.Schedule{Next: 20}},
		"the same rule": {
			fsm.Schedule{Next: 30}, put("a", 31), fsm.Schedule{Next: 30},
		},
		"the same rule after it came": {fsm.Schedule{Next: 11}, put("a", 31), fsm.Schedule{Next: 11}},
		"a rule that had ended":       {fsm.Schedule{}, put("a", 31), fsm.Schedule{Next: 31}},
		"another before it came":      {fsm.Schedule{Next: 21}, put("b", 31), fsm.Schedule{Next: 31}},
		"another after it came": {
			fsm.Schedule{Next: 20}, put("b", 31), fsm.Schedule{Next: 20, Pending: true, Then: 31},
		},
		"another, which is over": {fsm.Schedule{Next: 20}, put("b", 0), fsm.Schedule{Next: 20, Pending: true}},
		"another while one is pending": {
			fsm.Schedule{Next: 19, Pending: true, Then: 21}, put("b", 31), fsm.Schedule{Next: 19, Pending: true, Then: 31},
		},
		"another while two have come": {
			fsm.Schedule{Next: 18, Pending: true, Then: 19}, put("b", 31),
			fsm.Schedule{Next: 19, Pending: true, Then: 31, Last: 18, Counts: fsm.ScheduleCounts{Missed: 1}},
		},
		"another before it came, by a caller for whom it has": {
			fsm.Schedule{Next: 21}, ahead(21, 31), fsm.Schedule{Next: 21, Pending: true, Then: 31},
		},
		"another whose first time has come for the caller": {
			fsm.Schedule{Next: 20, Pending: true, Then: 21}, ahead(21, 31), fsm.Schedule{Next: 20, Pending: true, Then: 21},
		},
		"another by a caller whose clock is wrong": {
			fsm.Schedule{Next: 21}, ahead(22, 31), fsm.Schedule{Next: 20, Replan: true},
		},
		"another by a wrong clock while one is pending": {
			fsm.Schedule{Next: 19, Pending: true, Then: 21}, ahead(22, 31),
			fsm.Schedule{Next: 19, Pending: true, Replan: true, Then: 20},
		},
		"another after one by a wrong clock": {
			fsm.Schedule{Next: 18, Pending: true, Replan: true, Then: 19}, put("b", 31),
			fsm.Schedule{Next: 18, Pending: true, Then: 31},
		},
		"another whose time is dealt with": {
			fsm.Schedule{Last: 20}, put("b", 20), fsm.Schedule{Next: 20, Replan: true, Last: 20},
		},
		"after the last firing": {
			fsm.Schedule{Next: 19, Pending: true, Then: 21, Counts: fsm.ScheduleCounts{Fired: 7}},
			&fsm.PutSchedule{Spec: fsm.ScheduleSpec{Cron: "a"}, Policy: fsm.SchedulePolicy{MaxFires: 7}}, fsm.Schedule{},
		},
	} {
		s := tc.before
		s.Spec.Cron, s.Next, s.Then, s.Last = "a", s.Next*second, s.Then*second, s.Last*second
		Redefine(&s, tc.put, 20*second)
		got := fsm.Schedule{
			Next: s.Next / second, Replan: s.Replan, Pending: s.Pending, Then: s.Then / second, Last: s.Last / second,
			Counts: fsm.ScheduleCounts{Missed: s.Counts.Missed},
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if s.Version != 1 || s.Changed != 20*second || s.Job.Priority != tc.put.Job.Priority {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestWrongClock: a leader finds the times of a rule that a caller whose clock is an hour ahead passed over.
func TestWrongClock(t *testing.T) {
	const now = 20*second + second/2
	for _, next := range []fsm.Time{0, 5, 20, 21, 22} {
		s := fsm.Schedule{Serial: 1, Version: 1, Next: next * second}
		Redefine(&s, &fsm.PutSchedule{
			Spec: fsm.ScheduleSpec{Cron: "b"}, NextAfter: now + 3600*second, Next: 3621 * second, ZoneData: "b",
		}, now)
		var fired []fsm.Time
		for at := now + 1; at < 24*second; at += second / 4 {
			for plan := []*fsm.Fire{nil}; len(plan) > 0 && s.Next <= at; {
				plan, _ = Plan(&s, at, everySecond{data: "b"}, 100)
				for _, f := range apply(t, &s, at, plan) {
					if f.Put != 0 {
						fired = append(fired, f.Put)
					}
				}
			}
		}
		want := []fsm.Time{21, 22, 23}
		if next != 0 && next*second < now { // it had come
			want = append([]fsm.Time{next}, want...)
		}
		if !slices.Equal(fired, want) || s.Counts.Missed > 0 {
			t.Errorf("next at %d: fired at %v, %+v", next, fired, s)
		}
	}
}

// TestPlanPending: a pending firing is dealt with alone, and the rule goes on at its own first time.
func TestPlanPending(t *testing.T) {
	all := fsm.SchedulePolicy{CatchUp: fsm.CatchUpAll}
	for name, tc := range map[string]struct {
		policy    fsm.SchedulePolicy
		then, now fsm.Time
		want      step
		next      fsm.Time
	}{
		"the latest":     {then: 15, now: 11, want: step{0, 0, 10, 15}, next: 15},
		"the last":       {now: 11, want: step{0, 0, 10, 0}},
		"not the latest": {then: 15, now: 15, want: step{1, 10, 0, 15}, next: 15},
		"all":            {policy: all, then: 15, now: 15, want: step{0, 0, 10, 15}, next: 15},
		"too late": {
			policy: fsm.SchedulePolicy{Window: time.Second}, then: 15, now: 12, want: step{1, 10, 0, 15}, next: 15,
		},
		"found too soon": {then: 9, now: 11, want: step{0, 0, 10, 0}, next: 10},
	} {
		s := fsm.Schedule{Serial: 1, Next: 10 * second, Pending: true, Then: tc.then * second, Policy: tc.policy}
		s.ZoneData = "a"
		plan, _ := Plan(&s, tc.now*second, everySecond{data: "b"}, 100)
		got := apply(t, &s, tc.now*second, plan)
		if !slices.Equal(got, []step{tc.want}) || s.Next != tc.next*second || s.Pending || s.ZoneData != "a" {
			t.Errorf("%s: %+v leaves %+v", name, got, s)
		}
		if s.Replan != (tc.then == 9) {
			t.Errorf("%s: replan is %v", name, s.Replan)
		}
	}
}
