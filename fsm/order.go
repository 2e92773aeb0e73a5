package fsm

import "slices"

// order keeps the places of records by key. Only its first keys are kept sorted, as keys; those after them are in slices, each with the places of one
// range of keys in no order, so that a record costs a few bytes here and putting it touches one slice, however many there are. A slice is
// sorted when it has become the first. The keys are those that the records have: one that is in an order must not change.
//
// front holds every key below the first slice and is empty only if all is, so that the first key is at hand for readers.
type order struct {
	in     *orders
	kind   orderKind
	front  []key // sorted from head on
	head   int
	slices *index // the least key that each slice may hold, with the slice's place; nil until there was one
	n      int
	after  int // where in its slice the record was that left one last, and one more
}

// orders is what all orders of a machine have in common.
type orders struct {
	store    *store
	finished *pages[finishedLease]
	slices   pages[slice]
	fill     []uint16 // of the slices, by place: together they are soon in the cache
	spares   [][]key  // the fronts of orders that became empty, for the next that grow
	// fronts is how many keys the fronts have room for, and spares.
	fronts int
}

// slice holds places of one range of keys in no order, as many as orders.fill says.
type slice [sliceMax]uint32

const (
	// frontMax is about the most keys in a front.
	frontMax = 255
	// sliceMax is the most places in a slice: 4 KiB. In larger ones it takes longer to find a place, smaller ones are more, and so less often in the
	// cache when a record is put into one.
	sliceMax   = 1023
	sliceShift = 4
	// sliceSample is how many keys of a slice are looked at to find one that parts it.
	sliceSample = 31
	// frontKept is the most keys for which an order that is empty keeps the room, sparesKept how many larger fronts are kept for all.
	frontKept  = 16
	sparesKept = 16
)

// orderKind tells which records an order is of, and by what.
type orderKind uint8

const (
	byDue      orderKind = iota // jobs by (due, serial)
	byPriority                  // jobs by (priority, due, serial)
	byUntil                     // jobs by (until, serial)
	byTTL                       // jobs by (ttl, serial)
	byEnd                       // tombstones by (ended, serial)
	byExpiry                    // finished leases by (expiry, fence)
)

func newOrders(s *store, f *pages[finishedLease]) *orders {
	return &orders{store: s, finished: f, slices: newPages[slice](sliceShift)}
}

// by returns an empty order of the given kind.
func (o *orders) by(kind orderKind) order { return order{in: o, kind: kind} }

// key returns the key of a record in an order of the given kind.
func (o *orders) key(kind orderKind, place uint32) key {
	switch kind {
	case byEnd:
		t := o.store.tombs.at(place)
		return key{at: t.ended, serial: t.serial, place: place}
	case byExpiry:
		l := o.finished.at(place)
		return key{at: l.expiry, serial: l.fence, place: place}
	default:
	}
	s := o.store.slots.at(place)
	k := key{at: s.due, serial: s.serial, place: place}
	switch kind {
	case byPriority:
		k.priority = s.priority
	case byUntil:
		k.at = 0
		if s.grant != 0 {
			k.at = o.store.grants.at(s.grant).until
		}
	case byTTL:
		k.at = o.store.ttl(s)
	default:
	}
	return k
}

// gather appends the keys of a slice to dst.
func (o *order) gather(dst []key, place uint32) []key {
	for _, p := range o.in.slices.at(place)[:o.in.fill[place]] {
		dst = append(dst, o.in.key(o.kind, p))
	}
	return dst
}

func (o *order) len() int { return o.n }

// min returns the first key.
func (o *order) min() (key, bool) {
	if o.head == len(o.front) {
		return key{}, false
	}
	return o.front[o.head], true
}

// firstAt returns the time of the first key, 0 if there is none.
func (o *order) firstAt() Time {
	k, _ := o.min()
	return k.at
}

// sliceOf returns the slice that a key belongs to; false if it belongs to the front.
func (o *order) sliceOf(k key) (found key, ok bool) {
	block, i, ok := o.slices.find(k)
	if !ok {
		return key{}, false
	}
	return o.slices.blocks[block][i], true
}

// addTo adds a place to a slice that is not full.
func (o *order) addTo(slice, place uint32) {
	n := &o.in.fill[slice]
	o.in.slices.edit(slice)[*n] = place
	*n++
}

