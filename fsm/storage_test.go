package fsm

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"
)

func TestPageSizes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		bytes uintptr
		want  uintptr // of one record; 0 where it does not matter
	}{
		{"slot", unsafe.Sizeof(slot{}) << slotShift, slotBytes << slotShift},
		{"grant", unsafe.Sizeof(grant{}) << grantShift, grantBytes << grantShift},
		{"tomb", unsafe.Sizeof(tomb{}) << tombShift, tombBytes << tombShift},
		{"answer", unsafe.Sizeof(answer{}) << newAnswers(nil).records.shift, answerBytes << newAnswers(nil).records.shift},
		{"queue", unsafe.Sizeof(QueueRecord{}) << newQueues(nil).records.shift, recordBytes << newQueues(nil).records.shift},
		{"finished lease", unsafe.Sizeof(finishedLease{}) << finishedShift, finishedBytes << finishedShift},
		{"recent counts", unsafe.Sizeof(recent{}), recentBytes},
		{"bucket", unsafe.Sizeof(bucket{}) * bucketsPerPage, bucketBytes * bucketsPerPage},
	} {
		if tc.bytes > pageBytesMax {
			t.Errorf("a page of %s has %d bytes, more than %d", tc.name, tc.bytes, pageBytesMax)
		}
		if tc.want != 0 && tc.bytes != tc.want {
			t.Errorf("a page of %s has %d bytes, the memory budget counts on %d", tc.name, tc.bytes, tc.want)
		}
	}
}

func TestPagesShareKeepsWhatItSaw(t *testing.T) {
	p := newPages[uint64](4)
	rng := rand.New(rand.NewPCG(1, 1))
	places := map[uint32]uint64{}
	var frozen []map[uint32]uint64
	var shares [][][]uint64
	for step := range 5000 {
		switch k := rng.IntN(10); {
		case k < 5 || len(places) == 0:
			place := p.alloc()
			if _, taken := places[place]; taken || place == 0 {
				t.Fatalf("step %d: place %d handed out twice", step, place)
			}
			if *p.at(place) != 0 {
				t.Fatalf("step %d: place %d is not zeroed", step, place)
			}
			places[place] = rng.Uint64() | 1
			*p.edit(place) = places[place]
		case k < 7:
			place := anyPlace(places)
			places[place] = rng.Uint64() | 1
			*p.edit(place) = places[place]
		case k < 9:
			place := anyPlace(places)
			delete(places, place)
			p.release(place)
		case len(shares) < 2:
			copied := map[uint32]uint64{}
			for place, v := range places {
				copied[place] = v
			}
			frozen, shares = append(frozen, copied), append(shares, p.share())
		default:
			for i := range shares {
				checkShare(t, shares[i], frozen[i], p.shift)
				p.unshare()
			}
			frozen, shares = nil, nil
		}
		if p.count() != len(places) {
			t.Fatalf("step %d: count is %d, should be %d", step, p.count(), len(places))
		}
	}
	for place, v := range places {
		if *p.at(place) != v {
			t.Errorf("place %d holds %d, should hold %d", place, *p.at(place), v)
		}
	}
}

// anyPlace returns the smallest place, so that the test repeats.
func anyPlace(places map[uint32]uint64) uint32 {
	least := uint32(1<<32 - 1)
	for place := range places {
		least = min(least, place)
	}
	return least
}

func checkShare(t *testing.T, share [][]uint64, want map[uint32]uint64, shift uint8) {
	t.Helper()
	found := 0
	for page, records := range share {
		for i, v := range records {
			if v == 0 {
				continue
			}
			found++
			if place := uint32(page)<<shift | uint32(i); want[place] != v {
				t.Fatalf("a share shows %d at place %d, it was %d", v, place, want[place])
			}
		}
	}
	if found != len(want) {
		t.Fatalf("a share shows %d records, there were %d", found, len(want))
	}
}

func TestPagesDropEmptyOnes(t *testing.T) {
	p := newPages[uint64](4)
	var places []uint32
	for range 64 {
		places = append(places, p.alloc())
	}
	for _, place := range places {
		p.release(place)
	}
	for i, page := range p.dir {
		if page != nil {
			t.Errorf("page %d is empty and was kept", i)
		}
	}
	if place := p.alloc(); place == 0 || *p.at(place) != 0 {
		t.Errorf("place %d of a page made anew", place)
	}
}

