package fsm

// table is a linear-hashing table from a 32-bit hash to places: it grows by splitting one bucket at a time, so that no insert
// ever pays for the whole table. It keeps the hashes, so that it reads no record to grow and hardly ever one in vain to find.
// (W. Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980.)
type table struct {
	pages    [][]bucket
	overflow []bucket // overflow[0] is unused
	spare    uint32   // first free overflow bucket, chained by next
	buckets  uint32   // in use
	mask     uint32   // of the level: mask/2 < buckets <= mask+1
	count    int
}

// bucket is a cache line: seven places with their hashes, unused ones 0, and the overflow bucket that goes on.
type bucket struct {
	places [7]uint32
	hashes [7]uint32
	next   uint32
	_      uint32
}

const (
	bucketsPerPage = 512
	// bucketFill is the mean number of places in a bucket above which the table grows.
	bucketFill = 5
)

func newTable() table {
	return table{pages: [][]bucket{make([]bucket, bucketsPerPage)}, overflow: make([]bucket, 1), buckets: 1}
}

func (t *table) bucketOf(hash uint32) *bucket {
	n := hash & t.mask
	if n >= t.buckets {
		n &= t.mask >> 1
	}
	return t.bucketAt(n)
}

func (t *table) bucketAt(n uint32) *bucket { return &t.pages[n/bucketsPerPage][n%bucketsPerPage] }

// find returns the place with the given hash that match accepts, or 0.
func (t *table) find(hash uint32, match func(place uint32) bool) uint32 {
	for b := t.bucketOf(hash); ; b = &t.overflow[b.next] {
		for i, place := range b.places {
			if place != 0 && b.hashes[i] == hash && match(place) {
				return place
			}
		}
		if b.next == 0 {
			return 0
		}
	}
}

// insert adds a place that is not in the table.
func (t *table) insert(hash, place uint32) {
	t.add(t.bucketOf(hash), hash, place)
	if t.count++; t.count > int(t.buckets)*bucketFill {
		t.split()
	}
}

func (t *table) add(b *bucket, hash, place uint32) {
	for {
		for i := range b.places {
			if b.places[i] == 0 {
				b.places[i], b.hashes[i] = place, hash
				return
			}
		}
		if b.next == 0 {
			n := t.newOverflow() // may move the overflow buckets, b among them: so b.next is set through the place that stays
			t.link(b, n)
			t.overflow[n].places[0], t.overflow[n].hashes[0] = place, hash
			return
		}
		b = &t.overflow[b.next]
	}
}

// newOverflow returns an empty overflow bucket without moving the others: the slice grows only through link.
func (t *table) newOverflow() uint32 {
	if n := t.spare; n != 0 {
		t.spare = t.overflow[n].next
		t.overflow[n] = bucket{}
		return n
	}
	return uint32(len(t.overflow))
}

func (t *table) link(b *bucket, n uint32) {
	b.next = n
	if int(n) == len(t.overflow) {
		t.overflow = append(t.overflow, bucket{})
	}
}

// remove takes a place out; it must be in the table under this hash.
func (t *table) remove(hash, place uint32) {
	for b := t.bucketOf(hash); ; b = &t.overflow[b.next] {
		for i := range b.places {
			if b.places[i] == place {
				b.places[i] = 0
				t.count--
				return
			}
		}
		if b.next == 0 {
			panic("fsm: a place is missing from its table")
		}
	}
}

// split moves the places of one bucket that belong to the new last bucket there.
func (t *table) split() {
	if t.buckets > t.mask {
		t.mask = t.mask<<1 | 1
	}
	fresh := t.buckets
	if int(fresh/bucketsPerPage) == len(t.pages) {
		t.pages = append(t.pages, make([]bucket, bucketsPerPage))
	}
	old := t.bucketAt(fresh & (t.mask >> 1))
	t.buckets++

	chain := *old
	*old = bucket{}
	for {
		for i, place := range chain.places {
			if place != 0 {
				t.add(t.bucketOf(chain.hashes[i]), chain.hashes[i], place)
			}
		}
		n := chain.next
		if n == 0 {
			return
		}
		chain = t.overflow[n]
		t.overflow[n] = bucket{next: t.spare}
		t.spare = n
	}
}
