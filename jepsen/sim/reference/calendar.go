package reference

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// Calendar is the calendar of a schedule as a node reads it. Which times there are is the matter of
// package cron: here schedules fire every so often, by all nodes alike.
type Calendar struct {
	Node int
	Spec *fsm.ScheduleSpec
}

// Next implements schedules.Calendar.
func (c Calendar) Next(t fsm.Time) fsm.Time {
	next, _ := Nominal(c.Spec, t)
	return next
}

// Due implements schedules.Calendar.
func (c Calendar) Due(nominal fsm.Time) fsm.Time { return nominal.Add(c.Spec.Jitter) }

// ZoneData implements schedules.Calendar: not all nodes have the same.
func (c Calendar) ZoneData() string { return "2026" + string(rune('a'+c.Node%2)) }

// Nominal returns the first nominal time after another one, 0 for none. It can tell of all schedules that
// fire every so often.
func Nominal(s *fsm.ScheduleSpec, after fsm.Time) (next fsm.Time, ok bool) {
	after = max(after, s.Start-1)
	n := after.Sub(fsm.Time(s.Phase))/s.Every + 1
	if next = fsm.Time(s.Phase + n*s.Every); s.End != 0 && next > s.End {
		return 0, true
	}
	return next, true
}

// FindNext finds the first firing of a schedule that is put through a node whose clock shows now.
func FindNext(p *fsm.PutSchedule, now fsm.Time) {
	p.Next, p.NextAfter = Calendar{Spec: &p.Spec}.Next(now), now
}

// Times returns at most so many nominal times from one time on and before another.
func (c Calendar) Times(from, to fsm.Time, most int) (times []fsm.Time) {
	for at := c.Next(from - 1); at != 0 && at < to && len(times) < most; at = c.Next(at) {
		times = append(times, at)
	}
	return times
}

// Span is how long a schedule takes for so many firings.
func (c Calendar) Span(firings int) time.Duration { return time.Duration(firings) * c.Spec.Every }
