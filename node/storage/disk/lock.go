//go:build unix

package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const lockName = "LOCK"

// LockedError says that another process holds a data directory.
type LockedError struct {
	Dir string
	PID int // the process id that the holder wrote, 0 if it cannot be read
}

// Error names the directory and the process.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("storage: data directory %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("storage: data directory %s is in use by process %d", e.Dir, e.PID)
}

// DirLock is a held data directory.
type DirLock struct{ file *os.File }

// Lock creates dir and locks it for this process, until Close or the end of the process. A crash
// leaves nothing to clean up. A directory that is locked already, even by this process, is a
// *LockedError. The lock is for a whole data directory, not for one group.
func Lock(dir string) (*DirLock, error) {
	if err := MakeDir(OSFS{}, dir); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, FilePerm)
	if err != nil {
		return nil, fmt.Errorf("storage: opening lock of %s: %w", dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = &LockedError{Dir: dir, PID: readPID(f)}
		} else {
			err = fmt.Errorf("storage: locking %s: %w", dir, err)
		}
		return nil, errors.Join(err, f.Close())
	}
	if err := writePID(f); err != nil {
		return nil, errors.Join(fmt.Errorf("storage: writing lock of %s: %w", dir, err), f.Close())
	}
	return &DirLock{file: f}, nil
}

// MakeDir makes a directory and its parents, and makes their names durable: without its own name,
// even a synced data directory is lost. If the directory exists, MakeDir syncs its parent too, as
// far as that is allowed, since its maker may have crashed.
func MakeDir(fsys FS, dir string) error {
	dir = filepath.Clean(dir)
	var parents []string // the parents of the missing directories
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := fsys.ReadDir(at); !IsMissing(err) {
			break
		}
		parents = append(parents, filepath.Dir(at))
	}
	if len(parents) == 0 {
		if err := fsys.SyncDir(filepath.Dir(dir)); err != nil && !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("storage: syncing the parent of %s: %w", dir, err)
		}
		return nil
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return fmt.Errorf("storage: creating %s: %w", dir, err)
	}
	if err := SyncDirs(fsys, parents...); err != nil {
		return fmt.Errorf("storage: syncing the parents of %s: %w", dir, err)
	}
	return nil
}

// Close releases the lock. The file stays: if it were removed, two processes could lock two files
// of one name.
func (l *DirLock) Close() error { return l.file.Close() }

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func readPID(f *os.File) int {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0) // what cannot be read is no pid
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}
