package storage

import (
	"fmt"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// Rename changes the identity of the group in dir. It does nothing if that is done already. The
// group must be closed. To Raft a renamed group is another one: the servers that knew it under its
// old name must never get messages from it again.
func Rename(dir string, fsys disk.FS, from, to string) error {
	p := pathsIn(dir)
	m, err := readManifest(fsys, p.manifest)
	if err != nil {
		return err
	}
	if m.Group == to {
		return nil
	}
	if m.Group != from {
		return &disk.CorruptError{File: p.manifest, Detail: fmt.Sprintf("belongs to group %q, not %q", m.Group, from)}
	}
	m.Group = to
	if err := writeManifest(fsys, p.manifest, m); err != nil {
		return fmt.Errorf("storage: renaming the group in %s: %w", dir, err)
	}
	return disk.SyncDirs(fsys, dir)
}

// Named returns the identity of the group in dir.
func Named(dir string, fsys disk.FS) (string, error) {
	m, err := readManifest(fsys, pathsIn(dir).manifest)
	return m.Group, err
}
