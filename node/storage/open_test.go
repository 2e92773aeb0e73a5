package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// TestMissingDirectory: a missing directory is damage, whichever store looks for it first.
func TestMissingDirectory(t *testing.T) {
	for _, name := range []string{"log", "snapshots"} {
		dir := filepath.Join(t.TempDir(), "shard-1")
		s, err := storage.Open(dir, testConfig(disk.OSFS{}, storage.EngineWAL))
		must(t, err)
		appendEntries(t, s, 1, 5, 1)
		must(t, takeSnapshot(s.Snapshots, 5, 1, snapshotData(5)))
		closeStores(t, s)
		must(t, os.RemoveAll(filepath.Join(dir, name)))
		if _, err := storage.Open(dir, testConfig(disk.OSFS{}, storage.EngineWAL)); !errors.As(err,
			new(*disk.CorruptError)) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

func TestConfigReportsEveryProblem(t *testing.T) {
	_, err := storage.Open(groupDir, storage.Config{Engine: "paper", SegmentBytes: 1})
	for _, field := range []string{"Group", "Engine", "SegmentBytes"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in: %v", field, err)
		}
	}
	if _, err := storage.Open(groupDir, testConfig(newDisk(), storage.EngineBolt)); err == nil {
		t.Error("bolt was accepted on a disk it cannot use")
	}
}

func TestOpenMustExist(t *testing.T) {
	d := newDisk()
	cfg := testConfig(d, storage.EngineWAL)
	cfg.Mode = storage.MustExist
	_, err := storage.Open(groupDir, cfg)
	wantCorrupt(t, err, "MANIFEST")
	if !errors.Is(err, storage.ErrNoGroup) || len(d.Files()) != 0 {
		t.Errorf("%v, files %v", err, d.Files())
	}
	closeStores(t, openOn(t, d))
	s, err := storage.Open(groupDir, cfg)
	must(t, err)
	closeStores(t, s)
}

func TestOpenRefusesAnotherGroup(t *testing.T) {
	d := newDisk()
	closeStores(t, openOn(t, d))
	cfg := testConfig(d, storage.EngineWAL)
	cfg.Group = "cluster-7/shard-2"
	_, err := storage.Open(groupDir, cfg)
	wantCorrupt(t, err, "MANIFEST")
	if !strings.Contains(fmt.Sprint(err), groupName) {
		t.Errorf("%v does not name the group", err)
	}
}

func TestOpenKeepsTheEngine(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(disk.OSFS{}, storage.EngineBolt)
	s, err := storage.Open(dir, cfg)
	must(t, err)
	must(t, s.Log.StoreLog(entry(1, 0)))
	closeStores(t, s)
	cfg.Engine = storage.EngineWAL
	s, err = storage.Open(dir, cfg)
	must(t, err)
	must(t, checkEntries(s, 1, 1))
	closeStores(t, s)
}

// Files of another group with the same name and indexes fail their sums.
func TestOpenRefusesAnotherGroupsSegment(t *testing.T) {
	one, two := newDisk(), newDisk()
	for _, d := range []*diskfault.Disk{one, two} {
		s := openOn(t, d)
		appendEntries(t, s, 1, 20, 1)
		closeStores(t, s)
	}
	name := groupDir + "/log/00000000000000000001-0000000000000001.wal"
	one.SetContents(name, two.Contents(name))
	_, err := storage.Open(groupDir, testConfig(one, storage.EngineWAL))
	wantCorrupt(t, err, ".wal")
}

func TestOpenRefusesAnotherGroupsBolt(t *testing.T) {
	var dirs [2]string
	for i := range dirs {
		dirs[i] = t.TempDir()
		s, err := storage.Open(dirs[i], testConfig(disk.OSFS{}, storage.EngineBolt))
		must(t, err)
		appendEntries(t, s, 1, 20, 1)
		closeStores(t, s)
	}
	other, err := os.ReadFile(filepath.Join(dirs[1], "log", "raft.db"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dirs[0], "log", "raft.db"), other, 0o600))
	_, err = storage.Open(dirs[0], testConfig(disk.OSFS{}, storage.EngineBolt))
	wantCorrupt(t, err, "raft.db")
}

// A power cut must not take a directory away in which something was acknowledged.
func TestNewGroupSyncsItsDirectories(t *testing.T) {
	d := newDisk()
	synced := map[string]bool{}
	d.SetHook(func(o diskfault.Op) error {
		if o.Kind == diskfault.OpSyncDir {
			synced[o.Path] = true
		}
		if o.Kind == diskfault.OpRename && strings.Contains(o.Path, "MANIFEST") {
			for _, dir := range []string{groupDir, filepath.Dir(groupDir)} {
				if !synced[dir] {
					t.Errorf("the group exists before %s is synced", dir)
				}
			}
		}
		return nil
	})
	closeStores(t, openOn(t, d))
}

