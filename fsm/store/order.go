package store

import (
	"slices"

	"github.com/belfrydb/belfry/fsm"
)

// Order keeps the indexes of records by key. Only the front, the first keys, is sorted and stored
// as keys. The rest is in slices; each has the unsorted indexes of one range of keys. So a record
// costs a few bytes here, and adding one touches one slice, however many there are. An empty front
// is filled with the least keys of the first slice, sorted. Keys are read from the records, so the
// key of a record must not change while the record is in an order.
//
// front holds every key below the first slice. It is empty only if the order is empty, so that
// readers find the first key there.
type Order struct {
	in     *orders
	kind   OrderKind
	front  []Key // sorted from head on
	head   int
	slices *sliceIndex // the least key that each slice may hold, with the index of the slice; nil at first
	n      int
	after  int // the position after the one that the last removal from a slice cleared
}

// orders is the state common to all orders of a machine.
type orders struct {
	store    *Store
	finished *pages[FinishedLease]
	slices   pages[slice]
	fill     []uint16 // of the slices, by index: one array, which is soon in the cache
	spares   [][]Key  // the fronts of orders that became empty, for orders that grow
	// fronts is how many keys the fronts and the spares have room for.
	fronts int
}

// slice holds the indexes of one range of keys, unsorted, as many as orders.fill says.
type slice [sliceMax]uint32

const (
	// frontMax is about the most keys in a front.
	frontMax = 255
	// sliceMax bounds the indexes in a slice: 4 KiB. In larger slices a search takes longer.
	// Smaller ones are more, so that the one that a record is added to is less often in the cache.
	sliceMax   = 1023
	sliceShift = 4
	// sliceSample is the size of the sample of keys from which a full slice chooses the key to
	// split at.
	sliceSample = 31
	// frontKept bounds the front that an empty order keeps, in keys. sparesKept bounds the larger
	// fronts that are kept for all orders.
	frontKept  = 16
	sparesKept = 16
)

// OrderKind says which records an order has, and by which key.
type OrderKind uint8

// These are the kinds.
const (
	ByDue      OrderKind = iota // jobs by (due, serial)
	ByPriority                  // jobs by (rank, due, serial); FIFO ones by (rank, created, serial)
	ByUntil                     // jobs by (until, serial)
	ByTTL                       // jobs by (ttl, serial)
	ByEnd                       // tombstones by (ended, serial)
	byExpiry                    // finished leases by (expiry, fence)
	byRate                      // memories of keys by (time of the full bucket, serial)
	bySchedule                  // schedules by (next, serial)
	ByMemory                    // memories of keys by serial
	ByDeath                     // jobs by (due, serial); FIFO ones by (died, fence)
)

// by returns an empty order of the given kind.
func (o *orders) by(kind OrderKind) Order { return Order{in: o, kind: kind} }

// key returns the key of a record in an order of the given kind.
func (o *orders) key(kind OrderKind, index uint32) Key {
	switch kind {
	case ByEnd:
		t := o.store.tombs.at(index)
		return Key{At: t.Ended, Serial: t.Serial, Index: index}
	case byExpiry:
		l := o.finished.at(index)
		return Key{At: l.Expiry, Serial: l.Fence, Index: index}
	case byRate:
		m := o.store.Keys.memories.at(index)
		return Key{At: m.RateAt, Serial: m.Serial, Index: index}
	case ByMemory:
		return Key{Serial: o.store.Keys.memories.at(index).Serial, Index: index}
	case bySchedule:
		r := o.store.Schedules.records.at(index)
		return Key{At: r.Next, Serial: r.Serial, Index: index}
	default:
	}
	s := o.store.slots.at(index)
	k := Key{At: s.Due, Serial: s.Serial, Index: index}
	switch kind {
	case ByPriority:
		k.Rank, k.At = o.store.place(s)
	case ByUntil:
		k.At = 0
		if s.lease != 0 {
			k.At = o.store.leases.at(s.lease).Until
		}
	case ByTTL:
		k.At = o.store.TTL(s)
	case ByDeath:
		if s.IsFIFO() {
			l := o.store.leases.at(s.lease)
			k.At, k.Serial = l.Died, l.Fence
		}
	default:
	}
	return k
}

