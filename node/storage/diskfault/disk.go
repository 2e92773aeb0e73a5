// Package diskfault is a disk in memory for tests. A crash loses, keeps or tears what was written
// and not synced, as the test decides. Each step can be made to fail, to hang, or to be the last
// one before the crash.
//
// It models the file system that a careful program must expect: file contents become durable by a
// sync of the file, names by a sync of their directory, and nothing else orders them.
package diskfault

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// SectorBytes is the unit in which a torn write is kept or lost.
const SectorBytes = 512

// ErrCrashed is the error of every step on a file that was opened before a crash. A hook may return
// it too, for a machine that is down.
var ErrCrashed = errors.New("diskfault: the machine is down")

// Kind is a kind of step.
type Kind string

// The steps that a Hook sees.
const (
	OpOpen     Kind = "open"
	OpCreate   Kind = "create"
	OpRead     Kind = "read"
	OpWrite    Kind = "write"
	OpSync     Kind = "sync"
	OpAllocate Kind = "allocate"
	OpRename   Kind = "rename"
	OpRemove   Kind = "remove"
	OpSyncDir  Kind = "syncdir"
)

// Op is a step about to be taken.
type Op struct {
	Kind Kind
	Path string
}

// Mutates says whether the step changes what is on the disk, or what of it is durable.
func (o Op) Mutates() bool { return o.Kind != OpOpen && o.Kind != OpRead }

// Hook is called before each step, from its goroutine and without locks held. An error becomes the
// step's error and the step is not taken. A hook that blocks is a hung disk.
type Hook func(Op) error

// Fate decides, write by write, what a crash does to a sector that was not synced: true keeps it.
type Fate func(name string, sector int64) bool

// Names decides what a crash does to creations, renames and removals that were not synced.
type Names int

// The fates of names.
const (
	LoseNames Names = iota // the directory is as it was at its last sync
	KeepNames              // all steps became durable by chance
)

// LoseAll is the Fate that loses everything unsynced.
func LoseAll(string, int64) bool { return false }

// KeepAll is the Fate in which the kernel had written everything by chance.
func KeepAll(string, int64) bool { return true }

type inode struct {
	data   []byte
	synced []byte
	dirty  map[int64]bool // sectors that differ from synced, perhaps
	// dropped are dirty sectors that a sync failed to write. No later sync writes them, unless they
	// are written again.
	dropped map[int64]bool
	// size is the allocated size; data may be shorter, and the rest is zeros.
	size, syncedSize int64
	written          time.Time // time of the last write
}

// Disk implements disk.FS. Methods may be called from any goroutine.
type Disk struct {
	mu     sync.Mutex
	hook   Hook
	names  map[string]*inode // as programs see them
	stable map[string]*inode // as of the directories' last sync
	dirs   map[string]bool
	epoch  int // files opened before a crash are dead
	free   uint64
}

// FreeDefault is the initial value of FreeBytes: enough for a node.
const FreeDefault = 1 << 30

var (
	_ disk.FS           = (*Disk)(nil)
	_ disk.FreeReporter = (*Disk)(nil)
)

// New returns an empty disk with a root directory.
func New() *Disk {
	return &Disk{
		names: map[string]*inode{}, stable: map[string]*inode{}, dirs: map[string]bool{"/": true}, free: FreeDefault,
	}
}

// SetHook replaces the hook; nil removes it.
func (d *Disk) SetHook(h Hook) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook = h
}

// Crash ends the machine's life and starts the next one. Open files are dead and the hook is gone;
// fate and names decide what is left of what was not durable. Without a fate only the process died:
// the kernel still holds all that was written and renamed, and what was not durable is not durable
// yet.
func (d *Disk) Crash(fate Fate, names Names) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.epoch++
	d.hook = nil
	if fate == nil {
		return
	}
	if names == KeepNames {
		d.stable = maps.Clone(d.names)
	}
	d.names = maps.Clone(d.stable)
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		d.names[name].loseUnsynced(name, fate)
	}
}

