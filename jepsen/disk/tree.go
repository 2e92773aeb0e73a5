package disk

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// inode is a file or a directory. What is not said to be guarded otherwise is guarded by tree.mu.
type inode struct {
	id       uint64
	mode     uint32 // with its kind
	uid, gid uint32
	modified time.Time

	parent *inode // nil for the root, and for what has no name any more
	name   string

	entries map[string]*inode // of a directory, as processes see it
	stable  map[string]*inode // as of its last sync
	file    *contents         // of a file; has a lock of its own

	// refs counts entries, stable entries and pending changes that lead here. Without any the backing
	// file is removed.
	refs int
}

func (n *inode) isDir() bool { return n.mode&syscall.S_IFMT == syscall.S_IFDIR }

// change is one change of one directory that is not durable yet. Those of one step have one number.
type change struct {
	step Step
	seq  uint64
	dir  *inode
	name string
	node *inode // nil if the name is gone
}

// tree is all names, and the files below them in the backing directory.
type tree struct {
	backing string
	space   *space

	mu      sync.Mutex
	root    *inode
	next    uint64 // inode number
	seq     uint64
	pending []change
	files   map[uint64]*inode
}

func newTree(backing string, s *space) *tree {
	t := &tree{backing: backing, space: s, next: 1, files: map[uint64]*inode{}}
	t.root = t.newDir(0o755)
	t.root.uid, t.root.gid = uint32(os.Getuid()), uint32(os.Getgid())
	return t
}

func (t *tree) newDir(perm uint32) *inode {
	n := &inode{id: t.next, mode: syscall.S_IFDIR | perm&0o7777, modified: time.Now(), entries: map[string]*inode{},
		stable: map[string]*inode{}}
	t.next++
	return n
}

func (t *tree) newFile(perm uint32) (*inode, error) {
	c, err := newContents(t.object(t.next), t.space)
	if err != nil {
		return nil, err
	}
	n := &inode{id: t.next, mode: syscall.S_IFREG | perm&0o7777, modified: time.Now(), file: c}
	t.files[n.id] = n
	t.next++
	return n, nil
}

// object returns where the bytes of a file are.
func (t *tree) object(id uint64) string { return filepath.Join(t.backing, fmt.Sprintf("%08d", id)) }

// path returns the name of an inode, or of a name in it. The caller holds the lock.
func (t *tree) path(n *inode, below string) string {
	for n.parent != nil {
		below, n = path.Join(n.name, below), n.parent
	}
	if n != t.root {
		below = path.Join("(removed)", n.name, below)
	}
	return "/" + below
}

func (t *tree) pathOf(at place) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.path(at.dir, at.name)
}

// find returns what a path leads to. The caller holds the lock.
func (t *tree) find(name string) (*inode, error) {
	n := t.root
	for part := range strings.SplitSeq(strings.Trim(path.Clean("/"+name), "/"), "/") {
		if part == "" {
			break
		}
		child, ok := n.entries[part]
		if !ok {
			return nil, &os.PathError{Op: "find", Path: name, Err: syscall.ENOENT}
		}
		n = child
	}
	return n, nil
}

// add makes a file or directory under a name that is free.
func (t *tree) add(dir *inode, name string, mode uint32) (n *inode, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := dir.entries[name]; ok {
		return nil, syscall.EEXIST
	}
	kind := OpCreate
	if mode&syscall.S_IFMT == syscall.S_IFDIR {
		n, kind = t.newDir(mode), OpMkdir
	} else if n, err = t.newFile(mode); err != nil {
		return nil, err
	}
	t.change(Step{Kind: kind, Path: t.path(dir, name)}, change{dir: dir, name: name, node: n})
	return n, nil
}

// remove takes a name away.
func (t *tree) remove(dir *inode, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := dir.entries[name]
	switch {
	case !ok:
		return syscall.ENOENT
	case len(n.entries) > 0:
		return syscall.ENOTEMPTY
	}
	t.change(Step{Kind: OpRemove, Path: t.path(dir, name)}, change{dir: dir, name: name})
	return nil
}

// place is a name in a directory; without a name it is the inode itself.
type place struct {
	dir  *inode
	name string
}

// rename moves what is at one place to another, in one step.
func (t *tree) rename(from, to place) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := from.dir.entries[from.name]
	if !ok {
		return syscall.ENOENT
	}
	if old := to.dir.entries[to.name]; old == n {
		return nil
	} else if old != nil && len(old.entries) > 0 {
		return syscall.ENOTEMPTY
	}
	step := Step{Kind: OpRename, From: t.path(from.dir, from.name), Path: t.path(to.dir, to.name)}
	t.change(step, change{dir: from.dir, name: from.name}, change{dir: to.dir, name: to.name, node: n})
	return nil
}

