package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// FS is the part of a file system that this package uses. Each method is one step that can fail or
// be the last one before a crash; package diskfault has an implementation that does both on
// purpose.
type FS interface {
	// OpenFile opens name with the flags of package os.
	OpenFile(name string, flag int) (File, error)
	// Rename replaces newName by oldName. It is durable after SyncDir of the parent.
	Rename(oldName, newName string) error
	// Remove deletes a file. It is durable after SyncDir of the parent.
	Remove(name string) error
	// RemoveAll deletes name and everything below it.
	RemoveAll(name string) error
	// ReadDir lists the names in a directory, sorted; directories end in "/".
	ReadDir(name string) ([]string, error)
	// MkdirAll makes a directory and its parents.
	MkdirAll(name string) error
	// SyncDir makes creations, renames and removals in a directory durable.
	SyncDir(name string) error
}

// FreeReporter is an FS that knows its free space, so that the operating system is not asked.
type FreeReporter interface {
	// FreeBytes returns how many bytes may still be written.
	FreeBytes() uint64
}

// File is an open file of an FS.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes data and metadata durable.
	Sync() error
	// SyncData makes data durable, and only as much metadata as reading the data back needs.
	SyncData() error
	// Size returns the length in bytes.
	Size() (int64, error)
	// Allocate reserves disk space up to size bytes, so that later writes below it do not run out of
	// space.
	Allocate(size int64) error
}

// Truncater is a File that can be cut, so that a large one can be removed step by step.
type Truncater interface {
	// Truncate cuts the file to size bytes.
	Truncate(size int64) error
}

// Dater is a File that knows when it was last written.
type Dater interface {
	// Written returns the time of the last write, by the clock of the writer; zero if it is not
	// known.
	Written() time.Time
}

const (
	// FilePerm is the mode of new files, before the umask.
	FilePerm = 0o640
	dirPerm  = 0o750
	// TemporarySuffix ends the names of files that are not complete.
	TemporarySuffix = ".tmp"
)

// OSFS is the real file system.
type OSFS struct{}

// OpenFile implements FS.
func (OSFS) OpenFile(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, FilePerm)
	if err != nil {
		return nil, err
	}
	return &osFile{f}, nil
}

// Rename implements FS.
func (OSFS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }

// Remove implements FS.
func (OSFS) Remove(name string) error { return os.Remove(name) }

// RemoveAll implements FS.
func (OSFS) RemoveAll(name string) error { return os.RemoveAll(name) }

// ReadDir implements FS.
func (OSFS) ReadDir(name string) ([]string, error) {
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name()+"/")
		} else {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// MkdirAll implements FS.
func (OSFS) MkdirAll(name string) error { return os.MkdirAll(name, dirPerm) }

// SyncDir implements FS.
func (OSFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

type osFile struct{ *os.File }

// SyncData implements File.
func (f *osFile) SyncData() error { return dataSync(f.File) }

// Allocate implements File.
func (f *osFile) Allocate(size int64) error { return allocate(f.File, size) }

// Size implements File.
func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Written implements Dater.
func (f *osFile) Written() time.Time {
	info, err := f.Stat()
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// UnsettledError says that after a failure a file may have its old content or its new one.
type UnsettledError struct{ Err error }

// Error returns the text of the failure.
func (e *UnsettledError) Error() string { return e.Err.Error() }

// Unwrap returns the failure.
func (e *UnsettledError) Unwrap() error { return e.Err }

// ReplaceFile makes name hold data, atomically and durably: a crash leaves the old content or the
// new one. A failure of the rename, or after it, is an *UnsettledError.
func ReplaceFile(fsys FS, name string, data []byte) error {
	tmp := name + TemporarySuffix
	if err := RemoveIfPresent(fsys, tmp); err != nil {
		return fmt.Errorf("removing leftover %s: %w", tmp, err)
	}
	if err := writeSynced(fsys, tmp, data); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, name); err != nil {
		return &UnsettledError{fmt.Errorf("renaming %s: %w", tmp, err)}
	}
	// Without this, a power cut may bring the old content back after the caller was told of
	// success.
	if err := fsys.SyncDir(filepath.Dir(name)); err != nil {
		return &UnsettledError{fmt.Errorf("syncing directory of %s: %w", name, err)}
	}
	return nil
}

func writeSynced(fsys FS, name string, data []byte) (err error) {
	f, err := fsys.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR)
	if err != nil {
		return fmt.Errorf("creating %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(data, 0); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	// The rename must never become durable before the bytes it names.
	if err := f.Sync(); err != nil {
		return fmt.Errorf("syncing %s: %w", name, err)
	}
	return nil
}

// ReadFile returns the content of name.
func ReadFile(fsys FS, name string) (data []byte, err error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("asking the size of %s: %w", name, err)
	}
	data = make([]byte, size)
	if n, err := f.ReadAt(data, 0); n < len(data) {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return data, nil
}

// RemoveIfPresent removes a file; one that is not there is no error.
func RemoveIfPresent(fsys FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RemoveTemporaries removes the temporary files that a crash left in dir.
func RemoveTemporaries(fsys FS, dir string) error {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("listing %s: %w", dir, err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, TemporarySuffix) {
			continue
		}
		if err := fsys.Remove(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("removing leftover %s: %w", name, err)
		}
	}
	return nil
}

// Exists reports whether a file can be opened.
func Exists(fsys FS, name string) (bool, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// IsMissing reports whether an error says that a file is not there.
func IsMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// SyncDirs makes the names in directories durable, in this order. It goes on after an error.
func SyncDirs(fsys FS, dirs ...string) error {
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, fsys.SyncDir(dir))
	}
	return errors.Join(errs...)
}
