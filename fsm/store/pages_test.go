package store

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/belfrydb/belfry/fsm"
)

func TestPageSizes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		bytes uintptr
		want  uintptr // of one record; 0 where it does not matter
	}{
		{"slot", unsafe.Sizeof(Slot{}) << slotShift, slotBytes << slotShift},
		{"lease", unsafe.Sizeof(Lease{}) << leaseShift, leaseBytes << leaseShift},
		{"tomb", unsafe.Sizeof(Tomb{}) << tombShift, tombBytes << tombShift},
		{"answer", unsafe.Sizeof(answer{}) << answerShift, answerBytes << answerShift},
		{"queue", unsafe.Sizeof(fsm.QueueRecord{}) << queueShift,
			recordBytes << queueShift},
		{"finished lease", unsafe.Sizeof(FinishedLease{}) << finishedShift, finishedBytes << finishedShift},
	} {
		if tc.bytes > pageBytesMax {
			t.Errorf("a page of %s has %d bytes, more than %d", tc.name, tc.bytes, pageBytesMax)
		}
		if tc.want != 0 && tc.bytes != tc.want {
			t.Errorf("a page of %s has %d bytes, the memory budget counts on %d", tc.name, tc.bytes, tc.want)
		}
	}
}

func TestPinnedPagesKeepTheirRecords(t *testing.T) {
	p := newPages[uint64](4)
	rng := rand.New(rand.NewPCG(1, 1))
	indexes := map[uint32]uint64{}
	var frozen []map[uint32]uint64
	var pinned []pinnedPages[uint64]
	for step := range 5000 {
		switch k := rng.IntN(10); {
		case k < 5 || len(indexes) == 0:
			index := p.alloc()
			if _, taken := indexes[index]; taken || index == 0 {
				t.Fatalf("step %d: index %d is given out twice", step, index)
			}
			if *p.at(index) != 0 {
				t.Fatalf("step %d: the record at index %d is not zeroed", step, index)
			}
			indexes[index] = rng.Uint64() | 1
			*p.edit(index) = indexes[index]
		case k < 7:
			index := smallestIndex(indexes)
			indexes[index] = rng.Uint64() | 1
			*p.edit(index) = indexes[index]
		case k < 9:
			index := smallestIndex(indexes)
			delete(indexes, index)
			p.release(index)
		case len(pinned) < 2:
			copied := map[uint32]uint64{}
			for index, v := range indexes {
				copied[index] = v
			}
			frozen, pinned = append(frozen, copied), append(pinned, p.pin())
		default:
			for i := range pinned {
				checkPinned(t, &pinned[i], frozen[i])
				p.unpin()
			}
			frozen, pinned = nil, nil
		}
		if p.count() != len(indexes) {
			t.Fatalf("step %d: count is %d, should be %d", step, p.count(), len(indexes))
		}
	}
	for index, v := range indexes {
		if *p.at(index) != v {
			t.Errorf("index %d holds %d, should hold %d", index, *p.at(index), v)
		}
	}
}

// smallestIndex returns the smallest index, so that the test is repeatable.
func smallestIndex(indexes map[uint32]uint64) uint32 {
	least := uint32(1<<32 - 1)
	for index := range indexes {
		least = min(least, index)
	}
	return least
}

func checkPinned(t *testing.T, pinned *pinnedPages[uint64], want map[uint32]uint64) {
	t.Helper()
	found := 0
	for page, records := range pinned.dir {
		for i, v := range records {
			if v == 0 {
				continue
			}
			found++
			if index := uint32(page)<<pinned.shift | uint32(i); want[index] != v {
				t.Fatalf("the pinned pages have %d at index %d, it was %d", v, index, want[index])
			}
		}
	}
	if found != len(want) {
		t.Fatalf("the pinned pages have %d records, there were %d", found, len(want))
	}
}

func TestPagesDropEmptyOnes(t *testing.T) {
	p := newPages[uint64](4)
	var indexes []uint32
	for range 64 {
		indexes = append(indexes, p.alloc())
	}
	for _, index := range indexes {
		p.release(index)
	}
	for i, page := range p.dir {
		if page != nil {
			t.Errorf("page %d is empty and was kept", i)
		}
	}
	if index := p.alloc(); index == 0 || *p.at(index) != 0 {
		t.Errorf("the record at index %d of a page made anew is not zeroed", index)
	}
}

// TestPagesOfOneRecord allocates and releases one record again and again, also while the pages are
// pinned. A new record is zero, a pinned record stays, and no page is made each time.
func TestPagesOfOneRecord(t *testing.T) {
	p := newPages[uint64](4)
	come := func() {
		index := p.alloc()
		if v := *p.at(index); v != 0 {
			t.Errorf("a new record is %d", v)
		}
		*p.edit(index) = 7
		p.release(index)
	}
	come()
	if n := testing.AllocsPerRun(100, come); n != 0 {
		t.Errorf("%v allocations for a record that comes and goes", n)
	}
	index := p.alloc()
	*p.edit(index) = 7
	pinned := p.pin()
	p.release(index)
	come()
	page, i := p.locate(index)
	if v := pinned.dir[page][i]; v != 7 {
		t.Errorf("the pinned page has %d, it was 7", v)
	}
}

