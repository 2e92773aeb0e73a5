package storage_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// The tests of this file show defects on the bare libraries and their absence with this package;
// the rows are those of docs/decisions/0033-traps-of-the-libraries.md. Each is a function of the
// library under test, so it can be pointed at any.

// opened is what a library gives Raft.
type opened struct {
	log    raft.LogStore
	stable raft.StableStore
	snaps  raft.SnapshotStore
	close  func() error
	// restart says that the library asks for the Raft instance to be started anew.
	restart func() bool
}

// library opens its stores in dir. An error is a refusal of what is there.
type library struct {
	name string
	bare bool
	open func(dir string) (opened, error)
}

func bareLibrary() library {
	return library{name: "bare library", bare: true, open: func(dir string) (opened, error) {
		bolt, err := raftboltdb.NewBoltStore(filepath.Join(dir, "raft.db"))
		if err != nil {
			return opened{}, err
		}
		snaps, err := raft.NewFileSnapshotStore(dir, 2, io.Discard)
		return opened{
			log: bolt, stable: bolt, snaps: snaps, close: bolt.Close, restart: func() bool { return false },
		}, err
	}}
}

func ourLibrary(engine storage.Engine) library {
	return library{name: "belfry on " + string(engine), open: func(dir string) (opened, error) {
		s, err := storage.Open(dir, testConfig(disk.OSFS{}, engine))
		if err != nil {
			return opened{}, err
		}
		return opened{
			log: s.Log, stable: s.Stable, snaps: s.Snapshots, close: s.Close,
			restart: func() bool {
				select {
				case <-s.RestartNeeded():
					return true
				default:
					return false
				}
			},
		}, nil
	}}
}

func libraries() []library {
	return []library{bareLibrary(), ourLibrary(storage.EngineWAL), ourLibrary(storage.EngineBolt)}
}

// eachLibrary runs show on every library: it must find the defect on the bare one and must not on
// ours.
func eachLibrary(t *testing.T, show func(t *testing.T, lib library, dir string) (defect bool)) {
	for _, lib := range libraries() {
		t.Run(lib.name, func(t *testing.T) {
			if defect := show(t, lib, t.TempDir()); defect != lib.bare {
				t.Errorf("defect shown: %v, expected: %v", defect, lib.bare)
			}
		})
	}
}

