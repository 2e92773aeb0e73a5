package fsm

import "slices"

// pageBytesMax bounds a page, and with it what one write after a snapshot may have to copy.
const pageBytesMax = 64 << 10

// pages is an array of records in pages of a fixed number of records, with a free list. Places are numbered from 1; 0 means
// none. A snapshot shares the pages; while any share is open, a page older than the last share is copied before it is
// written. T must hold no pointer where there may be many of them.
type pages[T any] struct {
	dir   [][]T
	born  []uint64 // the epoch in which each page was made or last copied
	live  []uint32 // records in use on each page
	free  []uint32 // places to use again, last in first out
	next  uint32   // the first place never used
	epoch uint64
	open  int // shares not yet closed
	spare []T // a page that became empty, zeroed, for the next that is made: where one record comes and goes, no page does
	shift uint8
	// made counts the pages that are here, with spare; superseded those that only open shares see.
	made, superseded int
}

// newPages returns an array with 2^shift records a page; a test checks that they fit into pageBytesMax.
func newPages[T any](shift uint8) pages[T] { return pages[T]{next: 1, shift: shift} }

func (p *pages[T]) locate(place uint32) (page, index uint32) {
	return place >> p.shift, place & (1<<p.shift - 1)
}

// at returns the record for reading. The pointer is valid until the next edit or alloc.
func (p *pages[T]) at(place uint32) *T {
	page, i := p.locate(place)
	return &p.dir[page][i]
}

// edit returns the record for writing, on a page that no share sees. The pointer is valid until the next share.
func (p *pages[T]) edit(place uint32) *T {
	page, i := p.locate(place)
	if p.open > 0 && p.born[page] < p.epoch {
		p.dir[page] = slices.Clone(p.dir[page])
		p.born[page] = p.epoch
		p.superseded++
	}
	return &p.dir[page][i]
}

// alloc returns the place of a zeroed record.
func (p *pages[T]) alloc() uint32 {
	var place uint32
	if n := len(p.free); n > 0 {
		place, p.free = p.free[n-1], p.free[:n-1]
	} else {
		place = p.next
		p.next++
	}
	page, _ := p.locate(place)
	if int(page) == len(p.dir) {
		p.dir = append(p.dir, nil)
		p.born = append(p.born, 0)
		p.live = append(p.live, 0)
	}
	if p.dir[page] == nil {
		p.dir[page], p.spare = p.spare, nil
		if p.dir[page] == nil {
			p.dir[page] = make([]T, 1<<p.shift)
			p.made++
		}
		p.born[page] = p.epoch
	}
	p.live[page]++
	var zero T
	*p.edit(place) = zero
	return place
}

// release gives a place back. An empty page is dropped, unless it is the only one such; it is made anew when one of its places is used again.
func (p *pages[T]) release(place uint32) {
	var zero T
	page, _ := p.locate(place)
	p.live[page]--
	switch shared := p.open > 0 && p.born[page] < p.epoch; {
	case p.live[page] > 0:
		*p.edit(place) = zero
	case p.spare == nil && !shared:
		*p.edit(place) = zero
		p.dir[page], p.spare = nil, p.dir[page]
	default:
		p.dir[page] = nil
		p.made--
		if shared {
			p.superseded++
		}
	}
	p.free = append(p.free, place)
}

// share returns the pages as they are now; they stay so until unshare.
func (p *pages[T]) share() [][]T {
	p.epoch++
	p.open++
	return slices.Clone(p.dir)
}

func (p *pages[T]) unshare() {
	if p.open--; p.open == 0 {
		p.superseded = 0
	}
}

// count is the number of records in use.
func (p *pages[T]) count() int { return int(p.next) - 1 - len(p.free) }