// TestBlobsOfOneBlob has one blob of each class come and go: no page is made each time, and none is
// kept that is larger than a page.
func TestBlobsOfOneBlob(t *testing.T) {
	s := newBlobs()
	body := make([]byte, packedBytesMax)
	for class := range classCount {
		come := func() { s.release(s.put(body[:classBytes(class)])) }
		come()
		if n := testing.AllocsPerRun(10, come); n != 0 {
			t.Errorf("%v allocations for a blob of %d bytes that comes and goes", n, classBytes(class))
		}
	}
	s.release(s.put(make([]byte, 2*pageBytesMax)))
	if cap(s.blank[0]) > pageBytesMax || cap(s.blank[1]) > pageBytesMax || s.bytes != 0 {
		t.Errorf("%d and %d bytes of pages are kept, and %d counted", cap(s.blank[0]), cap(s.blank[1]), s.bytes)
	}
}

func TestBlobClasses(t *testing.T) {
	last := 0
	for n := 1; n <= packedBytesMax; n++ {
		class := classOf(n)
		if size := classBytes(class); size < n || class >= classCount {
			t.Fatalf("a blob of %d bytes goes to class %d of %d bytes", n, class, size)
		} else if n > 64 && float64(size) > float64(n)*1.125+8 {
			t.Fatalf("a blob of %d bytes takes %d", n, size)
		}
		if size := classBytes(class); size%blobUnit != 0 || pageBytesMax/blobUnit > 1<<16 {
			t.Fatalf("a slot has no room for the offset of a blob in class %d of %d bytes", class, size)
		}
		if class < last || class > last+1 {
			t.Fatalf("class jumps from %d to %d at %d bytes", last, class, n)
		}
		last = class
	}
	if last != classCount-1 {
		t.Errorf("the last class is %d, there are %d", last, classCount)
	}
}

func TestBlobsKeepBytes(t *testing.T) {
	s := newBlobs()
	rng := rand.New(rand.NewPCG(2, 2))
	type stored struct {
		ref   blobRef
		bytes []byte
	}
	var live, seen []stored
	var pages [][]byte
	sizes := []int{1, 8, 9, 100, 128, 250, 300, 4000, 33000, 70000}
	for step := range 20000 {
		switch k := rng.IntN(100); {
		case k < 55 || len(live) == 0:
			size := sizes[rng.IntN(7)]
			if rng.IntN(200) == 0 {
				size = sizes[rng.IntN(len(sizes))]
			}
			b := bytes.Repeat([]byte{byte(step), byte(step >> 8)}, size)[:size]
			live = append(live, stored{s.put(b), b})
		case k < 98:
			i := rng.IntN(len(live))
			s.release(live[i].ref)
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		case pages == nil:
			pages, seen = s.pin(), append([]stored(nil), live...)
		default:
			for _, b := range seen {
				if got := pages[b.ref.page()][b.ref.offset():][:len(b.bytes)]; !bytes.Equal(got, b.bytes) {
					t.Fatalf("step %d: the pinned pages lost a blob of %d bytes", step, len(b.bytes))
				}
			}
			s.unpin()
			pages = nil
		}
	}
	for _, b := range live {
		if got := s.at(b.ref)[:len(b.bytes)]; !bytes.Equal(got, b.bytes) {
			t.Fatalf("a blob of %d bytes was overwritten", len(b.bytes))
		}
		s.release(b.ref)
	}
	if pages != nil {
		s.unpin()
	}
	if s.bytes != 0 {
		t.Errorf("%d bytes of pages are left when nothing is stored", s.bytes)
	}
}

// TestTTLOfBlob: the ttl is found behind all options that may be before it, and nothing is made to
// find it.
func TestTTLOfBlob(t *testing.T) {
	for given := range fsm.Given(1 << 7) {
		j := fsm.Job{
			Given: given, TTR: time.Hour, MaxAttempts: 300, RetryDelays: []fsm.Duration{1, 1 << 40}, TTL: 1 << 60,
			Headers: []fsm.Header{{Name: "a", Value: "b"}}, ID: "id", Body: []byte("body"),
		}
		b := openPayload(appendPayload(nil, &j, [16]byte{}, 0, 0))
		var v fsm.Job
		b.Read(&v)
		if b.TTL() != v.TTL || (v.TTL != 0) != given.Has(fsm.GivenTTL) {
			t.Errorf("options %b: the ttl is %d, read as %d", given, b.TTL(), v.TTL)
		}
		if n := testing.AllocsPerRun(10, func() { b.TTL() }); n != 0 {
			t.Errorf("options %b: %v allocations", given, n)
		}
	}
}
