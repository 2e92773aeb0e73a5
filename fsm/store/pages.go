package store

import "slices"

// pageBytesMax bounds a page, and so what one write after a snapshot may have to copy.
const pageBytesMax = 64 << 10

// pages is an array of records in pages of a fixed number of records, with a free list. Indexes
// start at 1; 0 means none. A snapshot pins the pages: while a pin is open, a page that is older
// than the last pin is copied before it is written. T must hold no pointer if there may be many
// records.
type pages[T any] struct {
	dir    [][]T
	epochs []uint64 // when each page was made or last copied
	live   []uint32 // records in use on each page
	free   []uint32 // indexes to use again, last in first out
	next   uint32   // the first index never used
	epoch  uint64   // the number of pins so far
	pins   int      // that are open
	spare  []T      // a page that became empty, zeroed, for the next page that is made
	shift  uint8
	// made counts the pages in use, and spare; superseded counts the pages that only open pins
	// hold.
	made, superseded int
}

// newPages returns an array with 2^shift records a page; a test checks that they fit into
// pageBytesMax.
func newPages[T any](shift uint8) pages[T] { return pages[T]{next: 1, shift: shift} }

// locate splits an index into the page and the offset in it.
func (p *pages[T]) locate(index uint32) (page, offset uint32) {
	return index >> p.shift, index & (1<<p.shift - 1)
}

// at returns the record for reading. The pointer is valid until the next edit or alloc.
func (p *pages[T]) at(index uint32) *T {
	page, i := p.locate(index)
	return &p.dir[page][i]
}

// edit returns the record for writing, on a page that no pin holds. The pointer is valid until the
// next pin.
func (p *pages[T]) edit(index uint32) *T {
	page, i := p.locate(index)
	if p.pins > 0 && p.epochs[page] < p.epoch {
		p.dir[page] = slices.Clone(p.dir[page])
		p.epochs[page] = p.epoch
		p.superseded++
	}
	return &p.dir[page][i]
}

// alloc returns the index of a zeroed record.
func (p *pages[T]) alloc() uint32 {
	var index uint32
	if n := len(p.free); n > 0 {
		index, p.free = p.free[n-1], p.free[:n-1]
	} else {
		index = p.next
		p.next++
	}
	page, _ := p.locate(index)
	if int(page) == len(p.dir) {
		p.dir = append(p.dir, nil)
		p.epochs = append(p.epochs, 0)
		p.live = append(p.live, 0)
	}
	if p.dir[page] == nil {
		p.dir[page], p.spare = p.spare, nil
		if p.dir[page] == nil {
			p.dir[page] = make([]T, 1<<p.shift)
			p.made++
		}
		p.epochs[page] = p.epoch
	}
	p.live[page]++
	var zero T
	*p.edit(index) = zero
	return index
}

// release frees the record at index. An empty page is kept as the spare if there is none, else it
// is dropped. It is made anew when one of its indexes is used again.
func (p *pages[T]) release(index uint32) {
	var zero T
	page, _ := p.locate(index)
	p.live[page]--
	switch pinned := p.pins > 0 && p.epochs[page] < p.epoch; {
	case p.live[page] > 0:
		*p.edit(index) = zero
	case p.spare == nil && !pinned:
		*p.edit(index) = zero
		p.dir[page], p.spare = nil, p.dir[page]
	default:
		p.dir[page] = nil
		p.made--
		if pinned {
			p.superseded++
		}
	}
	p.free = append(p.free, index)
}

// pin returns the pages as they are now. They stay so until unpin.
func (p *pages[T]) pin() pinnedPages[T] {
	p.epoch++
	p.pins++
	return pinnedPages[T]{dir: slices.Clone(p.dir), shift: p.shift}
}

// unpin ends a pin.
func (p *pages[T]) unpin() {
	if p.pins--; p.pins == 0 {
		p.superseded = 0
	}
}

// count is the number of records in use.
func (p *pages[T]) count() int { return int(p.next) - 1 - len(p.free) }
