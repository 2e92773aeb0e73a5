package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// removeStepBytes is how much of a file is given back to the file system at once: a millisecond's work where it tells the disk what is free.
const removeStepBytes = 4 << 20

// removals are the files that log and snapshots have given up. A file system may take a fifth of a millisecond for each MiB of a file that is removed, and let nobody sync meanwhile;
// the log's library moreover removes segments while it keeps appends out. So once the group is open, files are only noted where they are given up, and Stores.Tidy removes them.
//
// What a crash leaves of them is in no list of segments, or is a temporary file, and goes when the group is opened.
type removals struct {
	fsys   FS
	guard  *guard
	logger *slog.Logger
	now    func() time.Time

	mu    sync.Mutex
	later bool
	files []removal
}

// removal is a file to be removed; one that is not whole may be cut step by step, because nobody reads it any more.
type removal struct {
	name  string
	whole bool
}

// delete removes a file now, or notes it if the group is open.
func (r *removals) delete(f removal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.later {
		r.files = append(r.files, f)
		return nil
	}
	return r.remove(f.name)
}

// postpone has files noted from now on.
func (r *removals) postpone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.later = true
}

// next takes a file from those that were noted; ok is false if there is none.
func (r *removals) next() (f removal, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.files) == 0 {
		return f, false
	}
	f, r.files = r.files[0], r.files[1:]
	return f, true
}

// carryOut is Stores.Tidy.
func (r *removals) carryOut(rest func(worked time.Duration) bool) {
	for goOn := true; goOn; {
		f, ok := r.next()
		if !ok {
			return
		}
		var err error
		if goOn, err = r.dispose(f, rest); err != nil {
			goOn = false
			if !errors.Is(err, ErrClosed) {
				r.logger.Warn("removing a file that is not needed any more", "error", err)
			}
		}
		if !goOn {
			_ = r.delete(f) // for the next time, or for nothing if it is gone already
		}
	}
}

// dispose removes one file. It reports whether to go on.
func (r *removals) dispose(f removal, rest func(worked time.Duration) bool) (goOn bool, err error) {
	if !f.whole {
		if goOn, err = r.shrink(f.name, rest); !goOn || err != nil {
			return goOn, err
		}
	}
	return r.step(f.name, rest, func() error { return r.remove(f.name) })
}

// shrink cuts a file step by step, if the file system can do that, until one step is left.
func (r *removals) shrink(name string, rest func(worked time.Duration) bool) (goOn bool, err error) {
	f, err := r.fsys.OpenFile(name, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return true, fmt.Errorf("storage: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	t, ok := f.(Truncater)
	if !ok {
		return true, nil
	}
	size, err := f.Size()
	for goOn = true; goOn && err == nil && size > removeStepBytes; {
		size -= removeStepBytes
		goOn, err = r.step(name, rest, func() error { return t.Truncate(size) })
	}
	return goOn, err
}

// step does one piece of work and asks whether to go on.
func (r *removals) step(name string, rest func(worked time.Duration) bool, do func() error) (goOn bool, err error) {
	start := r.now()
	err = r.guard.watch("remove "+name, do)
	return rest == nil || rest(r.now().Sub(start)), err
}

func (r *removals) remove(name string) error {
	if err := r.fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("storage: %w", err)
	}
	return r.fsys.SyncDir(filepath.Dir(name))
}
