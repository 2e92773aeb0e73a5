package node

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

const (
	// rationLeases is how many jobs of a shard may be reserved while memory is critical. Only acks make room then, and each needs a reserved job.
	rationLeases = 64
	// forgetSlack is for how long the pacer lets gather what is to be forgotten while memory is full.
	forgetSlack = time.Second
)

// ration is the count that reservations are measured by while memory is critical.
type ration struct {
	// reserved is how many jobs were reserved after the last entry, and what was let through since.
	reserved atomic.Int64
}

// memoryFull reports whether puts to the shard are refused for want of memory, here or at another voter.
func (s *shard) memoryFull() bool { return s.node.memory.full.Load() || s.votersFull.Load() != nil }

// dutyOf returns when the pacer has something to do, 0 for never: at the machine's next deadline, and while memory is full also when there is something
// to forget. Entries forget, and a shard that refuses puts may log none by itself.
func (s *shard) dutyOf(m *fsm.Machine) fsm.Time {
	deadline, _ := m.NextDeadline()
	if !s.memoryFull() {
		return deadline
	}
	forget, ok := m.NextForget()
	if forget = forget.Add(forgetSlack); ok && (deadline == 0 || forget < deadline) {
		return forget
	}
	return deadline
}

// nextDuty is dutyOf for the shard's machine.
func (s *shard) nextDuty() (at fsm.Time) {
	s.replica.view(func(m Machine, _, _ uint64) { at = s.dutyOf(m.(shardMachine).m) })
	return at
}

// forgetsMore reports whether another entry would forget something, while memory is full. One entry forgets a bounded number.
func (s *shard) forgetsMore() (more bool) {
	if !s.memoryFull() {
		return false
	}
	s.replica.view(func(m Machine, _, _ uint64) {
		machine := m.(shardMachine).m
		at, ok := machine.NextForget()
		more = ok && at <= machine.Clock()
	})
	return more
}

// watchForgetting has the pacer look at what there is to forget if memory is full: it became full perhaps since the last entry.
func (s *shard) watchForgetting() {
	if s.memoryFull() && s.serving.Load() != nil {
		s.pacer.moved(s.nextDuty())
	}
}

// renewRation counts anew what is reserved, since what was let through is not always logged.
func (s *shard) renewRation() {
	if s.node.memory.critical.Load() && s.serving.Load() != nil {
		s.replica.view(func(m Machine, _, _ uint64) { s.ration.reserved.Store(int64(m.(shardMachine).m.Leases())) })
	}
}

// rationed returns what may be proposed of a request: all of it, unless it reserves and memory is critical. Then it may reserve as many jobs as the shard
// has left of rationLeases, and is refused if that is none. A request with an id is let through as it is, since its repeats must be the same. Who does not
// lead leaves it to the leader.
func (s *shard) rationed(req *fsm.Request) (*fsm.Request, error) {
	if !s.node.memory.critical.Load() || s.serving.Load() == nil {
		return req, nil
	}
	asked := int64(0)
	for _, c := range req.Commands {
		if r, ok := c.(*fsm.Reserve); ok {
			asked += int64(r.Max)
		}
	}
	if asked == 0 {
		return req, nil
	}
	room := s.ration.take(asked)
	switch {
	case room <= 0:
		return req, fmt.Errorf("%s: %w", s.name, s.node.memory.refusal())
	case room >= asked || req.ID != "":
		return req, nil
	default:
		return bounded(req, room), nil
	}
}

// take takes as many jobs as are asked for and returns how many there were; if none, none is taken.
func (r *ration) take(asked int64) (room int64) {
	for {
		reserved := r.reserved.Load()
		if room = rationLeases - reserved; room <= 0 || r.reserved.CompareAndSwap(reserved, reserved+asked) {
			return room
		}
	}
}

// bounded returns a copy of a request that reserves at most so many jobs.
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

// knows reports whether a request is nothing but a repeat.
func (s *shard) knows(req *fsm.Request) (known bool) {
	s.view(func(m *fsm.Machine, now fsm.Time) { known = m.Knows(req, now) })
	return known
}
