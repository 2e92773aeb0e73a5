package storage

import (
	"fmt"
	"path/filepath"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// create makes a new group in dir. It writes the manifest last. A crash before that leaves a
// directory without a manifest and without data, and the next create starts over. So a manifest
// proves that every other file existed.
func create(dir string, p paths, cfg Config) (manifest, error) {
	if cfg.Mode == MustExist {
		return manifest{}, &disk.CorruptError{File: p.manifest, Detail: "missing", Err: ErrNoGroup}
	}
	if err := cfg.FS.MkdirAll(dir); err != nil {
		return manifest{}, fmt.Errorf("storage: creating %s: %w", dir, err)
	}
	if err := checkUnborn(p, cfg.FS); err != nil {
		return manifest{}, err
	}
	m, err := newManifest(cfg.Group, cfg.Engine)
	if err != nil {
		return manifest{}, fmt.Errorf("storage: %w", err)
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"high-water marks", func() error { return createMarks(cfg.FS, p.marks) }},
		{"stable values", func() error { return disk.WriteRecord(cfg.FS, p.stable, stableMagic, nil) }},
		{"snapshots", func() error { return cfg.FS.MkdirAll(p.snapshots) }},
		{"log", func() error { return createLog(p, cfg, m) }},
		{"directory", func() error { return disk.SyncDirs(cfg.FS, dir, filepath.Dir(dir)) }},
		{"manifest", func() error { return writeManifest(cfg.FS, p.manifest, m) }},
	} {
		if err := step.do(); err != nil {
			return manifest{}, fmt.Errorf("storage: creating %s in %s: %w", step.what, dir, err)
		}
	}
	return m, nil
}

// checkUnborn refuses a directory that lost its manifest. Stores never exist without a manifest, so
// data in any file proves the loss. Without data, the files are leftovers of a creation that did
// not finish.
func checkUnborn(p paths, fsys disk.FS) error {
	lost := func(file, what string, err error) error {
		return &disk.CorruptError{File: p.manifest, Detail: fmt.Sprintf("missing, but %s %s", file, what), Err: err}
	}
	if found, err := disk.Exists(fsys, p.marks); err != nil {
		return lost(p.marks, "cannot be read", err)
	} else if found {
		m, err := openMarks(fsys, p.marks, 0, nil)
		if err != nil {
			return lost(p.marks, "is damaged", err)
		}
		if err := m.file.Close(); err != nil {
			return fmt.Errorf("storage: closing %s: %w", p.marks, err)
		}
		if m.current != (mark{}) {
			return lost(p.marks, "says that the group has data", nil)
		}
	} else if _, err := fsys.ReadDir(p.log); err == nil {
		return lost(p.log, "exists without high-water marks", nil)
	}
	if payload, err := disk.ReadRecord(fsys, p.stable, stableMagic); err == nil && len(payload) > 0 {
		return lost(p.stable, "holds a term", nil)
	} else if err != nil && !disk.IsMissing(err) {
		return lost(p.stable, "is damaged", err)
	}
	names, err := fsys.ReadDir(p.snapshots)
	if err != nil && !disk.IsMissing(err) {
		return lost(p.snapshots, "cannot be read", err)
	}
	if len(names) > 0 {
		return lost(p.snapshots, "is not empty", nil)
	}
	return nil
}

func createLog(p paths, cfg Config, m manifest) error {
	if err := cfg.FS.RemoveAll(p.log); err != nil {
		return err
	}
	if err := cfg.FS.MkdirAll(p.log); err != nil {
		return err
	}
	ec := cfg.engine(p, &disk.Guard{}, m, mark{}, &removals{fsys: cfg.FS})
	if m.Engine == EngineBolt {
		return createBolt(ec)
	}
	return createWAL(ec)
}