// insert adds the record at place, whose key is not there yet.
func (o *order) insert(place uint32) {
	k := o.in.key(o.kind, place)
	o.n++
	found, ok := o.sliceOf(k)
	if !ok {
		o.insertFront(k)
		return
	}
	if o.in.fill[found.place] == sliceMax {
		o.split(found, k)
		return
	}
	o.addTo(found.place, place)
}

func (o *order) insertFront(k key) {
	if len(o.front)-o.head >= frontMax {
		half := o.head + frontMax/2
		if o.front[len(o.front)-1].less(k) {
			o.addFirst([]key{k})
			return
		}
		o.addFirst(o.front[half:])
		o.front = o.front[:half]
		if found, ok := o.sliceOf(k); ok {
			o.addTo(found.place, k.place)
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

// addFirst puts keys, the least of them first, in front of the slices: into the first one if that has room.
func (o *order) addFirst(keys []key) {
	first := keys[0]
	if o.slices == nil || o.slices.n == 0 || int(o.in.fill[o.slices.lows[0].place])+len(keys) > sliceMax*3/4 {
		o.addSlice(first, keys)
		return
	}
	first.place = o.slices.lows[0].place
	o.slices.remove(o.slices.lows[0])
	o.slices.insert(first)
	for _, k := range keys {
		o.addTo(first.place, k.place)
	}
}

// room makes room for one more key at the end of the front.
func (o *order) room() {
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
		o.front = make([]key, 0, max(4, 2*len(kept)))
		o.in.fronts += cap(o.front)
	}
	o.front, o.head = append(o.front, kept...), 0
}

// search returns where in the front a key is or belongs.
func (o *order) search(k key) int {
	low, high := o.head, len(o.front)
	for low < high {
		if middle := int(uint(low+high) >> 1); o.front[middle].less(k) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// addSlice makes a slice of keys that are not below the first.
func (o *order) addSlice(first key, keys []key) {
	place := o.in.slices.alloc()
	for int(place) >= len(o.in.fill) {
		o.in.fill = append(o.in.fill, 0)
	}
	o.in.fill[place] = 0
	for _, k := range keys {
		o.addTo(place, k.place)
	}
	if o.slices == nil {
		o.slices = &index{}
	}
	first.place = place
	o.slices.insert(first)
}

// split adds a key to a full slice by making two of it. Keys that come in their order make slices that stay full.
func (o *order) split(found, k key) {
	var buffer [sliceMax + 1]key
	keys := o.gather(buffer[:0], found.place)
	pivot := quantile(keys, sliceMax/2)
	if !slices.ContainsFunc(keys, k.less) {
		pivot = k
	}
	keys = append(keys, k)
	o.in.fill[found.place] = 0
	upper := keys[:0]
	for _, k := range keys {
		if k.less(pivot) {
			o.addTo(found.place, k.place)
		} else {
			upper = append(upper, k)
		}
	}
	o.addSlice(pivot, upper)
}

// quantile returns one of at least sliceSample keys below which are about n of them, and at least one.
func quantile(keys []key, n int) key {
	var sample [sliceSample]key
	for i := range sample {
		sample[i] = keys[i*len(keys)/sliceSample]
	}
	slices.SortFunc(sample[:], key.compare)
	return sample[max(1, min(n*sliceSample/len(keys), sliceSample-1))]
}

// remove takes out a record, whose key is still what it was.
func (o *order) remove(place uint32) {
	k := o.in.key(o.kind, place)
	o.n--
	if found, ok := o.sliceOf(k); ok {
		o.removeFrom(found, place)
		return
	}
	i := o.search(k)
	if i == len(o.front) || o.front[i].place != place {
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

// discard gives up an order that is empty and used no more, with the room that its front keeps.
func (o *order) discard() {
	o.in.fronts -= cap(o.front)
	o.front, o.head = nil, 0
}

// advance makes the first keys of the first slice the front, which is empty.
func (o *order) advance() {
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
		o.front = make([]key, 0, 2*frontMax)
	}
	var buffer [sliceMax]key
	keys := o.gather(buffer[:0], first.place)
	if len(keys) <= frontMax {
		o.front = append(o.front, keys...)
		o.in.slices.release(first.place)
	} else {
		pivot := quantile(keys, frontMax)
		pivot.place = first.place
		o.in.fill[first.place] = 0
		for _, k := range keys {
			if k.less(pivot) {
				o.front = append(o.front, k)
			} else {
				o.addTo(first.place, k.place)
			}
		}
		o.slices.insert(pivot)
	}
	slices.SortFunc(o.front, key.compare)
}

func (o *order) removeFrom(found key, place uint32) {
	n := &o.in.fill[found.place]
	places := o.in.slices.edit(found.place)[:*n]
	// What was put in one after the other often leaves one after the other: the next is looked for behind the last.
	from := min(o.after, len(places))
	i := slices.Index(places[from:], place)
	if i >= 0 {
		i += from
	} else if i = slices.Index(places[:from], place); i < 0 {
		panic("fsm: a record is missing from its order")
	}
	o.after = i + 1
	*n--
	places[i] = places[*n]
	if *n%64 == 0 && *n <= sliceMax/2 {
		o.merge(found)
	}
}

// merge drops a slice that is empty, or makes one of a slice that is half empty and one beside it if both together are not more.
func (o *order) merge(found key) {
	if o.in.fill[found.place] == 0 {
		o.drop(found)
		return
	}
	if next, ok := o.slices.beside(found, 1); ok && o.take(found, next) {
		return
	}
	if before, ok := o.slices.beside(found, -1); ok { // where keys go in their order, what they leave is before
		o.take(before, found)
	}
}

// take moves the places of a slice into the one before it. It reports false if they are too many.
func (o *order) take(into, from key) bool {
	if int(o.in.fill[into.place])+int(o.in.fill[from.place]) > sliceMax/2 {
		return false
	}
	for _, place := range o.in.slices.at(from.place)[:o.in.fill[from.place]] {
		o.addTo(into.place, place)
	}
	o.drop(from)
	return true
}

func (o *order) drop(found key) {
	o.slices.remove(found)
	o.in.slices.release(found.place)
}

// ascend calls f for the keys from the given one on, in their order, until it returns false. It changes nothing.
func (o *order) ascend(from key, f func(key) bool) {
	for _, k := range o.front[o.search(from):] {
		if !f(k) {
			return
		}
	}
	if o.slices == nil || o.slices.n == 0 {
		return
	}
	buffer := make([]key, 0, sliceMax)
	o.slices.ascend(from, func(s key) bool {
		buffer = o.gather(buffer[:0], s.place)
		slices.SortFunc(buffer, key.compare)
		for _, k := range buffer {
			if !k.less(from) && !f(k) {
				return false
			}
		}
		return true
	})
}

// from returns the first key from the given one on; false if there is none. It sorts nothing.
func (o *order) from(k key) (least key, ok bool) {
	if i := o.search(k); i < len(o.front) {
		return o.front[i], true
	}
	if o.slices == nil {
		return key{}, false
	}
	o.slices.ascend(k, func(s key) bool {
		for _, place := range o.in.slices.at(s.place)[:o.in.fill[s.place]] {
			if found := o.in.key(o.kind, place); !found.less(k) && (!ok || found.less(least)) {
				least, ok = found, true
			}
		}
		return !ok
	})
	return least, ok
}

// upTo counts the keys up to now, at most limit, and returns the time of the first one after now, 0 if there is none or the limit is reached.
func (o *order) upTo(now Time, limit uint64) (n uint64, next Time) {
	after := key{at: now + 1}
	i := o.search(after)
	n = uint64(i - o.head)
	if n >= limit {
		return limit, 0
	}
	if i < len(o.front) {
		return n, o.front[i].at
	}
	if o.slices == nil {
		return n, 0
	}
	last, ok := o.sliceOf(after)
	o.slices.ascend(key{priority: -128}, func(s key) bool {
		if ok && s.less(last) {
			n += uint64(o.in.fill[s.place])
			return n < limit
		}
		var buffer [sliceMax]key
		for _, k := range o.gather(buffer[:0], s.place) {
			if k.at <= now {
				n++
			} else if next == 0 || k.at < next {
				next = k.at
			}
		}
		return next == 0 && n < limit
	})
	if n >= limit {
		return limit, 0
	}
	return n, next
}
