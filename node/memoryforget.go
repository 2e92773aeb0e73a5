package node

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node/raftgroup"
)

// forgetSlack is how long the pacer lets old records gather while memory is full, before it
// proposes an entry that forgets them.
const forgetSlack = time.Second

// dutyOf returns when the pacer must propose an entry, 0 for never: at the machine's next deadline,
// and while memory is full also when old records can be forgotten. Only entries forget, and a shard
// that refuses puts may log none.
func (s *shard) dutyOf(m *machine.Machine) fsm.Time {
	deadline, _ := m.NextDeadline()
	if !s.admission.MemoryFull() {
		return deadline
	}
	forget, ok := m.NextForget()
	if forget = forget.Add(forgetSlack); ok && (deadline == 0 || forget < deadline) {
		return forget
	}
	return deadline
}

// nextDuty is dutyOf of the shard's machine.
func (s *shard) nextDuty() (at fsm.Time) {
	s.Replica().View(func(m Machine, _ raftgroup.Position) { at = s.dutyOf(m.(shardMachine).m) })
	return at
}

// forgetsMore reports whether memory is full and another entry would forget more records. One entry
// forgets a bounded number.
func (s *shard) forgetsMore() (more bool) {
	if !s.admission.MemoryFull() {
		return false
	}
	s.Replica().View(func(m Machine, _ raftgroup.Position) {
		machine := m.(shardMachine).m
		at, ok := machine.NextForget()
		more = ok && at <= machine.Clock()
	})
	return more
}

// watchForgetting makes the pacer look for records to forget if memory is full. It may have become
// full since the last entry.
func (s *shard) watchForgetting() {
	if s.admission.MemoryFull() && s.Serves() {
		s.pacer.Moved(s.nextDuty())
	}
}
