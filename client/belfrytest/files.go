package belfrytest

import (
	"errors"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// segmentBytes is the size of a log file of each shard: small, for the few jobs of a test.
const segmentBytes = 1 << 20

// unsynced is the file system without its protection against a loss of power. It syncs no file, and
// gives files their length without allocating the space.
type unsynced struct{ disk.FS }

// OpenFile implements disk.FS.
func (u unsynced) OpenFile(name string, flag int) (disk.File, error) {
	f, err := u.FS.OpenFile(name, flag)
	if err != nil {
		return nil, err
	}
	cut, ok := f.(disk.Truncater)
	if !ok {
		return nil, errors.Join(errors.ErrUnsupported, f.Close())
	}
	return &unsyncedFile{f, cut}, nil
}

// SyncDir implements disk.FS.
func (unsynced) SyncDir(string) error { return nil }

type unsyncedFile struct {
	disk.File
	disk.Truncater
}

// Sync implements disk.File.
func (*unsyncedFile) Sync() error { return nil }

// SyncData implements disk.File.
func (*unsyncedFile) SyncData() error { return nil }

// Allocate implements disk.File.
func (f *unsyncedFile) Allocate(size int64) error {
	if have, err := f.Size(); err != nil || have >= size {
		return err
	}
	return f.Truncate(size)
}
