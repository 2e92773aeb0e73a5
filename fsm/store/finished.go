package store

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/digest"
	"github.com/belfrydb/belfry/fsm/table"
)

// Finished are the leases that an ack ended. They tell a repeated ack from a stale one.
type Finished struct {
	records  pages[FinishedLease]
	byFence  table.Table
	byExpiry Order
}

// FinishedLease is a lease that an ack ended, and the time up to which it is remembered.
type FinishedLease struct {
	Fence, Serial uint64
	Expiry        fsm.Time
}

// Len is the number of leases.
func (f *Finished) Len() int { return f.records.count() }

// Has reports whether a lease is remembered at time now.
func (f *Finished) Has(serial, fence uint64, now fsm.Time) bool {
	return f.byFence.Find(digest.SerialKey(fence), func(index uint32) bool {
		l := f.records.at(index)
		return l.Fence == fence && l.Serial == serial && now <= l.Expiry
	}) != 0
}

// Add adds a lease.
func (f *Finished) Add(l FinishedLease) {
	index := f.records.alloc()
	*f.records.edit(index) = l
	f.byFence.Insert(digest.SerialKey(l.Fence), index)
	f.byExpiry.Insert(index)
}

// First returns the index of the lease that expires first, and when it does; false if there is
// none.
func (f *Finished) First() (index uint32, expiry fsm.Time, ok bool) {
	k, ok := f.byExpiry.Min()
	return k.Index, k.At, ok
}

// After returns the indexes of the leases that expire after a time, in their order.
func (f *Finished) After(at fsm.Time) (indexes []uint32) {
	f.byExpiry.Ascend(Key{At: at + 1}, func(k Key) bool {
		indexes = append(indexes, k.Index)
		return true
	})
	return indexes
}

// Remove removes the lease at index and returns it.
func (f *Finished) Remove(index uint32) FinishedLease {
	l := *f.records.at(index)
	f.byFence.Remove(digest.SerialKey(l.Fence), index)
	f.byExpiry.Remove(index)
	f.records.release(index)
	return l
}
