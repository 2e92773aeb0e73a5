package table

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/belfrydb/belfry/fsm/digest"
)

// TestTableGrowsAndShrinks: a table finds what is in it at every size, and nothing else, and gives its
// memory back.
func TestTableGrowsAndShrinks(t *testing.T) {
	table, rng := New(), rand.New(rand.NewPCG(1, 2))
	empty := table.Memory()
	hashOf := func(index uint32) uint32 {
		if index%50 == 0 {
			return 7 // a chain of equal hashes
		}
		return digest.IDKey(1, index, "")
	}
	find := func(index uint32) uint32 {
		return table.Find(hashOf(index), func(found uint32) bool { return found == index })
	}
	const most = 50_000
	in := map[uint32]bool{}
	check := func() {
		t.Helper()
		for range 2000 {
			index := 1 + rng.Uint32N(most)
			if found := find(index); (found == index) != in[index] {
				t.Fatalf("%d of %d: found %d", index, len(in), found)
			}
		}
		if most := max(bucketsPerPage, bucketSlack*len(in)/bucketFill+2); table.count != len(in) ||
			int(table.buckets) > most || table.buckets > table.mask+1 || table.buckets <= table.mask/2 {
			t.Fatalf("%d indexes of %d in %d buckets, mask %b", table.count, len(in), table.buckets, table.mask)
		}
	}
	for _, target := range []int{most / 2, 10, most, 100, 5000, 1, 0} {
		for len(in) != target {
			index := 1 + rng.Uint32N(most)
			switch {
			case len(in) < target && !in[index]:
				table.Insert(hashOf(index), index)
				in[index] = true
			case len(in) > target && in[index]:
				table.Remove(hashOf(index), index)
				delete(in, index)
			}
			if rng.IntN(5000) == 0 {
				check()
			}
		}
		check()
	}
	if left := table.Memory(); left > 4*empty {
		t.Errorf("%d bytes are left of a table that was emptied, an empty one has %d", left, empty)
	}
}

// TestEmptiedTableAllocatesNothing: a queue is filled and emptied again and again, and a table with it.
func TestEmptiedTableAllocatesNothing(t *testing.T) {
	table := New()
	cycle := func() {
		for index := uint32(1); index <= 100; index++ {
			table.Insert(digest.SerialKey(uint64(index)), index)
		}
		for index := uint32(1); index <= 100; index++ {
			table.Remove(digest.SerialKey(uint64(index)), index)
		}
	}
	cycle()
	if n := testing.AllocsPerRun(100, cycle); n > 0 {
		t.Errorf("a table that is filled and emptied again allocates %v times", n)
	}
}

// TestShrunkTableDropsItsPages: what a table no longer uses is not kept by the array of its pages.
func TestShrunkTableDropsItsPages(t *testing.T) {
	table := New()
	const all = 4 * bucketsPerPage * bucketFill
	for index := uint32(1); index <= all; index++ {
		table.Insert(digest.SerialKey(uint64(index)), index)
	}
	for index := uint32(1); index < all; index++ {
		table.Remove(digest.SerialKey(uint64(index)), index)
	}
	for i, page := range table.pages[len(table.pages):cap(table.pages)] {
		if page != nil {
			t.Errorf("page %d is kept", len(table.pages)+i)
		}
	}
	if len(table.pages) != 1 {
		t.Errorf("%d pages for one index", len(table.pages))
	}
}

func TestTableAgainstMap(t *testing.T) {
	for _, hashBits := range []int{32, 6, 0} { // 6 and 0: many and all in one bucket
		table := New()
		rng := rand.New(rand.NewPCG(3, uint64(hashBits)))
		hashOf := func(index uint32) uint32 {
			if hashBits == 0 {
				return 7
			}
			return uint32(digest.Hasher(0).Word(uint64(index)).Sum()) >> (32 - hashBits)
		}
		present := map[uint32]bool{}
		limit := 20000
		if hashBits < 32 {
			limit = 2000
		}
		for range limit * 3 {
			index := uint32(rng.IntN(limit)) + 1
			found := table.Find(hashOf(index), func(p uint32) bool { return p == index })
			if (found == index) != present[index] {
				t.Fatalf("%d bits: find(%d) = %d, present: %v", hashBits, index, found, present[index])
			}
			if present[index] {
				table.Remove(hashOf(index), index)
			} else {
				table.Insert(hashOf(index), index)
			}
			present[index] = !present[index]
		}
	}
}

func TestSerialHashSpreadsEvenly(t *testing.T) {
	for _, step := range []uint64{1, 2, 3, 64, 100, 4096} {
		const buckets = 1 << 12
		var load [buckets]int
		for i := range uint64(buckets * bucketFill) {
			load[digest.SerialKey(i*step)%buckets]++
		}
		full := 0
		for _, n := range load {
			if n > 3*bucketFill {
				full++
			}
		}
		if full > buckets/100 {
			t.Errorf("serials %d apart: %d of %d buckets hold more than three times the mean", step, full, buckets)
		}
	}
}

// TestBucketIsACacheLine, as the memory of a table counts on.
func TestBucketIsACacheLine(t *testing.T) {
	if size := unsafe.Sizeof(bucket{}); size != bucketBytes {
		t.Errorf("a bucket has %d bytes", size)
	}
}
