package fsm

import "github.com/google/btree"

// treeDegree is where, at ten million keys, inserting is fastest and the collector has the fewest nodes to visit.
const treeDegree = 64

// key orders records by a time and, within it, by serial: the order in which they were put or granted. Only keys of jobs that are ready have a
// priority, which comes first.
type key struct {
	at       Time
	serial   uint64
	place    uint32 // of the record; no part of the order
	priority int8
}

func (k key) less(l key) bool {
	if k.at != l.at && k.priority == l.priority {
		return k.at < l.at
	}
	if k.priority != l.priority {
		return k.priority < l.priority
	}
	return k.serial < l.serial
}

func (k key) compare(l key) int {
	switch {
	case k.less(l):
		return -1
	case l.less(k):
		return 1
	default:
		return 0
	}
}

// turn is a queue's place in an agenda.
type turn struct {
	at    Time
	birth uint64
	queue uint32
}

func (t turn) less(u turn) bool {
	if t.at != u.at {
		return t.at < u.at
	}
	return t.birth < u.birth
}

// agenda keeps queues in the order of the next time at which each has something to do.
type agenda struct{ tree *btree.BTreeG[turn] }

func newAgenda() agenda { return agenda{btree.NewG(treeDegree, turn.less)} }

// move puts the queue's turn from one time to another; 0 stands for no turn.
func (a *agenda) move(q *queue, from, to Time) {
	if from == to {
		return
	}
	if from != 0 {
		a.tree.Delete(turn{from, q.birth, q.place})
	}
	if to != 0 {
		a.tree.ReplaceOrInsert(turn{to, q.birth, q.place})
	}
}

// first returns the earliest turn.
func (a *agenda) first() (turn, bool) { return a.tree.Min() }
