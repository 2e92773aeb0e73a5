package store

import "github.com/belfrydb/belfry/fsm"

// Key orders records by a time and, within it, by serial: the order in which they were put or
// leased. Only keys of jobs that are ready have the rank of their priority, which comes first.
type Key struct {
	At     fsm.Time
	Serial uint64
	Index  uint32 // of the record; not compared
	Rank   uint32 // see fsm.RankOf
}

// Less reports whether k comes before l.
func (k Key) Less(l Key) bool {
	if k.At != l.At && k.Rank == l.Rank {
		return k.At < l.At
	}
	if k.Rank != l.Rank {
		return k.Rank < l.Rank
	}
	return k.Serial < l.Serial
}

// Compare compares two keys, for slices.SortFunc.
func (k Key) Compare(l Key) int {
	switch {
	case k.Less(l):
		return -1
	case l.Less(k):
		return 1
	default:
		return 0
	}
}
