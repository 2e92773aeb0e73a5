// Package schedules has the rules of schedules that need no machine: whether a Fire goes on from a
// schedule as it is, what it leaves behind, and which firings a leader asks for. See DESIGN.md.
package schedules

import (
	"bytes"
	"cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// GoesOn reports whether a Fire goes on from a schedule as it is at the clock.
func GoesOn(s *fsm.Schedule, c *fsm.Fire, clock fsm.Time) bool {
	latest := max(s.Last, c.LastMissed, c.Put)
	switch {
	case s.Paused, s.Serial != c.Serial, s.Version < c.Version, s.Next == 0, s.Next != c.Nominal, c.Nominal > clock:
		return false
	case c.Version < s.RuleVersion && !s.Pending:
		return false // its Next may be no time of the rule
	case s.Pending && c.Put == 0 && c.Missed == 0:
		return false // it looks for another Next by an earlier rule
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

// MoveOn notes the firings that a Fire passes over, and sets the next one.
func MoveOn(s *fsm.Schedule, c *fsm.Fire, clock fsm.Time) {
	if c.Missed > 0 {
		s.Counts.Missed += c.Missed
		remember(s, fsm.Firing{Result: fsm.Missed, Nominal: c.LastMissed, At: clock, Count: c.Missed})
	}
	s.Last = max(s.Last, c.LastMissed, c.Put)
	if !s.Pending {
		setNext(s, c.Next, c.ZoneData)
		return
	}
	// What c has was found by an earlier rule, or before the newest change.
	then, replan := s.Then, s.Replan
	if setNext(s, then, s.ZoneData); replan {
		findFrom(s, then)
	}
}

// setNext sets the next firing. One that was found before the last firing is found again.
func setNext(s *fsm.Schedule, next fsm.Time, zoneData string) {
	s.Next, s.Replan, s.ZoneData = next, false, zoneData
	s.Pending, s.Then = false, 0
	if next != 0 && next <= s.Last {
		findFrom(s, 1)
	}
}

// findFrom has the leader find the next firing: the first one from a time on, which is also after the
// last one.
func findFrom(s *fsm.Schedule, from fsm.Time) { s.Next, s.Replan = max(s.Last, from), true }

// Count counts a firing that was put, skipped or backfilled at the clock. The last one of a schedule
// that has a MaxFires ends it.
func Count(s *fsm.Schedule, result fsm.FiringResult, nominal, clock fsm.Time) {
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
	remember(s, fsm.Firing{Result: result, Nominal: nominal, At: clock, Count: 1})
	endIfDone(s)
}

// endIfDone takes the next firing from a schedule that has had all its firings.
func endIfDone(s *fsm.Schedule) {
	if s.Policy.MaxFires > 0 && s.Counts.Fired >= s.Policy.MaxFires {
		setNext(s, 0, s.ZoneData)
	}
}

func remember(s *fsm.Schedule, f fsm.Firing) {
	s.Recent = append(s.Recent, f)
	s.Recent = s.Recent[max(0, len(s.Recent)-fsm.FiringsKept):]
}

// Redefine gives a schedule another content at the clock. While its rule is the same, its firings stay
// as they are: the caller may have found Next by another clock.
func Redefine(s *fsm.Schedule, c *fsm.PutSchedule, clock fsm.Time) {
	same := s.Next != 0 && s.ZoneData == c.ZoneData &&
		bytes.Equal(codec.AppendSpec(nil, &s.Spec), codec.AppendSpec(nil, &c.Spec))
	s.Version++
	s.Spec, s.Policy, s.Job, s.Changed = c.Spec, c.Policy, c.Job, clock
	if !same {
		changeRule(s, c, clock)
	}
	endIfDone(s)
}

// changeRule sets the next firing by another rule. One that has come stays pending. If the first one of
// the rule before has come as well, it takes the place of the pending one, which is missed. What the
// caller found passes over the times up to NextAfter, so those have come, too, or are about to. A caller
// whose clock is wrong has passed over times of the rule: the leader finds them.
func changeRule(s *fsm.Schedule, c *fsm.PutSchedule, clock fsm.Time) {
	s.RuleVersion = s.Version
	come := max(clock, c.NextAfter)
	wrong := come.Sub(clock) > fsm.CallerAheadMax
	if wrong {
		come = clock
	}
	if s.Next == 0 || s.Next > come || s.Replan && !s.Pending {
		if setNext(s, c.Next, c.ZoneData); wrong {
			findFrom(s, clock+1)
		}
		return
	}
	then := s.Then
	switch {
	case s.Replan || then <= s.Next || then > come:
		then = c.Next
	case then <= clock:
		s.Last = s.Next
		Count(s, fsm.Missed, s.Next, clock)
		s.Next, then = then, c.Next
	}
	if wrong {
		then = clock + 1
	}
	s.Pending, s.Then, s.Replan, s.ZoneData = true, then, wrong, c.ZoneData
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