func mustOpen(t *testing.T, lib library, dir string) opened {
	t.Helper()
	o, err := lib.open(dir)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return o
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Row 1a: a crash between the two writes of a vote makes the voter grant it to a candidate with a
// stale log.
func TestTrapTornVote(t *testing.T) {
	eachLibrary(t, func(t *testing.T, lib library, dir string) (granted bool) {
		synctest.Test(t, func(t *testing.T) {
			o := mustOpen(t, lib, dir)
			seedLog(t, o, "voter", "stale")
			must(t, o.stable.SetUint64([]byte("CurrentTerm"), 5))
			must(t, vote(o.stable, 5, "stale"))
			must(t, o.stable.SetUint64([]byte("CurrentTerm"), 7))
			must(t, o.log.StoreLogs(entries(2, 10, 6)))
			// The first of the two writes; the process ends before the second.
			must(t, o.stable.SetUint64([]byte("LastVoteTerm"), 7))
			must(t, o.close())

			g := newGroup(t, lib, dir, "voter")
			defer g.stop()
			stale := g.peer("stale")
			var resp raft.RequestVoteResponse
			must(t, stale.RequestVote("voter", "voter", &raft.RequestVoteRequest{
				RPCHeader: header("stale"), Term: 7, LastLogIndex: 1, LastLogTerm: 1,
			}, &resp))
			granted = resp.Granted
		})
		return granted
	})
}

// Row 6b: a snapshot installed on a follower whose uncommitted log reaches beyond it is accepted,
// and every entry after it refused, for ever.
func TestTrapInstallOverLongerLog(t *testing.T) {
	eachLibrary(t, func(t *testing.T, lib library, dir string) (stuck bool) {
		synctest.Test(t, func(t *testing.T) {
			o := mustOpen(t, lib, dir)
			seedLog(t, o, "follower", "leader")
			must(t, o.stable.SetUint64([]byte("CurrentTerm"), 2))
			must(t, o.log.StoreLogs(entries(2, 200, 2)))
			must(t, o.close())

			g := newGroup(t, lib, dir, "follower")
			defer g.stop()
			leader := g.peer("leader")
			for range 5 {
				<-time.After(10 * time.Millisecond) // FileSnapshotStore names by the millisecond
				install(t, leader, "follower", 150, 3, "follower", "leader")
				if !g.stores.restart() {
					stuck = !appendRPC(t, leader, "follower", 151, 3)
					continue
				}
				// A monotonic log alone does not help: Raft keeps the old last index in memory.
				if appendRPC(t, leader, "follower", 151, 3) {
					t.Fatal("accepted without a restart: the restart rule is no longer needed")
				}
				g.restart()
				leader = g.peer("leader")
				stuck = !appendRPC(t, leader, "follower", 151, 3)
				if !stuck {
					break
				}
			}
		})
		return stuck
	})
}

// Row 6a: entries that were never committed stay below an installed snapshot; once their holder
// leads, it sends them to a lagging replica as committed.
func TestTrapStaleEntriesBelowSnapshot(t *testing.T) {
	eachLibrary(t, func(t *testing.T, lib library, dir string) bool {
		stale := 0
		synctest.Test(t, func(t *testing.T) {
			o := mustOpen(t, lib, dir)
			seedLog(t, o, "a", "b", "c")
			must(t, o.stable.SetUint64([]byte("CurrentTerm"), 2))
			must(t, o.log.StoreLogs(entries(2, 100, 1)))
			must(t, o.log.StoreLogs(entries(101, 200, 2))) // a led in term 2, and committed none of these
			must(t, o.close())
			a := newGroup(t, lib, dir, "a")
			defer a.stop()
			c := a.peer("c")
			install(t, c, "a", 300, 3, "a", "b", "c")
			if !appendRPC(t, c, "a", 301, 3) {
				t.Fatal("entry 301 refused")
			}
			if a.stores.restart() {
				t.Fatal("restart asked for, although the log ended below the snapshot")
			}
			b := laggingReplica(t, "b", "a", "b", "c")
			defer b.stop()
			a.disconnect("c")
			a.connect(b)
			<-b.fsm.restored // a leads by now and has sent its snapshot
			stale = b.fsm.applied(2)
		})
		return stale > 0
	})
}

// The same state, left by a crash after the snapshot became durable and before the log was cleared.
func TestTrapStaleEntriesAfterCrash(t *testing.T) {
	eachLibrary(t, func(t *testing.T, lib library, dir string) bool {
		o := mustOpen(t, lib, dir)
		must(t, o.stable.SetUint64([]byte("CurrentTerm"), 3))
		must(t, o.log.StoreLogs(entries(1, 200, 2)))
		must(t, takeSnapshot(o.snaps, 150, 3, []byte("state")))
		must(t, o.close())
		o = mustOpen(t, lib, dir)
		err := o.log.GetLog(120, &raft.Log{})
		must(t, o.close())
		return err == nil
	})
}

// Row 4a: a flipped bit in a stored entry is returned as if it were what was stored.
func TestTrapFlippedBitInEntry(t *testing.T) {
	eachLibrary(t, func(t *testing.T, lib library, dir string) bool {
		o := mustOpen(t, lib, dir)
		must(t, o.stable.SetUint64([]byte("CurrentTerm"), 1))
		must(t, o.log.StoreLogs(entries(1, 30, 1)))
		must(t, o.close())
		silent := 0
		for i := uint64(1); i <= 30; i++ {
			undo := rewrite(t, dir, func(b []byte) []byte {
				flipped := bytes.Clone(body(i))
				flipped[5] ^= 4
				return bytes.ReplaceAll(b, body(i), flipped)
			})
			if readsWrong(t, lib, dir, i) {
				silent++
			}
			undo()
		}
		if lib.bare && silent != 30 {
			t.Errorf("%d of 30 flips were silent", silent)
		}
		return silent > 0
	})
}

// readsWrong opens the stores and says whether entry i comes back as something that was not stored.
func readsWrong(t *testing.T, lib library, dir string, i uint64) bool {
	t.Helper()
	o, err := lib.open(dir)
	if err != nil {
		wantCorrupt(t, err, "log")
		return false
	}
	var l raft.Log
	err = o.log.GetLog(i, &l)
	must(t, o.close())
	return err == nil && !bytes.Equal(l.Data, body(i))
}

// Row 4g: what was changed in a snapshot's meta data is believed: its index, which our store's file
// name repeats, and the rest, which it does not.
func TestTrapChangedSnapshotMeta(t *testing.T) {
	eachLibrary(t, func(t *testing.T, lib library, dir string) bool {
		o := mustOpen(t, lib, dir)
		must(t, o.stable.SetUint64([]byte("CurrentTerm"), 1))
		must(t, o.log.StoreLogs(entries(1, 20, 1)))
		must(t, takeSnapshot(o.snaps, 10, 1, []byte("state")))
		must(t, o.close())
		believed := 0
		for _, change := range []struct{ was, is string }{
			{`(?i)("index":)10(,)`, "${1}19${2}"},
			{`(?i)("configurationindex":)1([,}])`, "${1}7${2}"},
		} {
			was := regexp.MustCompile(change.was)
			undo := rewrite(t, dir, func(b []byte) []byte { return was.ReplaceAll(b, []byte(change.is)) })
			o, err := lib.open(dir)
			if err != nil {
				wantCorrupt(t, err, ".snap")
			} else {
				list, err := o.snaps.List()
				must(t, errors.Join(err, o.close()))
				if list[0].Index == 19 || list[0].ConfigurationIndex == 7 {
					believed++
				}
			}
			undo()
		}
		if lib.bare && believed != 2 {
			t.Errorf("%d of 2 changes were believed", believed)
		}
		return believed > 0
	})
}

// A flipped bit in bbolt's newer meta page silently brings the older term and vote back; it is why
// term and vote are not kept in bbolt.
func TestTrapForgottenVote(t *testing.T) {
	eachLibrary(t, func(t *testing.T, lib library, dir string) bool {
		o := mustOpen(t, lib, dir)
		must(t, o.stable.SetUint64([]byte("CurrentTerm"), 7))
		must(t, vote(o.stable, 7, "b"))
		must(t, o.close())
		forgotten := false
		for page := range 2 {
			undo := rewrite(t, dir, func(b []byte) []byte {
				if at := page*os.Getpagesize() + 60; !bytes.Contains(b, []byte("LastVoteCand")) {
					return b
				} else if at < len(b) {
					b[at] ^= 1
				} else {
					b[len(b)-8] ^= 1
				}
				return b
			})
			if o, err := lib.open(dir); err == nil {
				forgotten = forgotten || checkVote(o.stable, 7, 7, "b") != nil
				must(t, o.close())
			}
			undo()
		}
		return forgotten
	})
}

// rewrite changes every file below dir and returns how to undo it.
func rewrite(t *testing.T, dir string, change func([]byte) []byte) (undo func()) {
	t.Helper()
	saved := map[string][]byte{}
	must(t, filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		saved[name] = b
		if changed := change(bytes.Clone(b)); !bytes.Equal(changed, b) {
			return os.WriteFile(name, changed, 0o600)
		}
		return nil
	}))
	return func() {
		for name, b := range saved {
			must(t, os.WriteFile(name, b, 0o600))
		}
	}
}
