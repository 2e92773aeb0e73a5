package disk

import (
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// SectorBytes is the unit in which a torn write is kept or lost.
const SectorBytes = 512

// SizeSector is what a Fate is asked for the length of a file: whether the length that was not
// synced is kept.
const SizeSector = -1

// contents is what one file holds: as the process sees it, in a file of the backing directory, and
// beside it what a power cut brings back. A sector that is not in undo is durable as it is.
type contents struct {
	space *space

	mu     sync.Mutex
	file   *os.File
	size   int64 // as the process sees it; set by setSize
	synced int64 // as of the last sync
	// undo holds the durable bytes of each sector that was written since the last sync; nil stands for
	// zeros, and for what was not there.
	undo map[int64][]byte
	// dropped are sectors of undo that a sync failed to write: no later sync does, unless they are
	// written again.
	dropped map[int64]bool

	shown atomic.Int64 // size, for readers that must not wait for a sync
}

// newContents makes an empty file.
func newContents(name string, s *space) (*contents, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return &contents{space: s, file: f, undo: map[int64][]byte{}, dropped: map[int64]bool{}}, nil
}

// read fills b from an offset as far as the file goes.
func (c *contents) read(b []byte, off int64) (int, error) {
	n, err := c.file.ReadAt(b, off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// write writes all of b, or nothing if there is no room for it.
func (c *contents) write(b []byte, off int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := off + int64(len(b))
	if err := c.remember(off, end); err != nil {
		return err
	}
	if err := c.space.take(end - c.size); err != nil {
		return err
	}
	if _, err := c.file.WriteAt(b, off); err != nil {
		c.space.give(end - c.size)
		return err
	}
	c.setSize(max(c.size, end))
	return nil
}

// remember keeps what is durable of the sectors that a range touches, before it changes. The caller
// holds the lock.
func (c *contents) remember(from, to int64) error {
	if from >= to {
		return nil
	}
	first, end := from/SectorBytes, (to+SectorBytes-1)/SectorBytes
	var old []byte
	for sector := first; sector < end; sector++ {
		delete(c.dropped, sector)
		if _, ok := c.undo[sector]; ok {
			continue
		}
		at := (sector - first) * SectorBytes
		if old == nil && sector*SectorBytes < c.synced {
			old = make([]byte, min(end*SectorBytes, (c.synced+SectorBytes-1)/SectorBytes*SectorBytes)-first*SectorBytes)
			if _, err := c.read(old, first*SectorBytes); err != nil {
				return err
			}
		}
		var before []byte
		if at < int64(len(old)) && !isZero(old[at:at+SectorBytes]) {
			before = old[at : at+SectorBytes : at+SectorBytes]
		}
		c.undo[sector] = before
	}
	return nil
}

func isZero(b []byte) bool { return !slices.ContainsFunc(b, func(x byte) bool { return x != 0 }) }

// resize cuts the file, or lengthens it with zeros.
func (c *contents) resize(size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.space.take(size - c.size); err != nil {
		return err
	}
	if err := c.remember(size, min(c.size, c.synced)); err != nil {
		return err
	}
	if err := c.file.Truncate(size); err != nil {
		return err
	}
	c.space.give(c.size - size)
	c.setSize(size)
	return nil
}

// allocate reserves room for a range; allocateKeepSize leaves the length as it is.
func (c *contents) allocate(off, bytes int64, mode uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := c.size
	if mode&allocateKeepSize == 0 {
		size = max(size, off+bytes)
	}
	if err := c.space.take(size - c.size); err != nil {
		return err
	}
	if err := allocate(c.file, mode, off, bytes); err != nil {
		c.space.give(size - c.size)
		return err
	}
	c.setSize(size)
	return nil
}

// sync makes the file durable as it is. Writes wait meanwhile, so the durable contents are not a
// mixture.
func (c *contents) sync() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := dataSync(c.file); err != nil {
		return err
	}
	maps.DeleteFunc(c.undo, func(sector int64, _ []byte) bool { return !c.dropped[sector] })
	c.synced = c.size
	return nil
}

// drop is what the kernel does when it cannot write pages: they stay as processes see them, and
// count as written.
func (c *contents) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for sector := range c.undo {
		c.dropped[sector] = true
	}
}

// cutPower makes the file what a power cut leaves of it, as fate has it by sector, and returns how
// many bytes that were written and not synced are lost.
func (c *contents) cutPower(fate func(sector int64) bool) (lost int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := c.size
	if c.size != c.synced && !fate(SizeSector) {
		size = c.synced
	}
	// The length may have been cut: what is brought back needs its place.
	if c.size < size {
		if err := c.file.Truncate(size); err != nil {
			return 0, err
		}
	}
	zeros := make([]byte, SectorBytes)
	for _, sector := range slices.Sorted(maps.Keys(c.undo)) {
		from, end := sector*SectorBytes, min((sector+1)*SectorBytes, c.size)
		if from < c.size && fate(sector) {
			size = max(size, end) // a sector that reached the disk is within the file
			continue
		}
		lost += max(0, end-from)
		before := c.undo[sector]
		if before == nil {
			before = zeros
		}
		if _, err := c.file.WriteAt(before, from); err != nil {
			return lost, err
		}
	}
	if err := c.file.Truncate(size); err != nil {
		return lost, err
	}
	clear(c.undo)
	clear(c.dropped)
	c.setSize(size)
	c.synced = size
	return lost, nil
}

// unsynced returns how many bytes were written and not synced.
func (c *contents) unsynced() (bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for sector := range c.undo {
		bytes += max(0, min((sector+1)*SectorBytes, c.size)-sector*SectorBytes)
	}
	return bytes
}

// length returns the size as the process sees it. It does not wait for a sync, because its callers
// may hold up all others.
func (c *contents) length() int64 { return c.shown.Load() }

func (c *contents) setSize(size int64) {
	c.size = size
	c.shown.Store(size)
}

// damage replaces bytes by what change makes of them, for the process and durably.
func (c *contents) damage(off, bytes int64, change func([]byte)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if off < 0 || bytes < 0 || off+bytes > c.size {
		return syscall.EINVAL
	}
	b := make([]byte, bytes)
	if _, err := c.read(b, off); err != nil {
		return err
	}
	change(b)
	if _, err := c.file.WriteAt(b, off); err != nil {
		return err
	}
	for sector, before := range c.undo {
		from, to := max(off, sector*SectorBytes), min(off+bytes, (sector+1)*SectorBytes, c.synced)
		if from >= to {
			continue
		}
		if before == nil {
			before = make([]byte, SectorBytes)
		}
		durable := make([]byte, bytes)
		copy(durable[from-off:], before[from-sector*SectorBytes:])
		change(durable)
		copy(before[from-sector*SectorBytes:], durable[from-off:to-off])
		c.undo[sector] = before
	}
	return nil
}

// cut makes the file end at a size, for the process and durably.
func (c *contents) cut(size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if size < 0 || size > c.size {
		return syscall.EINVAL
	}
	if err := c.file.Truncate(size); err != nil {
		return err
	}
	c.space.give(c.size - size)
	c.setSize(size)
	c.synced = min(c.synced, size)
	for sector, before := range c.undo {
		if from := sector * SectorBytes; from >= size {
			delete(c.undo, sector)
		} else if from+SectorBytes > size && before != nil {
			clear(before[size-from:])
		}
	}
	return nil
}