func (n *inode) loseUnsynced(name string, fate Fate) {
	end := int64(len(n.synced))
	maps.Copy(n.dirty, n.dropped)
	for _, sector := range slices.Sorted(maps.Keys(n.dirty)) {
		from := sector * SectorBytes
		if from >= int64(len(n.data)) || !fate(name, sector) {
			continue
		}
		to := min(from+SectorBytes, int64(len(n.data)))
		if to > end {
			n.synced = append(n.synced, make([]byte, to-end)...)
			end = to
		}
		copy(n.synced[from:to], n.data[from:to])
	}
	n.data = slices.Clone(n.synced)
	n.dirty, n.dropped = map[int64]bool{}, map[int64]bool{}
	n.size = n.syncedSize
}

// Flip inverts one bit of a file, in memory and on the disk.
func (d *Disk) Flip(name string, offset int64, bit uint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[path.Clean(name)]
	n.grow(n.length())
	n.data[offset] ^= 1 << bit
	if offset < int64(len(n.synced)) {
		n.synced[offset] ^= 1 << bit
	}
}

// Overwrite replaces bytes of a file, in memory and on the disk, also for open files.
func (d *Disk) Overwrite(name string, offset int64, b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[path.Clean(name)]
	n.grow(n.length())
	copy(n.data[offset:], b)
	if offset < int64(len(n.synced)) {
		copy(n.synced[offset:], b)
	}
}

// Files returns the names of all files, sorted.
func (d *Disk) Files() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.names))
}

// Contents returns a copy of a file, nil if there is none.
func (d *Disk) Contents(name string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n, ok := d.names[path.Clean(name)]; ok {
		n.grow(n.length())
		return slices.Clone(n.data)
	}
	return nil
}

// SetContents replaces or, with nil, deletes a file durably: damage, or an older copy put in its
// place.
func (d *Disk) SetContents(name string, data []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name = path.Clean(name)
	if data == nil {
		delete(d.names, name)
		delete(d.stable, name)
		return
	}
	n := &inode{
		data: slices.Clone(data), synced: slices.Clone(data), dirty: map[int64]bool{}, dropped: map[int64]bool{},
		written: time.Now(),
	}
	d.names[name], d.stable[name] = n, n
}

// Clone returns a copy of the disk as it is, with everything durable and no hook.
func (d *Disk) Clone() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := New()
	c.dirs = maps.Clone(d.dirs)
	for name, n := range d.names {
		copied := &inode{
			data: slices.Clone(n.data), synced: slices.Clone(n.data), dirty: map[int64]bool{}, dropped: map[int64]bool{},
			size: n.size, syncedSize: n.size, written: n.written,
		}
		c.names[name], c.stable[name] = copied, copied
	}
	return c
}

// step runs the hook, then takes the lock for the caller to take the step and release.
func (d *Disk) step(kind Kind, name string, epoch int) error {
	d.mu.Lock()
	hook, dead := d.hook, epoch != d.epoch
	d.mu.Unlock()
	if dead {
		return ErrCrashed
	}
	if hook != nil {
		if err := hook(Op{Kind: kind, Path: name}); err != nil {
			return err
		}
	}
	d.mu.Lock()
	if epoch != d.epoch {
		d.mu.Unlock()
		return ErrCrashed
	}
	return nil
}

func (d *Disk) life() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.epoch
}

// OpenFile implements disk.FS.
func (d *Disk) OpenFile(name string, flag int) (disk.File, error) {
	name = path.Clean(name)
	kind := OpOpen
	if flag&os.O_CREATE != 0 {
		kind = OpCreate
	}
	epoch := d.life()
	if err := d.step(kind, name, epoch); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	n, ok := d.names[name]
	switch {
	case ok && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case !ok && flag&os.O_CREATE == 0, !d.dirs[path.Dir(name)]:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case !ok:
		n = &inode{dirty: map[int64]bool{}, dropped: map[int64]bool{}, written: time.Now()}
		d.names[name] = n
	}
	return &file{disk: d, name: name, node: n, epoch: epoch}, nil
}

