package raftgroup

import (
	"slices"

	"github.com/belfrydb/belfry/node/outcome"
)

const (
	// digestEvery is the number of entries of a group's log between two digests that all replicas
	// keep for comparison.
	digestEvery = 512
	// digestsKept is the number of digests that a replica keeps: those of the last 16,384 entries.
	digestsKept = 32
)

// IndexDigest is the digest of a group's machine after the entry at Index.
type IndexDigest struct {
	Index  uint64 `json:"index"`
	Digest uint64 `json:"digest,string"`
}

// keepDigest keeps the digest of the machine if the entry just applied is the first at or after a
// multiple of digestEvery. The log alone decides which entries those are, so all replicas keep
// digests of the same entries. mu is held.
func (r *Replica) keepDigest(before uint64) {
	if r.index/digestEvery == before/digestEvery {
		return
	}
	if len(r.digests) == digestsKept {
		r.digests = slices.Delete(r.digests, 0, 1)
	}
	r.digests = append(r.digests, IndexDigest{r.index, r.machine.Digest()})
}

// compared returns the digests to compare with other replicas: the kept digests, and the present
// one.
func (r *Replica) compared() (all []IndexDigest) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.index == 0 {
		return nil
	}
	all = slices.Clone(r.digests)
	if len(all) == 0 || all[len(all)-1].Index != r.index {
		all = append(all, IndexDigest{r.index, r.machine.Digest()})
	}
	return all
}

// Differs returns nil if the digest of the replica at right.Index differs from right.
func (r *Replica) Differs(right IndexDigest) error {
	all := r.compared()
	i := slices.IndexFunc(all, func(d IndexDigest) bool { return d.Index == right.Index })
	if i < 0 || all[i].Digest == right.Digest {
		return outcome.ErrDisproved
	}
	return nil
}
