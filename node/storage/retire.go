package storage

import (
	"fmt"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// Retire removes the log and the snapshots of the group in dir and keeps its term and vote. So the
// server may come back to the group without any entry, and never votes twice in a term. Retire does
// nothing to a retired group, and completes what a crash interrupted. Until it has returned nil,
// the group must not be opened. The group must be closed. The server must not be a member of it,
// because what it acknowledged is gone. A damaged term or vote is a *CorruptError, and everything
// stays as it is.
//
// cfg.Engine is not used: a group keeps the engine that it was created with.
func Retire(dir string, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	p := pathsIn(dir)
	m, err := readManifest(cfg.FS, p.manifest)
	if err != nil {
		if disk.IsMissing(err) {
			return &disk.CorruptError{File: p.manifest, Detail: "missing", Err: ErrNoGroup}
		}
		return err
	}
	if m.Group != cfg.Group {
		return &disk.CorruptError{File: p.manifest, Detail: fmt.Sprintf("belongs to group %q, not %q", m.Group, cfg.Group)}
	}
	if _, err := openStable(cfg.FS, p.stable, &disk.Guard{}); err != nil {
		return err
	}
	cfg.Engine = m.Engine
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"snapshots", func() error { return emptyDir(cfg.FS, p.snapshots) }},
		{"log", func() error { return createLog(p, cfg, m) }},
		{"directory", func() error { return disk.SyncDirs(cfg.FS, p.snapshots, dir) }},
		// Last: until here, the marks say that data is missing, if the group is opened all the
		// same.
		{"high-water marks", func() error { return createMarks(cfg.FS, p.marks) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("storage: retiring %s in %s: %w", step.what, dir, err)
		}
	}
	return nil
}

// emptyDir makes name an empty directory.
func emptyDir(fsys disk.FS, name string) error {
	if err := fsys.RemoveAll(name); err != nil {
		return err
	}
	return fsys.MkdirAll(name)
}