// TestPagesOfOneRecord has one record come and go, also under a share: what is made anew is zero, what a share sees stays, and no page is made each time.
func TestPagesOfOneRecord(t *testing.T) {
	p := newPages[uint64](4)
	come := func() {
		place := p.alloc()
		if v := *p.at(place); v != 0 {
			t.Errorf("a new record is %d", v)
		}
		*p.edit(place) = 7
		p.release(place)
	}
	come()
	if n := testing.AllocsPerRun(100, come); n != 0 {
		t.Errorf("%v allocations for a record that comes and goes", n)
	}
	place := p.alloc()
	*p.edit(place) = 7
	shared := p.share()
	p.release(place)
	come()
	page, i := p.locate(place)
	if v := shared[page][i]; v != 7 {
		t.Errorf("a share shows %d, it was 7", v)
	}
}

// TestBlobsOfOneBlob has one blob of each class come and go: no page is made each time, and none is kept that is larger than a page.
func TestBlobsOfOneBlob(t *testing.T) {
	s := newBlobs()
	body := make([]byte, blobBytesShared)
	for class := range classCount {
		come := func() { s.release(s.put(body[:classBytes(class)])) }
		come()
		if n := testing.AllocsPerRun(10, come); n != 0 {
			t.Errorf("%v allocations for a blob of %d bytes that comes and goes", n, classBytes(class))
		}
	}
	s.release(s.put(make([]byte, 2*pageBytesMax)))
	if cap(s.blank) > pageBytesMax || s.bytes != 0 {
		t.Errorf("%d bytes of a page are kept, and %d counted", cap(s.blank), s.bytes)
	}
}

func TestBlobClasses(t *testing.T) {
	last := 0
	for n := 1; n <= blobBytesShared; n++ {
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
			pages, seen = s.share(), append([]stored(nil), live...)
		default:
			for _, b := range seen {
				if got := pages[b.ref.page()][b.ref.offset():][:len(b.bytes)]; !bytes.Equal(got, b.bytes) {
					t.Fatalf("step %d: a share lost a blob of %d bytes", step, len(b.bytes))
				}
			}
			s.unshare()
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
		s.unshare()
	}
	if s.bytes != 0 {
		t.Errorf("%d bytes of pages are left when nothing is stored", s.bytes)
	}
}

func TestTableAgainstMap(t *testing.T) {
	for _, hashBits := range []int{32, 6, 0} { // 6 and 0: many and all in one bucket
		table := newTable()
		rng := rand.New(rand.NewPCG(3, uint64(hashBits)))
		hashOf := func(place uint32) uint32 {
			if hashBits == 0 {
				return 7
			}
			return uint32(hasher(0).word(uint64(place)).sum()) >> (32 - hashBits)
		}
		present := map[uint32]bool{}
		limit := 20000
		if hashBits < 32 {
			limit = 2000
		}
		for range limit * 3 {
			place := uint32(rng.IntN(limit)) + 1
			found := table.find(hashOf(place), func(p uint32) bool { return p == place })
			if (found == place) != present[place] {
				t.Fatalf("%d bits: find(%d) = %d, present: %v", hashBits, place, found, present[place])
			}
			if present[place] {
				table.remove(hashOf(place), place)
			} else {
				table.insert(hashOf(place), place)
			}
			present[place] = !present[place]
		}
	}
}

func TestSerialHashSpreadsEvenly(t *testing.T) {
	for _, step := range []uint64{1, 2, 3, 64, 100, 4096} {
		const buckets = 1 << 12
		var load [buckets]int
		for i := range uint64(buckets * bucketFill) {
			load[serialHash(i*step)%buckets]++
		}
		crowded := 0
		for _, n := range load {
			if n > 3*bucketFill {
				crowded++
			}
		}
		if crowded > buckets/100 {
			t.Errorf("serials %d apart: %d of %d buckets hold more than three times their share", step, crowded, buckets)
		}
	}
}

// TestTTLOfBlob: the ttl is found behind all options that may be before it, and nothing is made to find it.
func TestTTLOfBlob(t *testing.T) {
	for given := range Given(1 << 7) {
		j := Job{Given: given, TTR: time.Hour, MaxAttempts: 300, RetryDelays: []Duration{1, 1 << 40}, TTL: 1 << 60, Headers: []Header{{"a", "b"}}, ID: "id", Body: []byte("body")}
		b := openBorn(appendBorn(nil, &j, [16]byte{}, 0, 0))
		var v Job
		b.read(&v)
		if b.ttl() != v.TTL || (v.TTL != 0) != given.Has(GivenTTL) {
			t.Errorf("options %b: the ttl is %d, read as %d", given, b.ttl(), v.TTL)
		}
		if n := testing.AllocsPerRun(10, func() { b.ttl() }); n != 0 {
			t.Errorf("options %b: %v allocations", given, n)
		}
	}
}
