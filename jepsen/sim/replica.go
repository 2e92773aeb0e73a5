package sim

import (
	"bytes"
	"slices"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/fsm/snapshot"
	"github.com/belfrydb/belfry/jepsen/sim/tally"
)

const (
	// savedMax is how many snapshots a replica keeps.
	savedMax = 3
	// openEntries is how many entries a snapshot stays open for, which shares memory with the machine.
	openEntries = 10
)

// replica is a node's machine for a shard.
type replica struct {
	s       *shard
	node    int
	machine *machine.Machine
	saved   []saved // oldest first
	open    *openSnapshot
}

// saved is a written snapshot.
type saved struct {
	index, digest uint64
	data          []byte
}

// openSnapshot is written at once and again some entries later.
type openSnapshot struct {
	snapshot *snapshot.Snapshot
	data     []byte
	until    uint64 // index
}

// apply applies up to so many entries that it has not applied, and holds what comes of them against
// what came of them elsewhere.
func (r *replica) apply(most int) {
	w := r.s.w
	for ; most > 0 && r.machine.Index() < uint64(len(r.s.log)) && w.violation == nil; most-- {
		e := r.s.log[r.machine.Index()]
		results, err := r.machine.Apply(e.index, w.wrong.read(r, e))
		if err != nil {
			w.violated("an entry can be read", "node %v, shard %v: %v", r.node, r.s.number, err)
			return
		}
		if !slices.EqualFunc(results, e.results, sameResult) {
			w.violated("replicas give the same results", "entry %v of shard %v gives on node %v\n%+v, where it was applied "+
				"first it gave\n%+v", e.index, r.s.number, r.node, results, e.results)
		}
		r.check(e, "after entry")
		r.writeLater()
	}
}

// check compares the replica's state with that after an entry.
func (r *replica) check(e *entry, when string) {
	m := r.machine
	if m.Digest() != e.digest || m.Clock() != e.clock || m.Index() != e.index {
		r.s.w.violated("replicas have the same state", "node %v %s %v of shard %v has digest %016x and time %v at index "+
			"%v, the first had %016x and %v",
			r.node, when, e.index, r.s.number, m.Digest(), m.Clock(), m.Index(), e.digest, e.clock)
	}
}

// lead applies an entry that no replica has applied before.
func (r *replica) lead(e *entry, data []byte) []fsm.Result {
	results, err := r.machine.Apply(e.index, data)
	if err != nil {
		r.s.w.violated("an entry can be read", "node %v, shard %v: %v", r.node, r.s.number, err)
		return nil
	}
	e.results, e.digest, e.clock = results, r.machine.Digest(), r.machine.Clock()
	r.writeLater()
	return results
}

// snapshot writes the state, and at times once more some entries later.
func (r *replica) snapshot() {
	w, index := r.s.w, r.machine.Index()
	if index == 0 {
		return
	}
	snapshot := r.machine.Snapshot()
	kept := saved{index: index, digest: snapshot.Digest(), data: r.written(snapshot)}
	r.saved = append(r.saved, kept)
	if len(r.saved) > savedMax {
		r.saved = slices.Delete(r.saved, 0, 1)
	}
	if r.open == nil && w.chance(40) {
		r.open = &openSnapshot{snapshot: snapshot, data: kept.data, until: index + openEntries}
	} else {
		r.machine.Release(snapshot)
	}
	w.tally[tally.Snapshots]++
	w.mark("snapshot", uint64(r.s.number), uint64(r.node), index, kept.digest, uint64(len(kept.data)))
	if w.told() {
		w.say("node %d writes a snapshot of shard %d at index %d", r.node, r.s.number, index)
	}
}

func (r *replica) written(snapshot *snapshot.Snapshot) []byte {
	var b bytes.Buffer
	if _, err := snapshot.WriteTo(&b); err != nil {
		r.s.w.violated("a snapshot can be written", "node %v, shard %v: %v", r.node, r.s.number, err)
	}
	return b.Bytes()
}

// writeLater writes an open snapshot again when its time has come: nothing that was applied since
// may show in it.
func (r *replica) writeLater() {
	o := r.open
	if o == nil || r.machine.Index() < o.until {
		return
	}
	r.open = nil
	if !bytes.Equal(r.written(o.snapshot), o.data) {
		r.s.w.violated("a snapshot stays as it was", "node %v, shard %v: what was taken %v entries before index %v is not "+
			"what it was", r.node, r.s.number, openEntries, r.machine.Index())
	}
	r.machine.Release(o.snapshot)
	r.s.w.tally[tally.WrittenLater]++
}

// restore replaces the machine by one that is read from a snapshot, in a process of its own as it
// were.
func (r *replica) restore(from saved) {
	w := r.s.w
	m, err := machine.Restore(fsm.Config{Seed: w.r.Uint64()}, w.snapshotReader(from.data))
	if err != nil {
		w.violated("a snapshot can be restored", "node %v, shard %v, index %v: %v", r.node, r.s.number, from.index, err)
		return
	}
	r.machine, r.open = m, nil
	w.wrong.restored(r)
	if from.digest != r.machine.Digest() {
		w.violated("restored is as it was", "node %v, shard %v: digest %016x, at index %v it was %016x", r.node, r.s.number,
			r.machine.Digest(), from.index, from.digest)
	}
	r.check(r.s.log[from.index-1], "restored to entry")
}

// restart is a node that was down: it has one of its snapshots, not always the newest, or none, and
// the log after it.
func (s *shard) restart(node int) {
	w, r := s.w, s.replicas[node]
	if s.leader == node {
		s.depose()
	}
	n := w.r.IntN(len(r.saved) + 1)
	w.mark("restart", uint64(s.number), uint64(node), uint64(n))
	if w.told() {
		w.say("node %d restarts shard %d with its snapshot %d of %d", node, s.number, n, len(r.saved))
	}
	if n == 0 {
		r.machine, r.open = machine.New(fsm.Config{Seed: w.r.Uint64()}), nil
	} else {
		r.restore(r.saved[n-1])
	}
	w.tally[tally.Restores]++
	r.apply(w.r.IntN(2) * len(s.log))
}

// install gives a replica that lags a snapshot of another one instead of entries.
func (s *shard) install(node int) {
	w, r := s.w, s.replicas[node]
	from := s.replicas[(node+1+w.r.IntN(nodesMax-1))%nodesMax]
	if s.leader == node || from.machine.Index() <= r.machine.Index() {
		return
	}
	from.snapshot()
	if w.violation == nil {
		r.restore(from.saved[len(from.saved)-1])
		r.saved = from.saved[len(from.saved)-1:]
		r.saved = slices.Clone(r.saved)
		w.tally[tally.Installs]++
	}
}

// follow lets a replica apply some more of the log.
func (s *shard) follow(node, most int) {
	if node != s.leader {
		s.replicas[node].apply(most)
	}
}

// sameResult compares what a caller sees of two results.
func sameResult(a, b fsm.Result) bool {
	return a.Code == b.Code && a.State == b.State && a.Created == b.Created && a.More == b.More &&
		a.Replaced == b.Replaced && a.Replayed == b.Replayed && a.Version == b.Version &&
		a.Partition == b.Partition && a.Serial == b.Serial && a.Due == b.Due && a.Until == b.Until && a.Count == b.Count &&
		a.Wait == b.Wait && slices.Equal(a.Grants, b.Grants)
}
