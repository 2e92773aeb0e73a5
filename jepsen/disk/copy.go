package disk

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// close closes the backing files. Concurrent readers get an error.
func (t *tree) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.files {
		_ = n.file.file.Close() // nothing is lost: what counts is the file
	}
}

// load copies a directory into one of the tree.
func (t *tree) load(dir *inode, from string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		name, mode := filepath.Join(from, e.Name()), uint32(info.Mode().Perm())
		switch {
		case e.IsDir():
			n, err := t.add(dir, e.Name(), mode|syscall.S_IFDIR)
			if err == nil {
				err = t.load(n, name)
			}
			if err != nil {
				return err
			}
		case e.Type().IsRegular():
			n, err := t.add(dir, e.Name(), mode)
			if err == nil {
				err = n.file.load(name)
			}
			if err != nil {
				return err
			}
		default:
			return &os.PathError{Op: "copy", Path: name, Err: errors.New("neither a file nor a directory")}
		}
	}
	return nil
}

// load copies a file into an empty one. It is durable after the next crash in which everything is
// kept.
func (c *contents) load(name string) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes, err := io.Copy(c.file, f)
	if err != nil {
		return err
	}
	c.setSize(bytes)
	return c.space.take(bytes)
}

// save copies a directory of the tree out.
func (t *tree) save(dir *inode, to string) error {
	if err := os.MkdirAll(to, 0o750); err != nil {
		return err
	}
	t.mu.Lock()
	entries := maps.Clone(dir.entries)
	t.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		n, target := entries[name], filepath.Join(to, name)
		if n.isDir() {
			if err := t.save(n, target); err != nil {
				return err
			}
			continue
		}
		if err := n.file.save(target, os.FileMode(n.mode&0o777)); err != nil {
			return err
		}
	}
	return nil
}

// save copies a file out, as it is at one moment.
func (c *contents) save(name string, perm os.FileMode) (err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = io.Copy(f, io.NewSectionReader(c.file, 0, c.size))
	return err
}