// change takes one step for processes, and notes it for the next sync of each directory. The caller
// holds the lock.
func (t *tree) change(step Step, changes ...change) {
	t.seq++
	for _, c := range changes {
		c.step, c.seq = step, t.seq
		if c.node != nil {
			c.node.refs++ // the pending change
		}
		t.pending = append(t.pending, c)
		old := c.dir.entries[c.name]
		if t.set(c.dir.entries, c.name, c.node); old != nil {
			old.parent = nil
			if moves := step.Kind == OpRename && c.node == nil; old.file != nil && !moves {
				t.space.give(old.file.length())
			}
		}
		if c.node != nil {
			c.node.parent, c.node.name = c.dir, c.name
		}
		c.dir.modified = time.Now()
	}
}

// set makes a name lead to an inode, or nowhere.
func (t *tree) set(names map[string]*inode, name string, n *inode) {
	old := names[name]
	if n == nil {
		delete(names, name)
	} else {
		names[name] = n
		n.refs++
	}
	t.release(old)
}

// release takes one reference from an inode. Without any, its backing file goes; processes that
// have it open keep it, and the runtime closes it when nothing leads there any more.
func (t *tree) release(n *inode) {
	if n == nil {
		return
	}
	if n.refs--; n.refs > 0 {
		return
	}
	if !n.isDir() {
		delete(t.files, n.id)
		_ = os.Remove(t.object(n.id)) // what remains does no harm
		return
	}
	t.forget(func(c change) bool { return c.dir == n })
	for _, name := range slices.Sorted(maps.Keys(n.stable)) {
		t.set(n.stable, name, nil)
	}
}

// forget takes pending changes away. What only they led to goes when the list is whole again, since
// that may take others away.
func (t *tree) forget(which func(change) bool) {
	var gone []*inode
	t.pending = slices.DeleteFunc(t.pending, func(c change) bool {
		if which(c) {
			gone = append(gone, c.node)
		}
		return which(c)
	})
	for _, node := range gone {
		t.release(node)
	}
}

// syncDir makes the names in a directory durable. That takes a sync of the backing directory: as
// long as a real one.
func (t *tree) syncDir(dir *inode) error {
	f, err := os.Open(t.backing)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var synced, rest []change
	for _, c := range t.pending {
		if c.dir == dir {
			synced = append(synced, c)
		} else {
			rest = append(rest, c)
		}
	}
	t.pending = rest
	for _, c := range synced {
		t.set(dir.stable, c.name, c.node)
		t.release(c.node)
	}
	return nil
}

// cutPower makes all names and files what a power cut leaves of them.
func (t *tree) cutPower(fate Fate, names Names) (lost Losses, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	cut := map[*inode]bool{}
	for len(t.pending) > 0 {
		together := 1
		for together < len(t.pending) && t.pending[together].seq == t.pending[0].seq {
			together++
		}
		step := t.pending[:together]
		t.pending = t.pending[together:]
		// The steps of one directory become durable in their order: a step that is lost takes all later
		// ones of its directories along.
		kept := !slices.ContainsFunc(step, func(c change) bool { return cut[c.dir] }) && names(step[0].step)
		if !kept {
			lost.Names++
		}
		for _, c := range step {
			cut[c.dir] = cut[c.dir] || !kept
			if kept {
				t.set(c.dir.stable, c.name, c.node)
			}
		}
	}
	t.pending = nil
	found := map[uint64]bool{}
	var taken int64
	if err := t.restore(t.root, found, func(n *inode) error {
		name := t.path(n, "")
		bytes, err := n.file.cutPower(func(sector int64) bool { return fate(name, sector) })
		lost.Bytes += bytes
		taken += n.file.length()
		return err
	}); err != nil {
		return lost, err
	}
	for _, id := range slices.Sorted(maps.Keys(t.files)) {
		if n := t.files[id]; !found[id] {
			lost.Bytes += n.file.unsynced()
			delete(t.files, id)
			if err := os.Remove(t.object(id)); err != nil {
				return lost, err
			}
		}
	}
	t.space.count(taken)
	return lost, nil
}

// restore shows processes what is durable below a directory, and calls settle for each file. What
// has two names, because it was moved from a directory that was not synced into one that was, keeps
// the one that comes first in order.
func (t *tree) restore(dir *inode, found map[uint64]bool, settle func(*inode) error) error {
	found[dir.id] = true
	dir.entries = map[string]*inode{}
	for _, name := range slices.Sorted(maps.Keys(dir.stable)) {
		n := dir.stable[name]
		if found[n.id] {
			delete(dir.stable, name)
			continue
		}
		found[n.id] = true
		n.parent, n.name, n.refs = dir, name, 2
		dir.entries[name] = n
		if n.isDir() {
			if err := t.restore(n, found, settle); err != nil {
				return err
			}
		} else if err := settle(n); err != nil {
			return err
		}
	}
	return nil
}

// paths returns the names of all files as processes see them, sorted.
func (t *tree) paths() (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.files {
		if n.parent != nil {
			names = append(names, t.path(n, ""))
		}
	}
	slices.Sort(names)
	return names
}
