package node

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

const (
	// MemoryBytesMin is the least limit of memory with which a node can work.
	MemoryBytesMin = 96 << 20
	// memoryInterval is the time between two looks at the whole account. Machines keep theirs up with each entry.
	memoryInterval = 250 * time.Millisecond
	// memoryElse is the least that a process takes besides its machines.
	memoryElse = 16 << 20
)

// MemoryStatus is what a node takes of memory.
type MemoryStatus struct {
	// LimitBytes is what the process may take, MarkBytes what UsedBytes may come to before puts are refused; 0 if there is no limit.
	LimitBytes, MarkBytes uint64
	// UsedBytes is what is spoken for: HeldBytes, what the held jobs may come to take until they have ended, and what the next snapshot may
	// copy.
	UsedBytes uint64
	// HeldBytes is what the machines have now, and all else that the collector found alive.
	HeldBytes uint64
	// Full tells that puts are refused, Critical that few jobs may be reserved at a time, too.
	Full, Critical bool
}

// MemoryError is an ErrMemoryFull with its figures. Nothing was logged.
type MemoryError struct {
	// Used is what is spoken for on the node whose memory is full, Limit what its process may take.
	Used, Limit uint64
}

// Error implements error.
func (e *MemoryError) Error() string {
	return fmt.Sprintf("%s: %d MiB of %d MiB are spoken for", ErrMemoryFull, e.Used>>20, e.Limit>>20)
}

// Unwrap returns ErrMemoryFull.
func (e *MemoryError) Unwrap() error { return ErrMemoryFull }

// SoftMemoryLimit returns what the Go runtime may take where the process may take limit: the rest is for the program's own pages, stacks of
// threads, and what the kernel keeps for its connections and files.
func SoftMemoryLimit(limit uint64) uint64 { return limit - limit/32 - min(24<<20, limit/4) }

// memoryMarks returns the used bytes from which on puts are refused, and the held bytes from which on few jobs may be
// reserved at a time, too. Below the first
// stays a fifth of what the runtime may take: for garbage between two collections, requests on their way, and entries that followers get while
// their leader does not know yet that they are full.
func memoryMarks(limit uint64) (full, critical uint64) {
	soft := SoftMemoryLimit(limit)
	full = soft - soft/5
	return full, full + soft/10
}

// memory is the account of a node's memory. What it refuses is a matter of this node alone: replicas that hold the same may have less of it.
type memory struct {
	limit, fullAt, criticalAt uint64
	heapLive                  func() (live, cycles uint64)
	logger                    *slog.Logger
	peers                     peerMemory

	full, critical atomic.Bool
	// restores counts the snapshots that are being restored in place of a state.
	restores atomic.Int32
	// held and promised are the sums over the machines, copies what the next snapshot may copy, other what else is alive.
	held, promised, copies, other atomic.Uint64
	// cycles is those of the collector when other was last set.
	cycles atomic.Uint64
}

// machineMemory is what one machine takes, as it is in the account.
type machineMemory struct{ held, promised, shareable atomic.Uint64 }

func newMemory(cfg Config) *memory {
	m := &memory{limit: cfg.MemoryBytes, heapLive: cfg.HeapLive, logger: cfg.Logger, peers: peerMemory{byServer: map[string]fullPeer{}}}
	if m.limit > 0 {
		m.fullAt, m.criticalAt = memoryMarks(m.limit)
	}
	if m.heapLive != nil {
		m.other.Store(memoryElse)
	}
	return m
}

// follow takes note of what a machine takes after an entry.
func (m *memory) follow(of *machineMemory, now fsm.Memory) {
	m.held.Add(now.Held - of.held.Swap(now.Held))
	m.promised.Add(now.Promised - of.promised.Swap(now.Promised))
	of.shareable.Store(now.CopyOnWrite)
	m.judge()
}

// takeOver takes note of a restored machine. The collector has found most of it alive already, and nobody's.
func (m *memory) takeOver(of *machineMemory, now fsm.Memory) {
	for m.heapLive != nil {
		other := m.other.Load()
		if m.other.CompareAndSwap(other, max(memoryElse, other-min(other, now.Held))) {
			break
		}
	}
	m.follow(of, now)
}

