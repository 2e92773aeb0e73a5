// Package disk is a disk for real processes that fails on purpose. It is a file system in user
// space (FUSE) in front of a directory of a real disk. In a crash the test decides whether unsynced
// writes are lost, kept or torn. Each step can fail, wait, hang, or be the last one before the
// process is killed. Files can be damaged under a running process.
//
// A sync of a file makes its contents durable, and a sync of a directory its names. There is no
// other order between them.
package disk

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
)

// Config is where a disk is.
type Config struct {
	// Mountpoint is the directory in which processes see the disk. It is made if it is missing.
	Mountpoint string
	// Backing is a directory on a real disk, for the bytes of files and not for reading: names are in
	// memory only, see Copy. It is made if it is missing, and must be empty.
	Backing string
	Logger  *slog.Logger
}

func (c Config) check() error {
	var errs []error
	for _, dir := range []struct{ what, path string }{{"Mountpoint", c.Mountpoint}, {"Backing", c.Backing}} {
		if dir.path == "" {
			errs = append(errs, fmt.Errorf("no %s", dir.what))
			continue
		}
		if err := os.MkdirAll(dir.path, 0o750); err != nil {
			errs = append(errs, err)
		} else if found, err := os.ReadDir(dir.path); err != nil || len(found) > 0 {
			errs = append(errs, errors.Join(fmt.Errorf("%s %s is not empty", dir.what, dir.path), err))
		}
	}
	if c.Logger == nil {
		errs = append(errs, errors.New("no Logger"))
	}
	if len(errs) > 0 {
		return fmt.Errorf("disk: %w", errors.Join(errs...))
	}
	return nil
}

// Disk is a mounted disk. Its methods may be called from any goroutine, except those that take the
// disk away from its process (Crash, ReplaceAll, Close): they are for one goroutine.
type Disk struct {
	cfg   Config
	space *space
	steps *steps

	mu   sync.Mutex
	tree *tree
	life *life // nil after Close, and between two lives
}

// ErrClosed is returned for a disk that was closed, or that could not be mounted again after a
// crash.
var ErrClosed = errors.New("disk: closed")

// open makes a disk that is not mounted.
func open(cfg Config) (*Disk, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &Disk{cfg: cfg, space: &space{}, steps: newSteps()}
	d.tree = newTree(cfg.Backing, d.space)
	return d, nil
}

// Close unmounts the disk, also when processes use it or hang in it: what they ask for from now on
// fails. The backing directory stays.
func (d *Disk) Close() error {
	err := d.unmount()
	d.names().close()
	return err
}

// Crash cuts the power. The process that used the disk should be dead; its open files are dead. Of
// the contents and names that were not durable, fate and names decide which remain. The hook is
// removed, and the disk is mounted again. Without a fate only the process died: the kernel still
// has all its writes, and those that were not durable are not durable yet.
func (d *Disk) Crash(fate Fate, names Names) (Losses, error) {
	if err := d.unmount(); err != nil {
		return Losses{}, err
	}
	if fate == nil {
		return Losses{}, d.mount()
	}
	lost, err := d.names().cutPower(fate, names)
	if err != nil {
		return lost, fmt.Errorf("disk: restoring what is durable: %w", err)
	}
	return lost, d.mount()
}

// ReplaceAll puts a copy of a directory in place of everything on the disk, durably: an older
// state, or an empty one. The process that used the disk should be dead.
func (d *Disk) ReplaceAll(dir string) error {
	if err := d.unmount(); err != nil {
		return err
	}
	d.names().close()
	if err := errors.Join(os.RemoveAll(d.cfg.Backing), os.Mkdir(d.cfg.Backing, 0o750)); err != nil {
		return fmt.Errorf("disk: emptying the backing directory: %w", err)
	}
	d.space.count(0)
	t := newTree(d.cfg.Backing, d.space)
	if err := t.load(t.root, dir); err != nil {
		return fmt.Errorf("disk: copying %s: %w", dir, err)
	}
	if _, err := t.cutPower(KeepAll, KeepNames); err != nil {
		return fmt.Errorf("disk: copying %s: %w", dir, err)
	}
	d.mu.Lock()
	d.tree = t
	d.mu.Unlock()
	return d.mount()
}

// Copy writes what the process sees to a directory, which is made. While the process runs, files
// may be copied at different moments.
func (d *Disk) Copy(dir string) error {
	t := d.names()
	if err := t.save(t.root, dir); err != nil {
		return fmt.Errorf("disk: copying to %s: %w", dir, err)
	}
	return nil
}

// Mountpoint returns the directory in which processes see the disk.
func (d *Disk) Mountpoint() string { return filepath.Clean(d.cfg.Mountpoint) }

func (d *Disk) names() *tree {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tree
}

// mount mounts the disk.
func (d *Disk) mount() error {
	d.steps.start()
	l, err := mount(d)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.life = l
	return nil
}

// unmount unmounts the disk. After it no step is under way.
func (d *Disk) unmount() error {
	d.mu.Lock()
	l := d.life
	d.life = nil
	d.mu.Unlock()
	if l == nil {
		return ErrClosed
	}
	return l.unmount()
}

// present returns the life of the disk.
func (d *Disk) present() (*life, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life == nil {
		return nil, ErrClosed
	}
	return d.life, nil
}