// gather appends the keys of a slice to dst.
func (o *Order) gather(dst []Key, index uint32) []Key {
	for _, p := range o.in.slices.at(index)[:o.in.fill[index]] {
		dst = append(dst, o.in.key(o.kind, p))
	}
	return dst
}

// Len returns the number of records.
func (o *Order) Len() int { return o.n }

// Min returns the first key.
func (o *Order) Min() (Key, bool) {
	if o.head == len(o.front) {
		return Key{}, false
	}
	return o.front[o.head], true
}

// FirstAt returns the time of the first key, 0 if there is none.
func (o *Order) FirstAt() fsm.Time {
	k, _ := o.Min()
	return k.At
}

// sliceOf returns the slice that a key belongs to; false if it belongs to the front.
func (o *Order) sliceOf(k Key) (found Key, ok bool) {
	block, i, ok := o.slices.find(k)
	if !ok {
		return Key{}, false
	}
	return o.slices.blocks[block][i], true
}

// addTo adds an index to a slice that is not full.
func (o *Order) addTo(slice, index uint32) {
	n := &o.in.fill[slice]
	o.in.slices.edit(slice)[*n] = index
	*n++
}

// Insert adds the record at index. The order must not have a record of the same key.
func (o *Order) Insert(index uint32) {
	k := o.in.key(o.kind, index)
	o.n++
	found, ok := o.sliceOf(k)
	if !ok {
		o.insertFront(k)
		return
	}
	if o.in.fill[found.Index] == sliceMax {
		o.split(found, k)
		return
	}
	o.addTo(found.Index, index)
}

// insertFront adds a key that is below the first slice.
func (o *Order) insertFront(k Key) {
	if len(o.front)-o.head >= frontMax {
		half := o.head + frontMax/2
		if o.front[len(o.front)-1].Less(k) {
			o.addFirst([]Key{k})
			return
		}
		o.addFirst(o.front[half:])
		o.front = o.front[:half]
		if found, ok := o.sliceOf(k); ok {
			o.addTo(found.Index, k.Index)
			return
		}
	}
	if len(o.front) == cap(o.front) {
		o.room()
	}
	i := o.search(k)
	o.front = append(o.front, k)
	copy(o.front[i+1:], o.front[i:])
	o.front[i] = k
}

// addFirst moves keys, the least of them first, in front of the slices: into the first slice if
// that has room.
func (o *Order) addFirst(keys []Key) {
	first := keys[0]
	if o.slices == nil || o.slices.n == 0 || int(o.in.fill[o.slices.lows[0].Index])+len(keys) > sliceMax*3/4 {
		o.addSlice(first, keys)
		return
	}
	first.Index = o.slices.lows[0].Index
	o.slices.remove(o.slices.lows[0])
	o.slices.insert(first)
	for _, k := range keys {
		o.addTo(first.Index, k.Index)
	}
}

// room makes room for one more key at the end of the front.
func (o *Order) room() {
	kept := o.front[o.head:]
	last := len(o.in.spares) - 1
	switch {
	case o.head >= max(1, len(o.front)/2):
		o.front = o.front[:0]
	case len(kept) >= frontKept && last >= 0 && cap(o.in.spares[last]) > len(kept):
		o.in.fronts -= cap(o.front)
		o.front, o.in.spares = o.in.spares[last], o.in.spares[:last]
	default:
		o.in.fronts -= cap(o.front)
		o.front = make([]Key, 0, max(4, 2*len(kept)))
		o.in.fronts += cap(o.front)
	}
	o.front, o.head = append(o.front, kept...), 0
}

