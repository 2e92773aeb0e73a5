package store

import "slices"

// blobRef is the address of a blob: its page in the upper half, its offset in the lower. 0 means
// none.
type blobRef uint64

func (r blobRef) page() uint32   { return uint32(r >> 32) }
func (r blobRef) offset() uint32 { return uint32(r) }

// packedBytesMax bounds the blobs that are packed into a page with others; a larger one has a page
// of its own.
const packedBytesMax = 32 << 10

// blobs stores immutable byte strings in size-class pages, so that the collector sees pages and
// never jobs. A blob's own bytes tell its length; the store knows only its class. While the store
// is pinned, no byte of a freed blob is overwritten.
type blobs struct {
	meta    []blobPage // meta[0] is unused, so that page numbers start at 1
	data    [][]byte
	partial [classCount]uint32 // first page of each class with room; 0 if none
	spare   []uint32           // page numbers to use again
	// blank are the bytes of pages that became empty, reused for the next ones: of two classes, since
	// jobs that come and go at once have a payload and a note.
	blank [2][]byte
	limbo []blobRef // freed while the store is pinned
	pins  int
	bytes int64 // of all pages, not of blank ones
	// allocated is what the pages and blank take of the heap.
	allocated int64
}

// blobPage is one page's bookkeeping. Pages of a class with room form a list.
type blobPage struct {
	prev, next uint32
	live       uint32
	bump       uint32 // first byte never used
	free       uint32 // 1 + offset of the first freed blob, which holds the next such link; 0 if none
	class      uint8
	listed     bool
}

// blobUnit divides the sizes of all classes, so that a slot needs 16 bits for an offset: a page has
// at most 2^16 units.
const blobUnit = 4

// Classes are blobUnit bytes apart up to 256, then eighths of a power of two up to packedBytesMax:
// 64 + 7·8 of them.
const (
	classFineMax = 256
	classFine    = classFineMax / blobUnit
	classCount   = classFine + 7*8
	classOwn     = classCount // the class of a page with one blob
)

// classOf returns the class of a blob of n bytes, 1 ≤ n ≤ packedBytesMax.
func classOf(n int) int {
	if n <= classFineMax {
		return (n - 1) / blobUnit
	}
	class, base := classFine, classFineMax
	for n > base*2 {
		class, base = class+8, base*2
	}
	return class + (n-base-1)/(base/8)
}

// classBytes is the size of the blobs of a class.
func classBytes(class int) int {
	if class < classFine {
		return (class + 1) * blobUnit
	}
	class -= classFine
	base := classFineMax << (class / 8)
	return base + (class%8+1)*base/8
}

func newBlobs() blobs { return blobs{meta: make([]blobPage, 1), data: make([][]byte, 1)} }

// put stores a copy of b, which must not be empty.
func (s *blobs) put(b []byte) blobRef {
	if len(b) > packedBytesMax {
		page := s.newPage(classOwn, len(b))
		copy(s.data[page], b)
		s.meta[page].live = 1
		return blobRef(page) << 32
	}
	class := classOf(len(b))
	page := s.partial[class]
	if page == 0 {
		page = s.newPage(class, pageBytesMax/classBytes(class)*classBytes(class))
		s.list(page)
	}
	m := &s.meta[page]
	var offset uint32
	if m.free != 0 {
		offset = m.free - 1
		m.free = getLink(s.data[page][offset:])
	} else {
		offset = m.bump
		m.bump += uint32(classBytes(class))
	}
	m.live++
	if m.free == 0 && int(m.bump) == len(s.data[page]) {
		s.unlist(page)
	}
	copy(s.data[page][offset:], b)
	return blobRef(page)<<32 | blobRef(offset)
}

// at returns the bytes of the blob, and what follows them in its page.
func (s *blobs) at(r blobRef) []byte { return s.data[r.page()][r.offset():] }

// release frees a blob, at once or when the last pin is gone.
func (s *blobs) release(r blobRef) {
	if s.pins > 0 {
		s.limbo = append(s.limbo, r)
		return
	}
	page := r.page()
	m := &s.meta[page]
	if m.live--; m.live == 0 {
		if m.listed {
			s.unlist(page)
		}
		s.bytes -= int64(len(s.data[page]))
		if kept := s.smallestBlank(); m.class != classOwn && cap(s.data[page]) > cap(*kept) {
			s.allocated -= heapBytes(cap(*kept))
			*kept = s.data[page]
		} else {
			s.allocated -= heapBytes(cap(s.data[page]))
		}
		s.data[page] = nil
		s.spare = append(s.spare, page)
		return
	}
	putLink(s.data[page][r.offset():], m.free)
	m.free = r.offset() + 1
	if !m.listed {
		s.list(page)
	}
}

// pin returns the pages. Every blob that is stored now keeps its bytes until unpin.
func (s *blobs) pin() [][]byte {
	s.pins++
	return slices.Clone(s.data)
}

// unpin ends a pin. The last one to end frees the blobs that were released meanwhile.
func (s *blobs) unpin() {
	if s.pins--; s.pins > 0 {
		return
	}
	limbo := s.limbo
	s.limbo = nil
	for _, r := range limbo {
		s.release(r)
	}
}

func (s *blobs) newPage(class, size int) uint32 {
	var page uint32
	if n := len(s.spare); n > 0 {
		page, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		page = uint32(len(s.meta))
		s.meta = append(s.meta, blobPage{})
		s.data = append(s.data, nil)
	}
	s.meta[page] = blobPage{class: uint8(class)}
	s.data[page] = s.room(class, size)
	s.bytes += int64(size)
	return page
}

// room returns bytes for a page: those of a blank one, else new ones.
func (s *blobs) room(class, size int) []byte {
	for i, blank := range s.blank {
		if class != classOwn && size <= cap(blank) {
			s.blank[i] = nil
			return blank[:size]
		}
	}
	s.allocated += heapBytes(size)
	return make([]byte, size)
}

// smallestBlank returns the blank page that a larger one may replace.
func (s *blobs) smallestBlank() *[]byte {
	if cap(s.blank[0]) <= cap(s.blank[1]) {
		return &s.blank[0]
	}
	return &s.blank[1]
}

func (s *blobs) list(page uint32) {
	m := &s.meta[page]
	head := s.partial[m.class]
	m.prev, m.next, m.listed = 0, head, true
	if head != 0 {
		s.meta[head].prev = page
	}
	s.partial[m.class] = page
}

func (s *blobs) unlist(page uint32) {
	m := &s.meta[page]
	if m.prev != 0 {
		s.meta[m.prev].next = m.next
	} else {
		s.partial[m.class] = m.next
	}
	if m.next != 0 {
		s.meta[m.next].prev = m.prev
	}
	m.prev, m.next, m.listed = 0, 0, false
}

func getLink(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func putLink(b []byte, v uint32) {
	b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
}
