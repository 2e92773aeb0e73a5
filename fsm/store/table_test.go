package store

import (
	"math/rand/v2"
	"testing"

	"github.com/belfrydb/belfry/fsm/digest"
)

// TestTableGrowsAndShrinks: a table finds what is in it at every size, and nothing else, and gives its
// memory back.
func TestTableGrowsAndShrinks(t *testing.T) {
	table, rng := newTable(), rand.New(rand.NewPCG(1, 2))
	empty := table.memory()
	hashOf := func(index uint32) uint32 {
		if index%50 == 0 {
			return 7 // a chain of equal hashes
		}
		return digest.IDKey(1, index, "")
	}
	find := func(index uint32) uint32 {
		return table.find(hashOf(index), func(found uint32) bool { return found == index })
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
				table.insert(hashOf(index), index)
				in[index] = true
			case len(in) > target && in[index]:
				table.remove(hashOf(index), index)
				delete(in, index)
			}
			if rng.IntN(5000) == 0 {
				check()
			}
		}
		check()
	}
	if left := table.memory(); left > 4*empty {
		t.Errorf("%d bytes are left of a table that was emptied, an empty one has %d", left, empty)
	}
}

// TestEmptiedTableAllocatesNothing: a queue is filled and emptied again and again, and a table with it.
func TestEmptiedTableAllocatesNothing(t *testing.T) {
	table := newTable()
	cycle := func() {
		for index := uint32(1); index <= 100; index++ {
			table.insert(digest.SerialKey(uint64(index)), index)
		}
		for index := uint32(1); index <= 100; index++ {
			table.remove(digest.SerialKey(uint64(index)), index)
		}
	}
	cycle()
	if n := testing.AllocsPerRun(100, cycle); n > 0 {
		t.Errorf("a table that is filled and emptied again allocates %v times", n)
	}
}

// TestShrunkTableDropsItsPages: what a table no longer uses is not kept by the array of its pages.
func TestShrunkTableDropsItsPages(t *testing.T) {
	table := newTable()
	const all = 4 * bucketsPerPage * bucketFill
	for index := uint32(1); index <= all; index++ {
		table.insert(digest.SerialKey(uint64(index)), index)
	}
	for index := uint32(1); index < all; index++ {
		table.remove(digest.SerialKey(uint64(index)), index)
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