// search returns the position in the front of a key, or where it belongs.
func (o *Order) search(k Key) int {
	low, high := o.head, len(o.front)
	for low < high {
		if middle := int(uint(low+high) >> 1); o.front[middle].Less(k) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// addSlice creates a slice of keys, none of which is below first.
func (o *Order) addSlice(first Key, keys []Key) {
	index := o.in.slices.alloc()
	for int(index) >= len(o.in.fill) {
		o.in.fill = append(o.in.fill, 0)
	}
	o.in.fill[index] = 0
	for _, k := range keys {
		o.addTo(index, k.Index)
	}
	if o.slices == nil {
		o.slices = &sliceIndex{}
	}
	first.Index = index
	o.slices.insert(first)
}

// split adds a key to a full slice and splits it in two. Keys that come in their order leave full
// slices behind.
func (o *Order) split(found, k Key) {
	var buffer [sliceMax + 1]Key
	keys := o.gather(buffer[:0], found.Index)
	pivot := quantile(keys, sliceMax/2)
	if !slices.ContainsFunc(keys, k.Less) {
		pivot = k
	}
	keys = append(keys, k)
	o.in.fill[found.Index] = 0
	upper := keys[:0]
	for _, k := range keys {
		if k.Less(pivot) {
			o.addTo(found.Index, k.Index)
		} else {
			upper = append(upper, k)
		}
	}
	o.addSlice(pivot, upper)
}

// quantile returns a key that has about n of the keys below it, and at least one. There must be at
// least sliceSample keys.
func quantile(keys []Key, n int) Key {
	var sample [sliceSample]Key
	for i := range sample {
		sample[i] = keys[i*len(keys)/sliceSample]
	}
	slices.SortFunc(sample[:], Key.Compare)
	return sample[max(1, min(n*sliceSample/len(keys), sliceSample-1))]
}

// Remove removes the record at index. Its key must be the one that it was added with.
func (o *Order) Remove(index uint32) {
	k := o.in.key(o.kind, index)
	o.n--
	if found, ok := o.sliceOf(k); ok {
		o.removeFrom(found, index)
		return
	}
	i := o.search(k)
	if i == len(o.front) || o.front[i].Index != index {
		panic("fsm: a record is missing from its order")
	}
	if i == o.head {
		o.head++
	} else {
		o.front = slices.Delete(o.front, i, i+1)
	}
	if o.head == len(o.front) {
		o.advance()
	}
}

// Discard frees the front of an empty order that is not used any more.
func (o *Order) Discard() {
	o.in.fronts -= cap(o.front)
	o.front, o.head = nil, 0
}

// advance moves the first keys of the first slice into the empty front.
func (o *Order) advance() {
	o.front, o.head = o.front[:0], 0
	if o.n == 0 {
		if cap(o.front) > frontKept {
			if len(o.in.spares) < sparesKept {
				o.in.spares = append(o.in.spares, o.front)
			} else {
				o.in.fronts -= cap(o.front)
			}
			o.front = nil
		}
		return
	}
	first := o.slices.lows[0]
	o.slices.remove(first)
	if cap(o.front) < frontMax {
		o.in.fronts += 2*frontMax - cap(o.front)
		o.front = make([]Key, 0, 2*frontMax)
	}
	var buffer [sliceMax]Key
	keys := o.gather(buffer[:0], first.Index)
	if len(keys) <= frontMax {
		o.front = append(o.front, keys...)
		o.in.slices.release(first.Index)
	} else {
		pivot := quantile(keys, frontMax)
		pivot.Index = first.Index
		o.in.fill[first.Index] = 0
		for _, k := range keys {
			if k.Less(pivot) {
				o.front = append(o.front, k)
			} else {
				o.addTo(first.Index, k.Index)
			}
		}
		o.slices.insert(pivot)
	}
	slices.SortFunc(o.front, Key.Compare)
}

// removeFrom removes the record at index from a slice.
func (o *Order) removeFrom(found Key, index uint32) {
	n := &o.in.fill[found.Index]
	indexes := o.in.slices.edit(found.Index)[:*n]
	// Records that come in a row often go in a row, so the search starts after the last removal.
	from := min(o.after, len(indexes))
	i := slices.Index(indexes[from:], index)
	if i >= 0 {
		i += from
	} else if i = slices.Index(indexes[:from], index); i < 0 {
		panic("fsm: a record is missing from its order")
	}
	o.after = i + 1
	*n--
	indexes[i] = indexes[*n]
	if *n%64 == 0 && *n <= sliceMax/2 {
		o.merge(found)
	}
}

// merge drops an empty slice. Else it merges a half empty slice with a neighbour if both together
// are not more than half a slice.
func (o *Order) merge(found Key) {
	if o.in.fill[found.Index] == 0 {
		o.drop(found)
		return
	}
	if next, ok := o.slices.beside(found, 1); ok && o.mergeInto(found, next) {
		return
	}
	if before, ok := o.slices.beside(found, -1); ok { // keys that go in their order leave slices before
		o.mergeInto(before, found)
	}
}

// mergeInto moves the records of a slice into the one before it. It reports false if they are too
// many.
func (o *Order) mergeInto(into, from Key) bool {
	if int(o.in.fill[into.Index])+int(o.in.fill[from.Index]) > sliceMax/2 {
		return false
	}
	for _, index := range o.in.slices.at(from.Index)[:o.in.fill[from.Index]] {
		o.addTo(into.Index, index)
	}
	o.drop(from)
	return true
}

// drop removes a slice from the order.
func (o *Order) drop(found Key) {
	o.slices.remove(found)
	o.in.slices.release(found.Index)
}

// Ascend calls f for the keys from the given one on, in their order, until f returns false. It
// changes nothing.
func (o *Order) Ascend(from Key, f func(Key) bool) {
	for _, k := range o.front[o.search(from):] {
		if !f(k) {
			return
		}
	}
	if o.slices == nil || o.slices.n == 0 {
		return
	}
	buffer := make([]Key, 0, sliceMax)
	o.slices.ascend(from, func(s Key) bool {
		buffer = o.gather(buffer[:0], s.Index)
		slices.SortFunc(buffer, Key.Compare)
		for _, k := range buffer {
			if !k.Less(from) && !f(k) {
				return false
			}
		}
		return true
	})
}

// From returns the first key from the given one on; false if there is none. It sorts nothing.
func (o *Order) From(k Key) (least Key, ok bool) {
	if i := o.search(k); i < len(o.front) {
		return o.front[i], true
	}
	if o.slices == nil {
		return Key{}, false
	}
	o.slices.ascend(k, func(s Key) bool {
		for _, index := range o.in.slices.at(s.Index)[:o.in.fill[s.Index]] {
			if found := o.in.key(o.kind, index); !found.Less(k) && (!ok || found.Less(least)) {
				least, ok = found, true
			}
		}
		return !ok
	})
	return least, ok
}

// Each calls f for all keys, in no order. It sorts nothing.
func (o *Order) Each(f func(Key)) {
	for _, k := range o.front[o.head:] {
		f(k)
	}
	if o.slices == nil {
		return
	}
	o.slices.ascend(Key{}, func(s Key) bool {
		for _, index := range o.in.slices.at(s.Index)[:o.in.fill[s.Index]] {
			f(o.in.key(o.kind, index))
		}
		return true
	})
}

// Below counts the keys of an order by priority whose rank is below the given one. It looks at the
// keys of one slice at most.
func (o *Order) Below(rank uint32) (n uint64) {
	bound := Key{Rank: rank}
	n = uint64(o.search(bound) - o.head)
	last, ok := o.sliceOf(bound)
	if !ok {
		return n
	}
	o.slices.ascend(Key{}, func(s Key) bool {
		if s != last {
			n += uint64(o.in.fill[s.Index])
			return true
		}
		for _, index := range o.in.slices.at(s.Index)[:o.in.fill[s.Index]] {
			if o.in.key(o.kind, index).Less(bound) {
				n++
			}
		}
		return false
	})
	return n
}

// UpTo counts the keys up to now, at most limit, and returns the time of the first key after now.
// That is 0 if there is none or the limit is reached.
func (o *Order) UpTo(now fsm.Time, limit uint64) (n uint64, next fsm.Time) {
	after := Key{At: now + 1}
	i := o.search(after)
	n = uint64(i - o.head)
	if n >= limit {
		return limit, 0
	}
	if i < len(o.front) {
		return n, o.front[i].At
	}
	if o.slices == nil {
		return n, 0
	}
	last, ok := o.sliceOf(after)
	o.slices.ascend(Key{}, func(s Key) bool {
		if ok && s.Less(last) {
			n += uint64(o.in.fill[s.Index])
			return n < limit
		}
		var buffer [sliceMax]Key
		for _, k := range o.gather(buffer[:0], s.Index) {
			if k.At <= now {
				n++
			} else if next == 0 || k.At < next {
				next = k.At
			}
		}
		return next == 0 && n < limit
	})
	if n >= limit {
		return limit, 0
	}
	return n, next
}
