package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// idEntry is a job or a tombstone of the naive index that the tests compare with.
type idEntry struct {
	queue   uint32
	id, key string
	serial  uint64
	index   uint32
	dead    bool
	ended   bool
}

// idWorld is a store of a queue with one partition and one with four, beside a list of what is in
// it.
type idWorld struct {
	*Store
	queues  [2]uint32
	entries []idEntry
	serial  uint64
}

func newIDWorld() *idWorld {
	w := &idWorld{Store: New(1)}
	for i, partitions := range [...]uint32{1, 4} {
		w.queues[i] = w.AddQueue(&fsm.QueueRecord{CreateSeq: uint64(i + 1), Partitions: partitions})
	}
	return w
}

// perKey reports whether a queue may have an id once for each key.
func (w *idWorld) perKey(queue uint32) bool { return queue == w.queues[1] }

// first returns the index of the matching entry with the lowest serial, 0 if there is none.
func (w *idWorld) first(match func(*idEntry) bool) (index uint32) {
	serial := ^uint64(0)
	for i := range w.entries {
		if e := &w.entries[i]; match(e) && e.serial < serial {
			index, serial = e.index, e.serial
		}
	}
	return index
}

func (w *idWorld) add(queue uint32, id, key string) {
	w.serial++
	job := w.AddJob(queue, &fsm.Job{ID: id, Key: key, Serial: w.serial, Body: []byte("b")}, [16]byte{})
	w.EditSlot(job).SetState(fsm.Ready)
	w.entries = append(w.entries, idEntry{queue: queue, id: id, key: key, serial: w.serial, index: job})
}

// change lets a job die or live again, or ends it with or without a tombstone; a tombstone is
// removed.
func (w *idWorld) change(i int, how int) {
	e := &w.entries[i]
	remove := func() { w.entries[i] = w.entries[len(w.entries)-1]; w.entries = w.entries[:len(w.entries)-1] }
	switch {
	case e.ended:
		w.RemoveTombstone(e.index)
		remove()
	case e.dead:
		w.RemoveDead(e.index)
		w.EditSlot(e.index).SetState(fsm.Ready)
		e.dead = false
	case how == 0:
		w.EditSlot(e.index).SetState(fsm.Dead)
		w.AddDead(e.index)
		e.dead = true
	case how == 1:
		w.RemoveJob(e.index)
		remove()
	default:
		tombstone := w.AddTombstoneOf(e.index, fsm.Acked, 1)
		w.RemoveJob(e.index)
		e.index, e.ended = tombstone, true
	}
}

func (w *idWorld) check(t *testing.T, queue uint32, id, key string) {
	t.Helper()
	same := func(e *idEntry) bool { return e.queue == queue && e.id == id }
	met := func(e *idEntry) bool { return same(e) && (!w.perKey(queue) || e.key == key) }
	named := func(e *idEntry) bool { return same(e) && (key == "" || e.key == key) }
	find := func(match func(*idEntry) bool) (found [2]uint32) {
		found[0] = w.first(func(e *idEntry) bool { return match(e) && !e.ended })
		if found[0] == 0 {
			found[1] = w.first(func(e *idEntry) bool { return match(e) && e.ended })
		}
		return found
	}
	job, tombstone := w.ByPutID(queue, id, key)
	if want := find(met); want != [2]uint32{job, tombstone} {
		t.Fatalf("a put of %s and %q in queue %d meets job %d, tombstone %d, want %d", id, key, queue, job, tombstone, want)
	}
	job, tombstone = w.ByID(queue, id, key)
	if want := find(named); want != [2]uint32{job, tombstone} {
		t.Fatalf("%s and %q in queue %d name job %d, tombstone %d, want %d", id, key, queue, job, tombstone, want)
	}
	if got, want := w.DeadByID(queue, id), w.first(func(e *idEntry) bool { return same(e) && e.dead }); got != want {
		t.Fatalf("the DEAD job of %s in queue %d is %d, want %d", id, queue, got, want)
	}
}

