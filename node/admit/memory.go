package admit

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/outcome"
)

const (
	// MemoryBytesMin is the least limit of memory with which a node can work.
	MemoryBytesMin = 96 << 20
	// memoryElse is the least memory that a process takes besides its machines.
	memoryElse = 16 << 20
)

// MemoryStatus is a node's use of memory.
type MemoryStatus struct {
	// LimitBytes is the limit of the process. MarkBytes is the value of UsedBytes at which puts are
	// refused. Both are 0 if there is no limit.
	LimitBytes, MarkBytes uint64
	// UsedBytes is HeldBytes, plus what the held jobs may still take until they have ended, plus
	// what the next snapshot may copy.
	UsedBytes uint64
	// HeldBytes is the present memory of the machines, plus all else that the collector found
	// alive.
	HeldBytes uint64
	// Full tells that puts are refused. Critical tells that, besides, few jobs may be reserved at a
	// time.
	Full, Critical bool
}

// MemoryError is an ErrMemoryFull with its figures. Nothing was logged.
type MemoryError struct {
	// Used is MemoryStatus.UsedBytes of the node whose memory is full. Limit is the limit of its
	// process.
	Used, Limit uint64
}

// Error implements error.
func (e *MemoryError) Error() string {
	return fmt.Sprintf("%s: %d MiB of %d MiB are in use or reserved", outcome.ErrMemoryFull, e.Used>>20, e.Limit>>20)
}

// Unwrap returns ErrMemoryFull.
func (e *MemoryError) Unwrap() error { return outcome.ErrMemoryFull }

// SoftMemoryLimit returns the limit for the Go runtime in a process with the given limit. The rest
// is for the program's own pages, thread stacks, and what the kernel keeps for the process's
// connections and files.
func SoftMemoryLimit(limit uint64) uint64 { return limit - limit/32 - min(28<<20, limit/4) }

// MemoryMarks returns two marks. From full used bytes on, puts are refused. From critical held
// bytes on, few jobs may be reserved at a time, too. Above full remains a fifth of the runtime's
// limit: for garbage between two collections, requests in transit, and entries that followers get
// before their leader knows that they are full.
func MemoryMarks(limit uint64) (full, critical uint64) {
	soft := SoftMemoryLimit(limit)
	full = soft - soft/5
	return full, full + soft/10
}

// Memory is the account of a node's memory. Refusals concern this node alone: replicas with the
// same state may have less of it in memory.
type Memory struct {
	limit, fullAt, criticalAt uint64
	heapLive                  func() (live, cycles uint64)
	logger                    *slog.Logger
	peers                     peerMemory

	full, critical atomic.Bool
	// restores counts the snapshots that are being restored in place of a state.
	restores atomic.Int32
	// held and promised are the sums over the machines. copies is what the next snapshot may copy.
	// other is the remaining live memory.
	held, promised, copies, other atomic.Uint64
	// cycles is the number of collections when other was last set.
	cycles atomic.Uint64
}

// MachineMemory is the memory of one machine, as counted in the account.
type MachineMemory struct{ held, promised, shareable atomic.Uint64 }

// NewMemory returns the account of a process with a limit in bytes, 0 for none. heapLive returns
// how many bytes the last collection found alive and how many collections have run; if it is nil,
// only the machines are counted.
func NewMemory(limit uint64, heapLive func() (live, cycles uint64), logger *slog.Logger) *Memory {
	m := &Memory{limit: limit, heapLive: heapLive, logger: logger, peers: peerMemory{byServer: map[string]fullPeer{}}}
	if m.limit > 0 {
		m.fullAt, m.criticalAt = MemoryMarks(m.limit)
	}
	if m.heapLive != nil {
		m.other.Store(memoryElse)
	}
	return m
}

// Follow records the memory of a machine after an entry.
func (m *Memory) Follow(of *MachineMemory, now fsm.Memory) {
	m.held.Add(now.Held - of.held.Swap(now.Held))
	m.promised.Add(now.Promised - of.promised.Swap(now.Promised))
	of.shareable.Store(now.CopyOnWrite)
	m.judge()
}

// TakeOver records a restored machine. The collector has already found most of it alive and counted
// it in other, so it is subtracted there.
func (m *Memory) TakeOver(of *MachineMemory, now fsm.Memory) {
	for m.heapLive != nil {
		other := m.other.Load()
		if m.other.CompareAndSwap(other, max(memoryElse, other-min(other, now.Held))) {
			break
		}
	}
	m.Follow(of, now)
}