// judge sets what is refused. A sixteenth below its mark puts are taken again, so that callers do not see it flap, and not while a state that was given up is being
// replaced: that will take as much.
func (m *memory) judge() {
	if m.limit == 0 {
		return
	}
	used, held := m.used()
	m.setFlag(&m.full, "full", used >= m.fullAt, used < m.fullAt-m.fullAt/16 && m.restores.Load() == 0)
	m.setFlag(&m.critical, "critical", held >= m.criticalAt, held < m.criticalAt-m.criticalAt/16)
}

// setFlag sets a flag if on, clears it if off, and logs a change.
func (m *memory) setFlag(flag *atomic.Bool, name string, on, off bool) {
	was := flag.Load()
	now := on || was && !off
	if now == was || !flag.CompareAndSwap(was, now) {
		return
	}
	used, held := m.used()
	m.logger.Warn("memory", name, now, "used_bytes", used, "held_bytes", held, "mark_bytes", m.fullAt, "limit_bytes", m.limit)
}

// used returns what is spoken for, and what is there already.
func (m *memory) used() (used, held uint64) {
	held = sumOf(&m.held) + m.other.Load()
	return held + sumOf(&m.promised) + m.copies.Load(), held
}

// sumOf returns a sum over the machines. What an entry freed may be taken off twice until the next look, where sumMemory comes between the two steps of
// follow: below zero is none.
func sumOf(sum *atomic.Uint64) uint64 {
	return uint64(max(0, int64(sum.Load()))) //nolint:gosec // memory is far below 2^63 bytes
}

// refusal returns the error for a request that would add to a full memory.
func (m *memory) refusal() error {
	used, _ := m.used()
	return &MemoryError{Used: used, Limit: m.limit}
}

func (m *memory) status() MemoryStatus {
	used, held := m.used()
	return MemoryStatus{LimitBytes: m.limit, MarkBytes: m.fullAt, UsedBytes: used, HeldBytes: held, Full: m.full.Load(), Critical: m.critical.Load()}
}

// watchMemory looks at what other nodes said every now and then, and at the whole account if there is a limit, until ctx ends.
func (n *Node) watchMemory(ctx context.Context) {
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for {
		n.reviewPeers()
		if n.memory.limit > 0 {
			n.sumMemory()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sumMemory adds up what the machines take that are here, and takes note of what else the collector found alive since.
func (n *Node) sumMemory() {
	m := n.memory
	var held, promised, shareable uint64
	for _, s := range n.here() {
		held += s.memory.held.Load()
		promised += s.memory.promised.Load()
		shareable = max(shareable, s.memory.shareable.Load())
	}
	m.held.Store(held) // an entry that is applied meanwhile is in the next sum
	m.promised.Store(promised)
	m.copies.Store(shareable) // snapshots are taken one at a time
	if m.heapLive != nil {
		if live, cycles := m.heapLive(); m.cycles.Swap(cycles) != cycles {
			m.other.Store(max(memoryElse, live-min(live, held)))
		}
	}
	m.judge()
	for _, s := range n.here() {
		s.watchForgetting()
		s.admission.recountLeases()
	}
	if m.full.Load() {
		n.RaiseCondition(MemoryPressure, m.pressure())
	} else {
		n.ClearCondition(MemoryPressure)
	}
}

// pressure says what a full memory means.
func (m *memory) pressure() string {
	used, _ := m.used()
	text := fmt.Sprintf("%d MiB of the %d MiB of memory that it may take are spoken for, the mark is %d MiB: puts are refused", used>>20, m.limit>>20, m.fullAt>>20)
	if m.critical.Load() {
		text += fmt.Sprintf(", and a shard has at most %d jobs reserved at a time", criticalLeases)
	}
	return text
}

// MemoryFor returns the least limit, in whole MiB, with which puts are not refused while the machines have so many bytes spoken for.
func MemoryFor(used uint64) uint64 {
	limit := uint64(MemoryBytesMin)
	for step := uint64(1) << 50; step >= 1<<20; step >>= 1 {
		if full, _ := memoryMarks(limit + step); full < used+memoryElse {
			limit += step
		}
	}
	if full, _ := memoryMarks(limit); full < used+memoryElse {
		limit += 1 << 20
	}
	return limit
}
