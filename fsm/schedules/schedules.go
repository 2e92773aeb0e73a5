// Package schedules has the rules of schedules that need no machine: whether a Fire goes on from a
// schedule as it is, what it leaves behind, and which firings a leader asks for. See DESIGN.md.
package schedules

import (
	"cmp"

	"github.com/belfrydb/belfry/fsm"
)

// GoesOn reports whether a Fire goes on from a schedule as it is at the clock.
func GoesOn(s *fsm.Schedule, c *fsm.Fire, clock fsm.Time) bool {
	latest := max(s.Last, c.LastMissed, c.Put)
	switch {
	case s.Paused, s.Serial != c.Serial, s.Version != c.Version, s.Next == 0, s.Next != c.Nominal, c.Nominal > clock:
		return false
	case c.Missed > 0 && (c.LastMissed < c.Nominal || c.LastMissed > clock || c.LastMissed <= s.Last):
		return false
	case c.Missed == 0 && c.LastMissed != 0:
		return false
	case c.Put != 0 && (c.Put < c.Nominal || c.Put > clock || c.Put <= max(s.Last, c.LastMissed)):
		return false
	default:
		return c.Next == 0 || c.Next > latest
	}
}

// Pass notes the firings that a Fire passes over, and sets the next one.
func Pass(s *fsm.Schedule, c *fsm.Fire, clock fsm.Time) {
	if c.Missed > 0 {
		s.Counts.Missed += c.Missed
		note(s, fsm.Firing{Result: fsm.Missed, Nominal: c.LastMissed, At: clock, Count: c.Missed})
	}
	s.Last = max(s.Last, c.LastMissed, c.Put)
	s.Next, s.Replan, s.ZoneData = c.Next, false, c.ZoneData
}

// Note counts a firing that was put, skipped or backfilled at the clock. The last one of a schedule
// that has a MaxFires ends it.
func Note(s *fsm.Schedule, result fsm.FiringResult, nominal, clock fsm.Time) {
	switch result {
	case fsm.Fired:
		s.Counts.Fired++
	case fsm.Skipped:
		s.Counts.Skipped++
	case fsm.Backfilled:
		s.Counts.Backfilled++
	case fsm.Missed:
		s.Counts.Missed++
	}
	note(s, fsm.Firing{Result: result, Nominal: nominal, At: clock, Count: 1})
	End(s)
}

// End takes the next firing from a schedule that has had all its firings.
func End(s *fsm.Schedule) {
	if s.Policy.MaxFires > 0 && s.Counts.Fired >= s.Policy.MaxFires {
		s.Next, s.Replan = 0, false
	}
}

func note(s *fsm.Schedule, f fsm.Firing) {
	s.Recent = append(s.Recent, f)
	s.Recent = s.Recent[max(0, len(s.Recent)-fsm.FiringsKept):]
}

// Redefine gives a schedule another content at the clock.
func Redefine(s *fsm.Schedule, c *fsm.PutSchedule, clock fsm.Time) {
	if s.Next != 0 && s.Next <= clock && !s.Replan { // it was to fire by now, and does not any more
		s.Last = max(s.Last, s.Next)
		Note(s, fsm.Missed, s.Next, clock)
	}
	s.Version++
	s.Spec, s.Policy, s.Job, s.Changed = c.Spec, c.Policy, c.Job, clock
	s.Next, s.Replan, s.ZoneData = c.Next, false, c.ZoneData
	if s.Next != 0 && s.Next <= s.Last { // it was found before the last firing
		s.Next, s.Replan = max(s.Last, 1), true
	}
	End(s)
}

// Overlaps reports whether the policy of a schedule forbids a firing beside earlier jobs in these
// states.
func Overlaps(s *fsm.Schedule, states []fsm.State) bool {
	for _, state := range states {
		waits := state == fsm.Delayed || state == fsm.Ready
		if waits && s.Policy.Overlap != fsm.OverlapAllow || state == fsm.Reserved && s.Policy.Overlap == fsm.OverlapSkip {
			return true
		}
	}
	return false
}

// Window returns how late a firing of a schedule may be.
func Window(s *fsm.Schedule) fsm.Duration {
	window := cmp.Or(s.Policy.Window, fsm.DefaultScheduleWindow)
	if s.Policy.CatchUp == fsm.CatchUpNone {
		return min(window, fsm.CatchUpSlack)
	}
	return window
}
