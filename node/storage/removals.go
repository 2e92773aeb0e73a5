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

	"github.com/belfrydb/belfry/node/storage/disk"
)

// removeStepBytes is how much of a file is freed at once: a millisecond of work where the file
// system tells the disk what is free.
const removeStepBytes = 4 << 20

// removals are the files that the log and the snapshots do not need any more. A file system may
// take a fifth of a millisecond for each MiB of a removed file, and block every sync meanwhile. The
// library of the log also blocks appends while it removes segments. So once the group is open, a
// file is only noted, and Stores.Tidy removes it.
//
// After a crash, such a file is in no list of segments, or is a temporary file. It is removed when
// the group is opened.
type removals struct {
	fsys   disk.FS
	guard  *disk.Guard
	logger *slog.Logger
	now    func() time.Time
	steps  disk.ChannelMutex // held by each step of carryOut, and by close

	mu    sync.Mutex
	later bool
	files []removal
}

// removal is a file to be removed.
type removal struct {
	name string
	read func() bool // reports whether it may still be read: then it is not cut step by step; nil for never
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

// postpone makes delete only note files from now on.
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

// carryOut implements Stores.Tidy.
func (r *removals) carryOut(pause func(worked time.Duration) bool) {
	for goOn := true; goOn; {
		f, ok := r.next()
		if !ok {
			return
		}
		var err error
		if goOn, err = r.dispose(f, pause); err != nil {
			goOn = false
			if !errors.Is(err, disk.ErrClosed) {
				r.logger.Warn("removing a file that is not needed any more", "error", err)
			}
		}
		if !goOn {
			_ = r.delete(f) // for the next call; harmless if the file is gone
		}
	}
}

// dispose removes one file. It reports whether to go on.
func (r *removals) dispose(f removal, pause func(worked time.Duration) bool) (goOn bool, err error) {
	if (f.read == nil || !f.read()) && !r.shrink(f.name, pause) {
		return false, nil
	}
	return r.step(f.name, pause, func() error { return r.remove(f.name) })
}

// shrink cuts a file step by step until one step is left. It reports whether to go on. If the file
// cannot be opened or cut, because descriptors or space run out, it stays as large as it is: its
// removal needs neither.
func (r *removals) shrink(name string, pause func(worked time.Duration) bool) (goOn bool) {
	f, err := r.fsys.OpenFile(name, os.O_RDWR)
	if err != nil {
		return true
	}
	defer func() { _ = f.Close() }() // nothing was written
	size, err := f.Size()
	t, ok := f.(disk.Truncater)
	for goOn = true; goOn && ok && err == nil && size > removeStepBytes; {
		size -= removeStepBytes
		goOn, err = r.step(name, pause, func() error { return t.Truncate(size) })
	}
	return goOn
}

// step does one piece of work, unless the group is closed, and asks pause whether to go on.
func (r *removals) step(name string, pause func(worked time.Duration) bool, do func() error) (goOn bool, err error) {
	r.steps.Lock()
	start := r.now()
	err = r.guard.Watch("remove "+name, do)
	worked := r.now().Sub(start)
	r.steps.Unlock()
	return pause == nil || pause(worked), err
}

// close waits for the step under way. It follows guard.close, so no step runs when the group is
// opened again.
func (r *removals) close() {
	r.steps.Lock()
	defer r.steps.Unlock()
}

func (r *removals) remove(name string) error {
	if err := r.fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("storage: %w", err)
	}
	return r.fsys.SyncDir(filepath.Dir(name))
}
