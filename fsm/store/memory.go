package store

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/table"
)

// The sizes of records in memory, and what comes with them. A test compares them with the heap.
const (
	slotBytes     = 32
	leaseBytes    = 64
	clientBytes   = 24
	tombBytes     = 40
	finishedBytes = 24
	answerBytes   = 40
	recordBytes   = 408 // of a QueueRecord
	keyBytes      = 24
	moreBytes     = 40
	groupBytes    = 44
	memoryBytes   = 48
	linkBytes     = 12
	idNodeBytes   = 12
	scheduleBytes = 40
	// indexBytes is what a sliceIndex takes for each slice: its key, and as much again because
	// blocks are at least half full.
	indexBytes = 2 * keyBytes
	// reservedBytes is what a job takes in the orders of leases, in slices that are half full.
	reservedBytes = 16
	// tombPayloadBytes is the payload of a tombstone without its id.
	tombPayloadBytes = 1 + 1 + 4 + 16 + 2
	// heapPage is what the runtime rounds large allocations up to.
	heapPage = 8 << 10
	// pageEntryBytes is what a page takes in the directory of its pages.
	pageEntryBytes = 24 + 8 + 4
)

// heapBytes returns what an allocation of n bytes takes. n is 0 or above the size classes of the
// runtime, which end at 32 KiB.
func heapBytes(n int) int64 { return (int64(n) + heapPage - 1) / heapPage * heapPage }

// memory returns what pages of records of this size take, and how much of that a pin may make
// changes copy.
func (p *pages[T]) memory(recordBytes int) (held, copyOnWrite uint64) {
	page := uint64(recordBytes) << p.shift
	if page > heapPage {
		page = uint64(heapBytes(int(page))) //nolint:gosec // a page has at most pageBytesMax
	}
	held = uint64(p.made+p.superseded)*page + uint64(cap(p.dir)*pageEntryBytes+p.pins*len(p.dir)*24+cap(p.free)*4)
	return held, uint64(max(0, p.made-p.superseded)) * page
}

func (s *blobs) memory() uint64 {
	const metaBytes = 24
	directories := cap(s.data)*24 + s.pins*len(s.data)*24
	return uint64(s.allocated) + uint64(cap(s.meta)*metaBytes+directories+cap(s.spare)*4+cap(s.limbo)*8)
}

func (o *orders) memory() uint64 {
	slices, _ := o.slices.memory(4 * sliceMax)
	return slices + uint64(cap(o.fill)*2+o.slices.count()*indexBytes+o.fronts*keyBytes)
}

// Memory returns what the store takes.
func (s *Store) Memory() fsm.Memory {
	a, f := &s.Answers, &s.Finished
	var v fsm.Memory
	add := func(held, copyOnWrite uint64) {
		v.Held += held
		v.CopyOnWrite += copyOnWrite
	}
	add(s.slots.memory(slotBytes))
	add(s.leases.memory(leaseBytes))
	add(s.clients.memory(clientBytes))
	add(s.more.memory(moreBytes))
	add(s.Keys.groups.memory(groupBytes))
	add(s.Keys.memories.memory(memoryBytes))
	add(s.Schedules.records.memory(scheduleBytes))
	v.Held += uint64(s.Keys.linkPages<<slotShift*linkBytes + cap(s.Keys.links)*24)
	add(s.tombs.memory(tombBytes))
	add(f.records.memory(finishedBytes))
	add(a.records.memory(answerBytes))
	add(s.queues.memory(recordBytes))
	for _, t := range [...]*table.Table{
		&s.serials, &s.ids, &s.tombSerials, &f.byFence, &a.table, &s.clientNames, &s.Keys.names, &s.Schedules.names,
	} {
		v.Held += t.Memory()
	}
	v.Held += s.trees.memory() + s.blobs.memory() + s.orders.memory() + uint64(cap(a.order)*16)
	unleased := max(0, s.slots.count()-s.leases.count())
	const tombstone = tombBytes + tombPayloadBytes + table.EntryBytes + reservedBytes
	v.Promised = uint64(unleased*(leaseBytes+reservedBytes) + s.withID*tombstone + s.idBytes)
	return v
}

// JobMemory returns the parts of Held, Promised and CopyOnWrite that belong to each of many held
// jobs with a body and a client-chosen id of these sizes. The size of a generated id is 0.
func JobMemory(body, id int) fsm.Memory {
	const (
		fixed = 8 + 8 + 5 + 1 // hash, created, firstDue, Given: see Payload
		// order is an entry in a slice of an order that is two thirds full, and a part of its
		// sliceIndex.
		order = 4*3/2 + 1
	)
	blob := 1 + fixed + body
	named := 0
	if id > 0 {
		blob += 4 + 16 + 1 + id
		named = tombBytes + tombPayloadBytes + table.EntryBytes + reservedBytes + id
	}
	blob += codec.LengthBytes(blob)
	stored := int(heapBytes(blob))
	if blob <= packedBytesMax {
		stored = classBytes(classOf(blob))
	}
	held := slotBytes + stored + table.EntryBytes + order
	if id > 0 {
		held += table.EntryBytes
	}
	return fsm.Memory{Held: uint64(held), Promised: uint64(leaseBytes + reservedBytes + named), CopyOnWrite: slotBytes}
}