// TestIDsOfKeys: jobs and tombstones are found by id and key as a list of all of them finds them,
// and nothing is left when all are gone.
func TestIDsOfKeys(t *testing.T) {
	w, rng := newIDWorld(), rand.New(rand.NewPCG(1, 2))
	keys := append(equalHashes(w.Store, w.queues[1]), "", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
	for n := range 60_000 {
		queue, id, key := w.queues[rng.IntN(2)], fmt.Sprint("id", rng.IntN(3)), keys[rng.IntN(len(keys))]
		if job, tombstone := w.ByPutID(queue, id, key); n < 50_000 && job+tombstone == 0 && rng.IntN(3) > 0 {
			w.add(queue, id, key)
		} else if len(w.entries) > 0 {
			w.change(rng.IntN(len(w.entries)), rng.IntN(4))
		}
		w.check(t, queue, id, key)
	}
	for len(w.entries) > 0 {
		w.change(0, 1)
	}
	if w.ids.Len() != 0 || w.trees.count != [idClasses]int{} {
		t.Errorf("%d entries are left, %d trees", w.ids.Len(), w.trees.count)
	}
	for kind, pages := range w.trees.pages {
		for _, p := range pages {
			if p.used != 0 || p.nodes != nil {
				t.Errorf("%d nodes are left of kind %d", p.used, kind)
			}
		}
	}
}

// equalHashes returns two keys with the same hash in a queue.
func equalHashes(s *Store, queue uint32) []string {
	seen := map[uint32]string{}
	for n := 0; ; n++ {
		key := fmt.Sprint("key-", n)
		hash := s.trees.keyHash(queue, key)
		if other, ok := seen[hash]; ok {
			return []string{other, key}
		}
		seen[hash] = key
	}
}

// TestSharedIDTakesFewSteps: however many keys have an id, a lookup of it meets few entries of the
// table and goes down a tree that is not deep, in whatever order its jobs come and go.
func TestSharedIDTakesFewSteps(t *testing.T) {
	const keys, deepest = 24_000, 48 // 3.3 times the depth of a balanced tree
	w := newIDWorld()
	queue := w.queues[1]
	check := func(when string, want int) {
		t.Helper()
		entries, depth, nodes := 0, 0, 0
		for class := range idClasses {
			name := w.idName(queue, "sync")
			w.ids.Find(class.rootHash(name.hash), func(uint32) bool { entries++; return false })
			d, n := w.trees.depth(w.trees.root(class, name))
			depth, nodes = max(depth, d), nodes+n
		}
		if entries > int(idClasses) || depth > deepest || nodes != want {
			t.Errorf("%s: %d entries of the table, %d nodes, %d below each other", when, entries, nodes, depth)
		}
	}
	for n := range keys {
		w.add(queue, "sync", fmt.Sprint("customer-", n))
	}
	check("in a row", keys)
	for i := range w.entries {
		if i%2 == 0 {
			w.change(i, 0)
		} else if i%3 == 0 {
			w.change(i, 2)
		}
	}
	check("in three trees", keys)
	for i := len(w.entries) - 1; i >= 0; i -= 2 {
		w.change(i, 1)
	}
	check("without each second", keys/2)
}

// depth returns how many nodes of a tree are below each other, and how many there are.
func (x *idTrees) depth(node uint32) (depth, nodes int) {
	if node == 0 {
		return 0, 0
	}
	n := x.node(node)
	if n == nil {
		return 1, 1
	}
	left, nodesLeft := x.depth(n.left)
	right, nodesRight := x.depth(n.right)
	return 1 + max(left, right), 1 + nodesLeft + nodesRight
}

// TestOwnIDTakesNoNode: what does not share its id costs nothing in the trees: jobs without a key,
// those of a queue with one partition, and those whose id no other key has.
func TestOwnIDTakesNoNode(t *testing.T) {
	w := newIDWorld()
	for n := range 2000 {
		w.add(w.queues[1], fmt.Sprint("a", n), "")
		w.add(w.queues[1], fmt.Sprint("b", n), "key")
		w.add(w.queues[0], fmt.Sprint("c", n), "key")
	}
	for i := 0; i < len(w.entries); i += 3 {
		w.change(i, i%2*2)
	}
	if bytes := w.trees.memory(); bytes != 0 {
		t.Errorf("the trees take %d bytes", bytes)
	}
}