// judge sets what is refused. Puts are accepted again a sixteenth below the mark, so that callers
// do not see it flap. They are not accepted while a dropped state is being replaced: the new state
// will take as much.
func (m *Memory) judge() {
	if m.limit == 0 {
		return
	}
	used, held := m.used()
	m.setFlag(&m.full, "full", used >= m.fullAt, used < m.fullAt-m.fullAt/16 && m.restores.Load() == 0)
	m.setFlag(&m.critical, "critical", held >= m.criticalAt, held < m.criticalAt-m.criticalAt/16)
}

// setFlag sets a flag if on, clears it if off, and logs a change.
func (m *Memory) setFlag(flag *atomic.Bool, name string, on, off bool) {
	was := flag.Load()
	now := on || was && !off
	if now == was || !flag.CompareAndSwap(was, now) {
		return
	}
	used, held := m.used()
	m.logger.Warn("memory", name, now, "used_bytes", used, "held_bytes", held, "mark_bytes", m.fullAt,
		"limit_bytes", m.limit)
}

// used returns the used and the held bytes; see MemoryStatus.
func (m *Memory) used() (used, held uint64) {
	held = sumOf(&m.held) + m.other.Load()
	return held + sumOf(&m.promised) + m.copies.Load(), held
}

// sumOf returns a sum over the machines, at least zero. The sum can be negative for a while: if
// sumMemory runs between the two steps of follow, freed memory may be subtracted twice until the
// next sum.
func sumOf(sum *atomic.Uint64) uint64 {
	return uint64(max(0, int64(sum.Load()))) //nolint:gosec // memory is far below 2^63 bytes
}

// refusal returns the error for a request that would add to a full memory.
func (m *Memory) refusal() error {
	used, _ := m.used()
	return &MemoryError{Used: used, Limit: m.limit}
}

// Status returns the figures of the account.
func (m *Memory) Status() MemoryStatus {
	used, held := m.used()
	return MemoryStatus{LimitBytes: m.limit, MarkBytes: m.fullAt, UsedBytes: used, HeldBytes: held, Full: m.full.Load(),
		Critical: m.critical.Load()}
}

// Sum sums the memory of the machines of this node, and records what else the collector has found
// alive since the last sum. Only one goroutine at a time may call it.
func (m *Memory) Sum(machines []*MachineMemory) {
	var held, promised, shareable uint64
	for _, one := range machines {
		held += one.held.Load()
		promised += one.promised.Load()
		shareable = max(shareable, one.shareable.Load())
	}
	m.held.Store(held) // an entry applied meanwhile is in the next sum
	m.promised.Store(promised)
	m.copies.Store(shareable) // snapshots are taken one at a time
	if m.heapLive != nil {
		if live, cycles := m.heapLive(); m.cycles.Swap(cycles) != cycles {
			m.other.Store(max(memoryElse, live-min(live, held)))
		}
	}
	m.judge()
}

// Limited reports whether the process has a limit.
func (m *Memory) Limited() bool { return m.limit > 0 }

// Replacing returns the number of states that were dropped and whose replacement is being restored.
// Its user counts them.
func (m *Memory) Replacing() *atomic.Int32 { return &m.restores }

// FullFigures returns the figures of this node if its memory is so full that puts are refused, else
// nil.
func (m *Memory) FullFigures() *MemoryError {
	if !m.full.Load() {
		return nil
	}
	used, _ := m.used()
	return &MemoryError{Used: used, Limit: m.limit}
}

// Pressure describes the effect of a full memory.
func (m *Memory) Pressure() string {
	used, _ := m.used()
	text := fmt.Sprintf("%d MiB of the %d MiB of memory that it may take are in use or reserved, the mark is %d MiB: "+
		"puts are refused", used>>20, m.limit>>20, m.fullAt>>20)
	if m.critical.Load() {
		text += fmt.Sprintf(", and a shard has at most %d jobs reserved at a time", CriticalLeases)
	}
	return text
}

// MemoryFor returns the least limit, in whole MiB, at which puts are not refused while the machines
// use so many bytes.
func MemoryFor(used uint64) uint64 {
	limit := uint64(MemoryBytesMin)
	for step := uint64(1) << 50; step >= 1<<20; step >>= 1 {
		if full, _ := MemoryMarks(limit + step); full < used+memoryElse {
			limit += step
		}
	}
	if full, _ := MemoryMarks(limit); full < used+memoryElse {
		limit += 1 << 20
	}
	return limit
}
