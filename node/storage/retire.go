package storage

import (
	"fmt"
)

// Retire takes the log and the snapshots from the group in dir and keeps its term and vote, so that the server may come back
// to the group, without any entry and without ever voting twice in a term. It does nothing to what is retired already, and
// completes what a crash cut off; until it has returned nil the group must not be opened. The group must be closed, and the server
// no member of it: what it has acknowledged is gone. A damaged term or vote is a *CorruptError, and everything is left as it is.
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
		if missing(err) {
			return &CorruptError{File: p.manifest, Detail: "missing", Err: ErrNoGroup}
		}
		return err
	}
	if m.Group != cfg.Group {
		return &CorruptError{File: p.manifest, Detail: fmt.Sprintf("belongs to group %q, not %q", m.Group, cfg.Group)}
	}
	if _, err := openStable(cfg.FS, p.stable, &guard{}); err != nil {
		return err
	}
	cfg.Engine = m.Engine
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"snapshots", func() error { return emptyDir(cfg.FS, p.snapshots) }},
		{"log", func() error { return createLog(p, cfg, m) }},
		{"directory", func() error { return syncDirs(cfg.FS, p.snapshots, dir) }},
		// Last: until here the marks say that something is missing, should anybody open the group all the same.
		{"high-water marks", func() error { return createMarks(cfg.FS, p.marks) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("storage: retiring %s in %s: %w", step.what, dir, err)
		}
	}
	return nil
}

// emptyDir makes sure that name is a directory without anything in it.
func emptyDir(fsys FS, name string) error {
	if err := fsys.RemoveAll(name); err != nil {
		return err
	}
	return fsys.MkdirAll(name)
}
