package disk

import (
	"path"
	"strings"
	"sync/atomic"
	"syscall"
)

// When says on which side of a step a Site is.
type When string

// The sides of a step.
const (
	Before When = "before"
	After  When = "after"
)

// Site is a place in the life of a server at which it can be killed: before or after one kind of
// step on one kind of file.
type Site struct {
	// Name is When and what happens, in words with dashes.
	Name string
	When When
	Kind Kind
	// Path is a pattern of package path for the end of Op.Path: as many elements of it as the pattern
	// has.
	Path string
}

// Matches reports whether a step is of the site's kind.
func (s Site) Matches(op Op) bool {
	if op.Kind != s.Kind {
		return false
	}
	parts := strings.Split(strings.Trim(op.Path, "/"), "/")
	want := strings.Count(s.Path, "/") + 1
	if len(parts) < want {
		return false
	}
	ok, err := path.Match(s.Path, strings.Join(parts[len(parts)-want:], "/"))
	return ok && err == nil
}

// Sites returns all sites of a data directory of `belfry serve`. Each step stands for two sites,
// before and after it.
func Sites() []Site {
	steps := []struct {
		name string
		kind Kind
		path string
	}{
		// The log. A segment is made and its room taken, then its first sync is followed by that of the
		// directory.
		{"create-segment", OpCreate, "log/*.wal"},
		{"allocate-segment", OpAllocate, "log/*.wal"},
		{"write-segment", OpWrite, "log/*.wal"},
		{"sync-segment", OpSync, "log/*.wal"},
		{"sync-log-directory", OpSyncDir, "log"},
		{"remove-segment", OpRemove, "log/*.wal"}, // the trim behind a snapshot
		{"sync-segment-list", OpSync, "log/segments.tmp"},
		{"rename-segment-list", OpRename, "log/segments"},
		// Term and vote.
		{"create-stable", OpCreate, "stable.tmp"},
		{"sync-stable", OpSync, "stable.tmp"},
		{"rename-stable", OpRename, "stable"},
		{"sync-shard-directory", OpSyncDir, "shards/*"},
		// What says how far the log was durable.
		{"write-high-water", OpWrite, "high-water"},
		{"sync-high-water", OpSync, "high-water"},
		// Snapshots.
		{"create-snapshot", OpCreate, "snapshots/*.snap.tmp"},
		{"write-snapshot", OpWrite, "snapshots/*.snap.tmp"},
		{"sync-snapshot", OpSync, "snapshots/*.snap.tmp"},
		{"rename-snapshot", OpRename, "snapshots/*.snap"},
		{"sync-snapshot-directory", OpSyncDir, "snapshots"},
		{"remove-snapshot", OpRemove, "snapshots/*.snap"},
		// What a data directory is made of once.
		{"sync-manifest", OpSync, "MANIFEST.tmp"},
		{"rename-manifest", OpRename, "MANIFEST"},
		{"sync-node-identity", OpSync, "node.json.tmp"},
		{"rename-node-identity", OpRename, "node.json"},
		{"allocate-reserve", OpAllocate, "RESERVE"},
		{"make-shard", OpMkdir, "shards/*"},
	}
	sites := make([]Site, 0, 2*len(steps))
	for _, s := range steps {
		for _, when := range []When{Before, After} {
			sites = append(sites, Site{Name: string(when) + "-" + s.name, When: when, Kind: s.kind, Path: s.path})
		}
	}
	return sites
}

// KillAt returns a hook that stops the disk (see Stop) and then calls kill, at the n-th step of a
// site, counted from 1 and from now on. Before the step means that the step is not taken; after it
// means that it is taken but the process has no answer. kill sends the signal. It must not wait for
// the end of the process, because the process waits for this step. The next call is Crash, without
// a Fate if only the process died.
func (d *Disk) KillAt(site Site, n int, kill func()) Hook {
	var seen atomic.Int64
	return func(op Op) Verdict {
		if !site.Matches(op) {
			return Verdict{}
		}
		switch {
		case seen.Add(1) != int64(n):
			return Verdict{}
		case site.When == After:
			return Verdict{Then: func() {
				d.Stop()
				kill()
			}}
		default:
			d.Stop()
			kill()
			return Verdict{Err: syscall.EIO}
		}
	}
}
