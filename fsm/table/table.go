// Package table finds records by the hashes of their names.
package table

// Table is a linear-hashing table from a 32-bit hash to indexes. It grows by splitting one bucket
// at a time, and shrinks by merging one, so that no change ever pays for the whole table. It keeps
// the hashes: growing reads no record, and a find hardly ever reads a wrong one. (W. Litwin, "Linear
// hashing: a new tool for file and table addressing", VLDB 1980.)
type Table struct {
	pages    [][]bucket
	overflow []bucket // overflow[0] is unused
	spare    uint32   // first free overflow bucket, chained by next
	buckets  uint32   // in use
	mask     uint32   // of the level: mask/2 < buckets <= mask+1
	count    int
}

// bucket is a cache line: seven indexes with their hashes, unused ones 0, and the overflow bucket
// that continues it.
type bucket struct {
	indexes [7]uint32
	hashes  [7]uint32
	next    uint32
	_       uint32
}

const (
	bucketBytes    = 64
	bucketsPerPage = 512
	// bucketFill is the mean number of indexes in a bucket above which the table grows. It shrinks below
	// a bucketSlack-th of that, down to a page.
	bucketFill  = 5
	bucketSlack = 3
)

// New returns an empty table.
func New() Table {
	return Table{pages: [][]bucket{make([]bucket, bucketsPerPage)}, overflow: make([]bucket, 1), buckets: 1}
}

func (t *Table) bucketOf(hash uint32) *bucket {
	n := hash & t.mask
	if n >= t.buckets {
		n &= t.mask >> 1
	}
	return t.bucketAt(n)
}

func (t *Table) bucketAt(n uint32) *bucket { return &t.pages[n/bucketsPerPage][n%bucketsPerPage] }

// Find returns the index with the given hash that match accepts, or 0.
func (t *Table) Find(hash uint32, match func(index uint32) bool) uint32 {
	for b := t.bucketOf(hash); ; b = &t.overflow[b.next] {
		for i, index := range b.indexes {
			if index != 0 && b.hashes[i] == hash && match(index) {
				return index
			}
		}
		if b.next == 0 {
			return 0
		}
	}
}

// Insert adds an index that is not in the table.
func (t *Table) Insert(hash, index uint32) {
	t.add(t.bucketOf(hash), hash, index)
	if t.count++; t.count > int(t.buckets)*bucketFill {
		t.split()
	}
}

func (t *Table) add(b *bucket, hash, index uint32) {
	for {
		for i := range b.indexes {
			if b.indexes[i] == 0 {
				b.indexes[i], b.hashes[i] = index, hash
				return
			}
		}
		if b.next == 0 {
			n := t.newOverflow() // does not move b: only link grows the slice
			t.link(b, n)
			t.overflow[n].indexes[0], t.overflow[n].hashes[0] = index, hash
			return
		}
		b = &t.overflow[b.next]
	}
}

// newOverflow returns an empty overflow bucket without moving the others: only link grows the
// slice.
func (t *Table) newOverflow() uint32 {
	if n := t.spare; n != 0 {
		t.spare = t.overflow[n].next
		t.overflow[n] = bucket{}
		return n
	}
	return uint32(len(t.overflow))
}

func (t *Table) link(b *bucket, n uint32) {
	b.next = n
	if int(n) == len(t.overflow) {
		t.overflow = append(t.overflow, bucket{})
	}
}

// Remove removes an index, which must be in the table under this hash.
func (t *Table) Remove(hash, index uint32) {
	for b := t.bucketOf(hash); ; b = &t.overflow[b.next] {
		for i := range b.indexes {
			if b.indexes[i] == index {
				b.indexes[i] = 0
				switch t.count--; {
				case t.count == 0 && len(t.overflow) > bucketsPerPage:
					*t = New()
				case t.buckets > bucketsPerPage && t.count < int(t.buckets)*bucketFill/bucketSlack:
					t.merge()
				}
				return
			}
		}
		if b.next == 0 {
			panic("fsm: an index is missing from its table")
		}
	}
}

// Replace replaces an index, which must be in the table under this hash.
func (t *Table) Replace(hash, old, index uint32) {
	for b := t.bucketOf(hash); ; b = &t.overflow[b.next] {
		for i := range b.indexes {
			if b.indexes[i] == old {
				b.indexes[i] = index
				return
			}
		}
		if b.next == 0 {
			panic("fsm: an index is missing from its table")
		}
	}
}

// Len returns the number of indexes.
func (t *Table) Len() int { return t.count }

// Memory returns what the table takes of the heap, in bytes.
func (t *Table) Memory() uint64 {
	return uint64(len(t.pages)*bucketsPerPage+cap(t.overflow)) * bucketBytes
}

// EntryBytes is what a table takes for each index when it is filled as it grows.
const EntryBytes = bucketBytes * 10 / (bucketFill * 9)

// split adds a bucket and moves to it the indexes of one bucket that belong there.
func (t *Table) split() {
	if t.buckets > t.mask {
		t.mask = t.mask<<1 | 1
	}
	fresh := t.buckets
	if int(fresh/bucketsPerPage) == len(t.pages) {
		t.pages = append(t.pages, make([]bucket, bucketsPerPage))
	}
	t.buckets++
	t.move(t.bucketAt(fresh & (t.mask >> 1)))
}

// merge undoes the last split.
func (t *Table) merge() {
	if t.buckets == t.mask>>1+1 {
		t.mask >>= 1
	}
	t.buckets--
	t.move(t.bucketAt(t.buckets))
	if t.buckets%bucketsPerPage == 0 {
		t.pages[len(t.pages)-1] = nil // or the array keeps it
		t.pages = t.pages[:len(t.pages)-1]
	}
}

// move adds the indexes of a bucket to those buckets that they belong to now.
func (t *Table) move(old *bucket) {
	chain := *old
	*old = bucket{}
	for {
		for i, index := range chain.indexes {
			if index != 0 {
				t.add(t.bucketOf(chain.hashes[i]), chain.hashes[i], index)
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