// What Open makes of a log and a snapshot that disagree.
func TestOpenReconciles(t *testing.T) {
	const snap = 100
	for _, tc := range []struct {
		name                string
		first, last         uint64 // log before the snapshot
		term                uint64 // of the log; the snapshot's is 3
		later               uint64 // entries after the snapshot are stored up to here, in term 3, after clearing
		wantFirst, wantLast uint64
	}{
		{name: "log ends before the snapshot", first: 1, last: 60, term: 2},
		{name: "log reaches it in another term", first: 1, last: 100, term: 2},
		{name: "log goes beyond it in another term", first: 1, last: 140, term: 2},
		{name: "log agrees", first: 1, last: 140, term: 3, wantFirst: 1, wantLast: 140},
		{name: "log ends with it", first: 1, last: 100, term: 3, wantFirst: 1, wantLast: 100},
		{name: "log begins after it", first: 1, last: 60, term: 2, later: 140, wantFirst: 101, wantLast: 140},
		{name: "no log"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDisk()
			s := openOn(t, d)
			setTerm(t, s, 3)
			if tc.last > 0 {
				must(t, s.Log.StoreLogs(entries(tc.first, tc.last, tc.term)))
			}
			mustSnapshot(t, s, snap, 3, snapshotData(snap))
			if tc.later > 0 {
				must(t, s.Log.DeleteRange(tc.first, tc.last))
				must(t, s.Log.StoreLogs(entries(snap+1, tc.later, 3)))
			}
			closeStores(t, s)
			var told bytes.Buffer
			cfg := testConfig(d, storage.EngineWAL)
			cfg.Logger = slog.New(slog.NewTextHandler(&told, nil))
			s, err := storage.Open(groupDir, cfg)
			must(t, err)
			defer closeStores(t, s)
			must(t, checkEntries(s, tc.wantFirst, tc.wantLast))
			cleared := tc.last > 0 && tc.wantLast == 0
			if strings.Contains(told.String(), "replaced") != cleared {
				t.Errorf("cleared: %v, told: %s", cleared, told.String())
			}
			select {
			case <-s.RestartNeeded():
				t.Error("a restart is asked for at open")
			default:
			}
		})
	}
}

func TestOpenRefusesAGapBehindTheSnapshot(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	setTerm(t, s, 1)
	must(t, s.Log.StoreLogs(entries(1, 60, 1)))
	mustSnapshot(t, s, 20, 1, nil)
	must(t, s.Log.DeleteRange(1, 40)) // Raft never goes beyond the snapshot
	closeStores(t, s)
	_, err := storage.Open(groupDir, testConfig(d, storage.EngineWAL))
	if corrupt := corruptIn(t, err, "log"); corrupt.Index != 21 {
		t.Error(err)
	}
}

func TestRestartNeeded(t *testing.T) {
	for _, tc := range []struct {
		name     string
		snapshot uint64
		last     uint64
		want     bool
	}{
		{"installed below the log's end", 50, 60, true},
		{"installed at the log's end", 60, 60, false},
		{"installed beyond the log's end", 70, 60, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := openOn(t, newDisk())
			defer closeStores(t, s)
			setTerm(t, s, 1)
			must(t, s.Log.StoreLogs(entries(1, tc.last, 1)))
			mustSnapshot(t, s, tc.snapshot, 1, nil)
			must(t, s.Log.DeleteRange(1, tc.last))
			got := false
			select {
			case <-s.RestartNeeded():
				got = true
			default:
			}
			if got != tc.want {
				t.Errorf("restart needed: %v", got)
			}
		})
	}
}

func TestClosedStores(t *testing.T) {
	s := openOn(t, newDisk())
	must(t, s.Log.StoreLog(entry(1, 0)))
	closeStores(t, s)
	for what, err := range map[string]error{
		"append": s.Log.StoreLog(entry(2, 0)), "read": s.Log.GetLog(1, &raft.Log{}),
		"term": s.Stable.SetUint64([]byte("CurrentTerm"), 1), "state": s.Err(),
	} {
		if !errors.Is(err, disk.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestCorruptErrorSaysWhatToDo(t *testing.T) {
	cause := errors.New("cause")
	err := &disk.CorruptError{File: "a/b.wal", Offset: 4096, Index: 7, Detail: "detail",
		Err: &disk.CorruptError{File: "c", Detail: "inner", Err: cause}}
	for _, want := range []string{"a/b.wal", "4096", "entry 7", "detail", "inner", "cause", "do not delete",
		"copy of the whole data directory", "never put back an older copy there"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err.Error())
		}
	}
	if strings.Count(err.Error(), "do not delete") != 1 || !errors.Is(err, cause) {
		t.Errorf("advice given twice, or cause lost: %v", err)
	}
}
