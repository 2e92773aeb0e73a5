package admit

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
)

// CriticalLeases is how many jobs of a shard may be reserved while memory is critical. Only acks
// free memory then, and each needs a reserved job.
const CriticalLeases = 64

// leaseBudget counts reserved jobs while memory is critical.
type leaseBudget struct {
	// reserved is the number of reserved jobs after the last entry, and of jobs whose reservation was
	// admitted since.
	reserved atomic.Int64
}

// take takes as many leases as are wanted and returns how many there were; if there were none, it
// takes none.
func (b *leaseBudget) take(wanted int64) (left int64) {
	for {
		reserved := b.reserved.Load()
		if left = CriticalLeases - reserved; left <= 0 || b.reserved.CompareAndSwap(reserved, reserved+wanted) {
			return left
		}
	}
}

// boundLeases returns what may be proposed of a request: all of it, unless it reserves jobs while
// memory is critical. Then it may reserve as many as are left of CriticalLeases, and is refused if
// none is. A request with an id is not changed, since its repeats must have the same content.
func (a *Admission) boundLeases(req *fsm.Request) (*fsm.Request, error) {
	if !a.cfg.Memory.critical.Load() || !a.cfg.Leads() {
		return req, nil
	}
	wanted := int64(0)
	for _, c := range req.Commands {
		switch r := c.(type) {
		case *fsm.Reserve:
			wanted += int64(r.Max)
		case *fsm.ReserveJob:
			wanted++
		}
	}
	if wanted == 0 {
		return req, nil
	}
	left := a.leases.take(wanted)
	switch {
	case left <= 0:
		return req, fmt.Errorf("%s: %w", a.cfg.Name, a.cfg.Memory.refusal())
	case left >= wanted || req.ID != "":
		return req, nil
	default:
		return bounded(req, left), nil
	}
}

// SetLeases sets the number of reserved jobs after an entry.
func (a *Admission) SetLeases(reserved int) { a.leases.reserved.Store(int64(reserved)) }

// RecountLeases sets the number of reserved jobs anew, since not every admitted reservation is
// logged.
func (a *Admission) RecountLeases() {
	if a.cfg.Memory.critical.Load() && a.cfg.Leads() {
		a.cfg.View(func(m *machine.Machine, _ fsm.Time) { a.SetLeases(m.Leases()) })
	}
}

// bounded returns a copy of a request that reserves at most a number of jobs.
func bounded(req *fsm.Request, most int64) *fsm.Request {
	copied := *req
	copied.Commands = slices.Clone(req.Commands)
	for i, c := range copied.Commands {
		if r, ok := c.(*fsm.Reserve); ok {
			less := *r
			less.Max = uint32(min(int64(r.Max), most)) //nolint:gosec // it is no more than it was
			most -= int64(less.Max)
			copied.Commands[i] = &less
		}
	}
	return &copied
}
