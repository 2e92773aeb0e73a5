package agenda

import (
	"github.com/google/btree"

	"github.com/belfrydb/belfry/fsm"
)

// degree is where, at ten million entries, inserting is fastest and the collector has the fewest
// nodes to visit.
const degree = 64

// Item is a record in the order of an agenda. No two items have the same Seq, which orders those of
// one time. Index finds the record.
type Item struct {
	Seq   uint64
	Index uint32
}

// Entry is when an item is due.
type Entry struct {
	At fsm.Time
	Item
}

func (e Entry) less(f Entry) bool {
	if e.At != f.At {
		return e.At < f.At
	}
	return e.Seq < f.Seq
}

// Agenda has at most one entry for each item.
type Agenda struct{ tree *btree.BTreeG[Entry] }

// New returns an empty agenda.
func New() Agenda { return Agenda{btree.NewG(degree, Entry.less)} }

// Move changes the entry of an item from one time to another; time 0 stands for no entry. The caller
// must remember the time, as an item is found by it.
func (a *Agenda) Move(i Item, from, to fsm.Time) {
	if from == to {
		return
	}
	if from != 0 {
		a.tree.Delete(Entry{from, i})
	}
	if to != 0 {
		a.tree.ReplaceOrInsert(Entry{to, i})
	}
}

// First returns the earliest entry; false if there is none.
func (a *Agenda) First() (Entry, bool) { return a.tree.Min() }
