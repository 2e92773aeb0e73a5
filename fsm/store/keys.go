package store

import (
	"iter"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
	"github.com/belfrydb/belfry/fsm/table"
)

// Keys finds the keys of jobs, and holds the jobs of each key in an order of their own. A
// key is known by the index of its group, which is never 0. All but the memories is derived.
type Keys struct {
	store    *Store
	groups   pages[KeyGroup]
	memories pages[KeyMemory]
	names    table.Table // of groups, by queue and key
	links    [][]keyLink // by the index of the job, in pages as the slots are; nil where no job has a key
	// linkPages counts the pages of links that are not nil.
	linkPages int
	// Blocked counts the groups that their owner keeps back, by the reason.
	Blocked [fsm.KeyBlocks]int
	// Rates are the memories with a token bucket that is not full, as far as is known, by the time at
	// which it is.
	Rates Order
}

// KeyGroup is a key that has jobs or a memory.
type KeyGroup struct {
	Queue uint32 // index of the record of its queue
	// Head is the first of its jobs, 0 if there is none; root is the root of their tree.
	Head, root uint32
	// Memory is the index of the memory of the key, 0 if there is none.
	Memory uint32
	// Delayed, Ready, Reserved and Dead count its jobs.
	Delayed, Ready, Reserved, Dead uint32
	// Position and List are where its owner has it.
	Position  uint32
	namePage  uint32
	nameUnits uint16
	List      uint8
	// Counted says that its owner counts its jobs among those that may be handed out.
	Counted bool
}

// KeyMemory is what the shard keeps of a key besides its jobs.
type KeyMemory struct {
	Serial uint64
	RateAt fsm.Time
	Round  uint64
	group  uint32
	queue  uint32
	name   blobRef
	Paused bool
}

// KeyOrder is an order of the jobs of a key.
type KeyOrder uint8

// The orders.
const (
	// ByRank has the READY jobs first, by priority, due and serial.
	ByRank KeyOrder = iota
	// ByPlace has the READY and DELAYED jobs first, in the order in which they were put or redriven.
	ByPlace
)

func newKeys(s *Store) Keys {
	return Keys{
		store: s, groups: newPages[KeyGroup](groupShift), memories: newPages[KeyMemory](memoryShift), names: table.New(),
		Rates: s.orders.by(byRate),
	}
}

// At returns a group. The pointer is valid until the next group is added.
func (k *Keys) At(group uint32) *KeyGroup { return k.groups.edit(group) }

// Find returns the group of a key, 0 if there is none.
func (k *Keys) Find(queue uint32, key string) uint32 {
	return k.names.Find(k.store.idHash(queue, key), func(group uint32) bool {
		return k.groups.at(group).Queue == queue && string(k.Name(group)) == key
	})
}

// Add returns the group of a key, which it creates if there is none.
func (k *Keys) Add(queue uint32, key string) uint32 {
	if group := k.Find(queue, key); group != 0 {
		return group
	}
	ref := k.store.blobs.put(codec.AppendText(nil, key))
	group := k.groups.alloc()
	*k.groups.edit(group) = KeyGroup{Queue: queue, namePage: ref.page(), nameUnits: uint16(ref.offset() / blobUnit)}
	k.names.Insert(k.store.idHash(queue, key), group)
	return group
}

// Trim drops a group that has neither jobs nor a memory. It must be in no list of its owner.
func (k *Keys) Trim(group uint32) {
	g := k.groups.at(group)
	if g.Delayed+g.Ready+g.Reserved+g.Dead > 0 || g.Memory != 0 {
		return
	}
	k.names.Remove(k.store.idHash(g.Queue, string(k.Name(group))), group)
	k.store.blobs.release(g.name())
	k.groups.release(group)
}

func (g *KeyGroup) name() blobRef { return blobRef(g.namePage)<<32 | blobRef(g.nameUnits)*blobUnit }

// Name returns the key of a group. It aliases the store until the next change.
func (k *Keys) Name(group uint32) []byte {
	r := codec.PlainReader(k.store.blobs.at(k.groups.at(group).name()))
	return r.Bytes()
}

// All are the groups of all queues.
func (k *Keys) All() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for group := uint32(1); group < k.groups.next; group++ {
			if page, _ := k.groups.locate(group); k.groups.live[page] == 0 {
				continue
			}
			if k.groups.at(group).Queue != 0 && !yield(group) {
				return
			}
		}
	}
}

// Next returns the first group of a queue from an index on, 0 if there is none among the next most
// groups of all queues; the index after the last one that it looked at, 0 after the last of all; and
// how many it looked at.
func (k *Keys) Next(queue, from uint32, most int) (group, next uint32, passed int) {
	for from = max(1, from); from < k.groups.next && passed < most; from++ {
		if page, _ := k.groups.locate(from); k.groups.live[page] == 0 {
			from |= 1<<k.groups.shift - 1
			continue
		}
		passed++
		if k.groups.at(from).Queue == queue {
			group = from
			from++
			break
		}
	}
	if from >= k.groups.next {
		return group, 0, passed
	}
	return group, from, passed
}

// Memory returns the memory at an index for reading. The pointer is valid until the next change.
func (k *Keys) Memory(index uint32) *KeyMemory { return k.memories.at(index) }

// EditMemory returns the memory at an index for writing. The pointer is valid until the next Pin.
func (k *Keys) EditMemory(index uint32) *KeyMemory { return k.memories.edit(index) }

// Group returns the group that a memory belongs to.
func (m *KeyMemory) Group() uint32 { return m.group }

// Queue returns the index of the record of the queue of a memory.
func (m *KeyMemory) Queue() uint32 { return m.queue }

// Remember gives a group without a memory an empty one.
func (k *Keys) Remember(group uint32, serial uint64) *KeyMemory {
	g := k.groups.edit(group)
	g.Memory = k.memories.alloc()
	m := k.memories.edit(g.Memory)
	name := codec.AppendText(nil, string(k.Name(group)))
	*m = KeyMemory{Serial: serial, group: group, queue: g.Queue, name: k.store.blobs.put(name)}
	return m
}

// Forget drops the memory of a group, which must not be among Rates.
func (k *Keys) Forget(group uint32) {
	g := k.groups.edit(group)
	k.store.blobs.release(k.memories.at(g.Memory).name)
	k.memories.release(g.Memory)
	g.Memory = 0
}

// Hash is the part of the digest of the memory of a group of the named queue; 0 if it has none.
func (k *Keys) Hash(group uint32, queue string) uint64 {
	index := k.groups.at(group).Memory
	if index == 0 {
		return 0
	}
	m := k.memories.at(index)
	return digest.KeyMemory(&fsm.KeyMemory{
		Queue: queue, Key: string(k.Name(group)), Serial: m.Serial, RateAt: m.RateAt, Round: m.Round, Paused: m.Paused,
	})
}

// KeyMemories are the memories of keys, with the index of their queue.
func (p *Pinned) KeyMemories() iter.Seq2[uint32, fsm.KeyMemory] {
	return func(yield func(uint32, fsm.KeyMemory) bool) {
		for m := range p.memories.where(func(m *KeyMemory) bool { return m.Serial != 0 }) {
			r := codec.PlainReader(p.blob(m.name))
			v := fsm.KeyMemory{Key: string(r.Bytes()), Serial: m.Serial, RateAt: m.RateAt, Round: m.Round, Paused: m.Paused}
			if !yield(m.queue, v) {
				return
			}
		}
	}
}
