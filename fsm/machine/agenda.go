package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/google/btree"
)

// treeDegree is where, at ten million keys, inserting is fastest and the collector has the fewest
// nodes to visit.
const treeDegree = 64

// agendaEntry is when a queue is due in an agenda.
type agendaEntry struct {
	at        fsm.Time
	createSeq uint64
	queue     uint32
}

func (t agendaEntry) less(u agendaEntry) bool {
	if t.at != u.at {
		return t.at < u.at
	}
	return t.createSeq < u.createSeq
}

// agenda orders queues by the next time at which each has something to do.
type agenda struct{ tree *btree.BTreeG[agendaEntry] }

func newAgenda() agenda { return agenda{btree.NewG(treeDegree, agendaEntry.less)} }

// move changes the entry of a queue from one time to another; time 0 stands for no entry.
func (a *agenda) move(q *queue, from, to fsm.Time) {
	if from == to {
		return
	}
	if from != 0 {
		a.tree.Delete(agendaEntry{from, q.createSeq, q.index})
	}
	if to != 0 {
		a.tree.ReplaceOrInsert(agendaEntry{to, q.createSeq, q.index})
	}
}

// first returns the earliest entry.
func (a *agenda) first() (agendaEntry, bool) { return a.tree.Min() }
