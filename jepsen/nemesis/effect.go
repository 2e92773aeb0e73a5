package nemesis

import (
	"slices"
	"time"

	"github.com/belfrydb/belfry/jepsen/report"
)

// namingHold is how long a fault is held at least if status is to be seen to name it: longer than
// it may take.
const namingHold = 13 * time.Second

// spares says, just before a fault begins to act, that it leaves all nodes whole and connected but
// victims, of which status must name one. It says nothing if the rest is no majority, or not all of
// it runs. By what it says availability is judged.
func (s *Scene) spares(victims ...string) *report.Effect {
	var healthy []string
	members := s.remaining()
	for _, n := range members {
		switch {
		case slices.Contains(victims, n.Name):
		case !n.Running():
			return &report.Effect{}
		default:
			healthy = append(healthy, n.Name)
		}
	}
	if len(healthy) <= len(members)/2 {
		return &report.Effect{}
	}
	slices.Sort(healthy)
	s.effect = &report.Effect{Began: s.Now().Seconds(), Healthy: healthy, Victims: victims}
	return s.effect
}

// allow says that another promise gives a fault longer than all faults have, and why.
func allow(e *report.Effect, longer time.Duration, why string) {
	e.Allowed, e.Why = longer.Seconds(), why
}