// Rename implements disk.FS.
func (d *Disk) Rename(oldName, newName string) error {
	oldName, newName = path.Clean(oldName), path.Clean(newName)
	if err := d.step(OpRename, newName, d.life()); err != nil {
		return err
	}
	defer d.mu.Unlock()
	n, ok := d.names[oldName]
	if !ok {
		return &fs.PathError{Op: "rename", Path: oldName, Err: fs.ErrNotExist}
	}
	delete(d.names, oldName)
	d.names[newName] = n
	return nil
}

// Remove implements disk.FS.
func (d *Disk) Remove(name string) error {
	name = path.Clean(name)
	if err := d.step(OpRemove, name, d.life()); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if _, ok := d.names[name]; !ok {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	delete(d.names, name)
	return nil
}

// RemoveAll implements disk.FS. The directory itself stays known.
func (d *Disk) RemoveAll(name string) error {
	name = path.Clean(name)
	if err := d.step(OpRemove, name, d.life()); err != nil {
		return err
	}
	defer d.mu.Unlock()
	for file := range d.names {
		if file == name || strings.HasPrefix(file, name+"/") {
			delete(d.names, file)
		}
	}
	return nil
}

// ReadDir implements disk.FS.
func (d *Disk) ReadDir(name string) ([]string, error) {
	name = path.Clean(name)
	if err := d.step(OpRead, name, d.life()); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	if !d.dirs[name] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	var names []string
	for file := range d.names {
		if path.Dir(file) == name {
			names = append(names, path.Base(file))
		}
	}
	for dir := range d.dirs {
		if path.Dir(dir) == name && dir != name {
			names = append(names, path.Base(dir)+"/")
		}
	}
	slices.Sort(names)
	return names, nil
}

// MkdirAll implements disk.FS. Directories are durable at once: no test here is about losing
// them.
func (d *Disk) MkdirAll(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for dir := path.Clean(name); !d.dirs[dir]; dir = path.Dir(dir) {
		d.dirs[dir] = true
	}
	return nil
}

// SyncDir implements disk.FS.
func (d *Disk) SyncDir(name string) error {
	name = path.Clean(name)
	if err := d.step(OpSyncDir, name, d.life()); err != nil {
		return err
	}
	defer d.mu.Unlock()
	for file := range d.stable {
		if path.Dir(file) == name && d.names[file] == nil {
			delete(d.stable, file)
		}
	}
	for file, n := range d.names {
		if path.Dir(file) == name {
			d.stable[file] = n
		}
	}
	return nil
}

// Full is the error of a full disk, for hooks.
func Full(o Op) error { return &fs.PathError{Op: string(o.Kind), Path: o.Path, Err: syscall.ENOSPC} }

// Broken is the error of a failing disk, for hooks.
func Broken(o Op) error { return &fs.PathError{Op: string(o.Kind), Path: o.Path, Err: syscall.EIO} }

// Fork returns a disk as it is after Crash with the same fates, for the machine's next life. This
// disk goes on as it is, for goroutines of the dead machine that cannot be stopped at once. What
// they write is lost.
func (d *Disk) Fork(fate Fate, names Names) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := New()
	next.dirs, next.free = maps.Clone(d.dirs), d.free
	copies := map[*inode]*inode{}
	copied := func(names map[string]*inode) map[string]*inode {
		own := map[string]*inode{}
		for name, n := range names {
			if copies[n] == nil {
				c := *n
				c.data, c.synced, c.dirty, c.dropped = slices.Clone(n.data), slices.Clone(n.synced), maps.Clone(n.dirty),
					maps.Clone(n.dropped)
				copies[n] = &c
			}
			own[name] = copies[n]
		}
		return own
	}
	next.names, next.stable = copied(d.names), copied(d.stable)
	next.Crash(fate, names)
	return next
}

// SetFree sets what FreeBytes returns.
func (d *Disk) SetFree(bytes uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = bytes
}

// FreeBytes implements disk.FreeReporter. It returns what SetFree set; writes do not lower it.
func (d *Disk) FreeBytes() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.free
}
