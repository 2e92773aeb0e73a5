package diskfault

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"time"

	"github.com/belfrydb/belfry/node/storage/disk"
)

var _ disk.Dater = (*file)(nil)

type file struct {
	disk   *Disk
	name   string
	node   *inode
	epoch  int
	closed bool // guarded by disk.mu
}

func (f *file) step(kind Kind) error {
	if err := f.disk.step(kind, f.name, f.epoch); err != nil {
		return err
	}
	if f.closed {
		f.disk.mu.Unlock()
		return fs.ErrClosed
	}
	return nil
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(b []byte, off int64) (int, error) {
	if err := f.step(OpRead); err != nil {
		return 0, err
	}
	defer f.disk.mu.Unlock()
	n := int(min(int64(len(b)), f.node.length()-off))
	if n <= 0 {
		return 0, io.EOF
	}
	clear(b[:n])
	if off < int64(len(f.node.data)) {
		copy(b[:n], f.node.data[off:])
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements io.WriterAt.
func (f *file) WriteAt(b []byte, off int64) (int, error) {
	if err := f.step(OpWrite); err != nil {
		return 0, err
	}
	defer f.disk.mu.Unlock()
	f.node.grow(off + int64(len(b)))
	copy(f.node.data[off:], b)
	f.node.touch(off, off+int64(len(b)))
	f.node.written = time.Now()
	return len(b), nil
}

func (n *inode) grow(size int64) {
	if have := int64(len(n.data)); have < size {
		n.data = append(n.data, make([]byte, size-have)...)
	}
}

// length returns the size of the file.
func (n *inode) length() int64 { return max(int64(len(n.data)), n.size) }

func (n *inode) touch(from, to int64) {
	for s := from / SectorBytes; s*SectorBytes < to; s++ {
		n.dirty[s] = true
		delete(n.dropped, s)
	}
}

// Sync implements disk.File.
func (f *file) Sync() error { return f.SyncData() }

// SyncData implements disk.File.
func (f *file) SyncData() error {
	if err := f.step(OpSync); err != nil {
		if !errors.Is(err, ErrCrashed) {
			f.drop()
		}
		return err
	}
	defer f.disk.mu.Unlock()
	n := f.node
	if grown := len(n.data) - len(n.synced); grown > 0 {
		n.synced = append(n.synced, make([]byte, grown)...)
	}
	for s := range n.dirty {
		from := s * SectorBytes
		to := min(from+SectorBytes, int64(len(n.data)))
		copy(n.synced[from:to], n.data[from:to])
	}
	n.dirty = map[int64]bool{}
	n.syncedSize = n.size
	return nil
}

// drop does what the kernel does when it cannot write a page: processes still see the page, and it
// counts as written.
func (f *file) drop() {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	maps.Copy(f.node.dropped, f.node.dirty)
	clear(f.node.dirty)
}

// Size implements disk.File.
func (f *file) Size() (int64, error) {
	if err := f.step(OpRead); err != nil {
		return 0, err
	}
	defer f.disk.mu.Unlock()
	return f.node.length(), nil
}

// Written implements disk.Dater. It is not a step: the file is open, and the kernel knows the
// time.
func (f *file) Written() time.Time {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return f.node.written
}

// Allocate implements disk.File: the file has at least size bytes, zeros where none were
// written.
func (f *file) Allocate(size int64) error {
	if err := f.step(OpAllocate); err != nil {
		return err
	}
	defer f.disk.mu.Unlock()
	f.node.size = max(f.node.size, size)
	return nil
}

// Close implements io.Closer. It syncs nothing.
func (f *file) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	return nil
}
