package disk

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"
)

// Damage is done to what processes see and to what is durable, while a process runs or when none
// does. Names are as in Op.Path. A process that runs sees it at once, also where it has mapped the
// file or the kernel had it in its cache.

// Flip inverts one bit of a file.
func (d *Disk) Flip(name string, offset int64, bit uint) error {
	return d.damage("flipping a bit of", name, func(n *inode) error {
		return n.file.damage(offset, 1, func(b []byte) { b[0] ^= 1 << (bit % 8) })
	})
}

// Overwrite replaces bytes of a file, which keeps its length.
func (d *Disk) Overwrite(name string, offset int64, b []byte) error {
	return d.damage("overwriting", name, func(n *inode) error {
		return n.file.damage(offset, int64(len(b)), func(old []byte) { copy(old, b) })
	})
}

// Truncate cuts a file.
func (d *Disk) Truncate(name string, size int64) error {
	return d.damage("truncating", name, func(n *inode) error { return n.file.cut(size) })
}

func (d *Disk) damage(what, name string, do func(*inode) error) error {
	n, err := d.file(name)
	if err == nil {
		err = do(n)
	}
	if err == nil {
		err = d.forgetContents(n)
	}
	if err != nil {
		return fmt.Errorf("disk: %s %s: %w", what, name, err)
	}
	return nil
}

// file returns a file by its name.
func (d *Disk) file(name string) (*inode, error) {
	t := d.names()
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.find(name)
	if err == nil && n.isDir() {
		return nil, &os.PathError{Op: "find", Path: name, Err: syscall.EISDIR}
	}
	return n, err
}

// Remove removes a file or a directory with everything below it. Open files stay open.
func (d *Disk) Remove(name string) error {
	t := d.names()
	t.mu.Lock()
	n, err := t.find(name)
	if err == nil && n == t.root {
		err = &os.PathError{Op: "remove", Path: name, Err: syscall.EBUSY}
	}
	if err != nil {
		t.mu.Unlock()
		return fmt.Errorf("disk: removing %s: %w", name, err)
	}
	at := place{n.parent, n.name}
	t.erase(n)
	t.mu.Unlock()
	return d.forgetName(at)
}

// erase takes an inode and what is below it away, as if it had never had a name. The caller holds
// the lock.
func (t *tree) erase(n *inode) {
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		t.erase(n.entries[name])
	}
	dir, name := n.parent, n.name
	n.parent = nil
	if n.file != nil {
		t.space.give(n.file.length())
	}
	t.set(dir.entries, name, nil)
	t.set(dir.stable, name, nil)
	t.forget(func(c change) bool { return c.dir == dir && c.name == name })
}

// Files returns the names of all files as processes see them, sorted.
func (d *Disk) Files() []string { return d.names().paths() }

// Contents returns a copy of a file as processes see it.
func (d *Disk) Contents(name string) ([]byte, error) {
	n, err := d.file(name)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	b := make([]byte, n.file.length())
	read, err := n.file.read(b, 0)
	if err != nil {
		return nil, fmt.Errorf("disk: reading %s: %w", name, err)
	}
	return b[:read], nil
}
