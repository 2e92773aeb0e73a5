package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// held is what a group has acknowledged.
type held struct {
	First, Last, LastTerm uint64
	Term, VoteTerm        uint64
	Candidate             string
	Snapshot              uint64
}

func (h held) append(first, last, term uint64) held {
	if h.Last == 0 {
		h.First = first
	}
	h.Last, h.LastTerm = last, term
	return h
}

// action is one call of a store and what the group holds after it.
type action struct {
	name  string
	do    func(*storage.Stores) error
	after func(held) held
}

func appendAction(first, last, term uint64) action {
	return action{
		name:  fmt.Sprintf("append %d to %d in term %d", first, last, term),
		do:    func(s *storage.Stores) error { return s.Log.StoreLogs(entries(first, last, term)) },
		after: func(h held) held { return h.append(first, last, term) },
	}
}

func termAction(term uint64) action {
	return action{
		name:  fmt.Sprintf("term %d", term),
		do:    func(s *storage.Stores) error { return s.Stable.SetUint64([]byte("CurrentTerm"), term) },
		after: func(h held) held { h.Term = term; return h },
	}
}

func voteAction(term uint64, candidate string) action {
	return action{
		name:  fmt.Sprintf("vote for %s in term %d", candidate, term),
		do:    func(s *storage.Stores) error { return vote(s.Stable, term, candidate) },
		after: func(h held) held { h.VoteTerm, h.Candidate = term, candidate; return h },
	}
}

// vote makes the two calls that Raft makes.
func vote(s raft.StableStore, term uint64, candidate string) error {
	if err := s.SetUint64([]byte("LastVoteTerm"), term); err != nil {
		return err
	}
	return s.Set([]byte("LastVoteCand"), []byte(candidate))
}

func snapshotAction(index, term uint64) action {
	return action{
		name:  fmt.Sprintf("snapshot at %d", index),
		do:    func(s *storage.Stores) error { return takeSnapshot(s.Snapshots, index, term, snapshotData(index)) },
		after: func(h held) held { h.Snapshot = index; return h },
	}
}

func deleteAction(first, last uint64, after func(held) held) action {
	return action{
		name:  fmt.Sprintf("delete %d to %d", first, last),
		do:    func(s *storage.Stores) error { defer s.Tidy(nil); return s.Log.DeleteRange(first, last) },
		after: after,
	}
}

// life is everything Raft does to its stores, over several segments.
func life() []action {
	var l []action
	l = append(l, termAction(1))
	for i := uint64(1); i <= 60; i += 6 {
		l = append(l, appendAction(i, i+5, 1))
	}
	return append(l,
		termAction(2), voteAction(2, "b"),
		appendAction(61, 90, 2),
		snapshotAction(70, 2),
		deleteAction(1, 40, func(h held) held { h.First = 41; return h }),
		termAction(3), voteAction(3, "c"),
		// A new leader overwrites 81 to 90.
		deleteAction(81, 90, func(h held) held { h.Last = 80; return h }),
		appendAction(81, 100, 3),
		snapshotAction(95, 3),
		appendAction(101, 101, 3),
		// It is cut off and 150 is installed: the log is cleared.
		snapshotAction(150, 4),
		deleteAction(41, 101, func(h held) held { h.First, h.Last, h.LastTerm = 0, 0, 0; return h }),
		appendAction(151, 170, 4),
	)
}

// lifeWithTerms: term 4 must be durable before anything of it.
func lifeWithTerms() []action {
	l := life()
	i := slices.IndexFunc(l, func(a action) bool { return a.name == "snapshot at 150" })
	return slices.Insert(l, i, termAction(4))
}

func smallSegments(d *diskfault.Disk) storage.Config {
	cfg := testConfig(d, storage.EngineWAL)
	cfg.SegmentBytes = 4 << 10
	return cfg
}

// observe reads what a group holds, and verifies all contents on the way.
func observe(s *storage.Stores) (held, error) {
	var h held
	h.First, _ = s.Log.FirstIndex()
	h.Last, _ = s.Log.LastIndex()
	if err := checkEntries(s, h.First, h.Last); err != nil {
		return h, err
	}
	if h.Last > 0 {
		var l raft.Log
		if err := s.Log.GetLog(h.Last, &l); err != nil {
			return h, err
		}
		h.LastTerm = l.Term
	}
	var errs [4]error
	h.Term, errs[0] = s.Stable.GetUint64([]byte("CurrentTerm"))
	h.VoteTerm, errs[1] = s.Stable.GetUint64([]byte("LastVoteTerm"))
	candidate, err := s.Stable.Get([]byte("LastVoteCand"))
	h.Candidate, errs[2] = string(candidate), err
	var data []byte
	h.Snapshot, data, errs[3] = readSnapshot(s.Snapshots)
	if h.Snapshot > 0 && !bytes.Equal(data, snapshotData(h.Snapshot)) {
		return h, errors.New("the snapshot holds other data")
	}
	return h, errors.Join(errs[:]...)
}

// cleared is h after Open found its log replaced by an installed snapshot, if it was.
func cleared(h held) held {
	if h.Last < h.Snapshot {
		h.First, h.Last, h.LastTerm = 0, 0, 0
	}
	return h
}

// runUntil lives a life until the disk's hook ends it. It returns what was held before and after
// the call in which that happened; done is true if it never did.
func runUntil(d *diskfault.Disk, actions []action) (before, after held, call string, done bool) {
	s, err := storage.Open(groupDir, smallSegments(d))
	if err != nil {
		return before, after, "open", false
	}
	defer func() { _ = s.Close() }() // the disk may be gone
	for _, a := range actions {
		after = a.after(before)
		if err := a.do(s); err != nil {
			return before, after, a.name, false
		}
		before = after
	}
	return before, after, "", true
}

// crashAfter returns a hook that lets n changing steps happen.
func crashAfter(n int) diskfault.Hook {
	var mu sync.Mutex
	return func(o diskfault.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if o.Mutates() {
			n--
		}
		if n < 0 {
			return diskfault.ErrCrashed
		}
		return nil
	}
}

// A crash at any step, with any fate for what was not synced, loses nothing that was acknowledged,
// and is never taken for damage.
func TestCrashAtEveryStep(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	torn := func(string, int64) bool { return r.IntN(2) == 0 }
	for i, tc := range []struct {
		name  string
		fate  diskfault.Fate
		names diskfault.Names
	}{
		{"lose all", diskfault.LoseAll, diskfault.LoseNames},
		{"lose bytes", diskfault.LoseAll, diskfault.KeepNames},
		{"keep all", diskfault.KeepAll, diskfault.KeepNames},
		{"tear", torn, diskfault.KeepNames},
		{"tear, lose names", torn, diskfault.LoseNames},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for n := i % thinning; ; n += thinning {
				d := newDisk()
				d.SetHook(crashAfter(n))
				before, after, call, done := runUntil(d, lifeWithTerms())
				d.Crash(tc.fate, tc.names)
				if err := checkSurvivor(d, before, after); err != nil {
					t.Fatalf("crash after %d steps, in %q: %v", n, call, err)
				}
				if done {
					t.Logf("%d steps", n)
					return
				}
			}
		})
	}
}

// checkSurvivor opens the group, compares, and uses it once more.
func checkSurvivor(d *diskfault.Disk, before, after held) error {
	s, err := storage.Open(groupDir, smallSegments(d))
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	got, err := observe(s)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	if got != before && got != after && got != cleared(before) && got != cleared(after) {
		return errors.Join(fmt.Errorf("holds neither what was acknowledged (-) nor what was being written:\n%s",
			cmp.Diff(before, got)), s.Close())
	}
	next, term := max(got.Last, got.Snapshot)+1, max(got.Term, 1)+1
	if err := errors.Join(s.Stable.SetUint64([]byte("CurrentTerm"), term),
		s.Log.StoreLogs(entries(next, next+40, term)), s.Close()); err != nil {
		return fmt.Errorf("further use: %w", err)
	}
	if s, err = storage.Open(groupDir, smallSegments(d)); err != nil {
		return fmt.Errorf("second open: %w", err)
	}
	got, err = observe(s)
	if err == nil && got.Last != next+40 {
		err = fmt.Errorf("after further use the log ends at %d, want %d", got.Last, next+40)
	}
	return errors.Join(err, s.Close())
}

// A process dies at any step, of itself or because a step failed, and the next one opens the group.
// What that one was shown it may have told other nodes of: a power cut must leave it.
func TestWhatOpenFoundIsDurable(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	torn := func(string, int64) bool { return r.IntN(2) == 0 }
	for name, end := range map[string]func(int) diskfault.Hook{
		"kill -9": crashAfter,
		"EIO":     func(n int) diskfault.Hook { return failOnce(n, diskfault.Broken) },
	} {
		for i, fate := range []diskfault.Fate{diskfault.LoseAll, torn} {
			t.Run(fmt.Sprint(name, i), func(t *testing.T) {
				for n := i % thinning; ; n += thinning {
					d := newDisk()
					d.SetHook(end(n))
					_, _, call, done := runUntil(d, lifeWithTerms())
					d.Crash(nil, diskfault.LoseNames)
					s := openOn(t, d)
					found, err := observe(s)
					must(t, err)
					d.Crash(fate, diskfault.LoseNames)
					_ = s.Close() // its disk is gone
					if err := checkSurvivor(d, found, found); err != nil {
						t.Fatalf("the end after %d steps, in %q, a start, and a power cut: %v", n, call, err)
					}
					if done {
						return
					}
				}
			})
		}
	}
}

// A crash during the repair that follows a crash.
func TestCrashDuringRepair(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	torn := func(string, int64) bool { return r.IntN(2) == 0 }
	for n := 1; ; n += 3 * thinning {
		d := newDisk()
		d.SetHook(crashAfter(n))
		before, after, call, done := runUntil(d, lifeWithTerms())
		d.Crash(torn, diskfault.KeepNames)
		for m := 0; m < 12; m++ {
			d.SetHook(crashAfter(m))
			s, err := storage.Open(groupDir, smallSegments(d))
			if err == nil {
				_ = s.Close() // may fail: the disk is about to go
			}
			d.Crash(torn, diskfault.KeepNames)
		}
		if err := checkSurvivor(d, before, after); err != nil {
			t.Fatalf("crash after %d steps, in %q, then during repair: %v", n, call, err)
		}
		if done {
			return
		}
	}
}

// A failed step is never followed by another write, and the restart finds what was acknowledged.
func TestFailureAtEveryStep(t *testing.T) {
	for name, fail := range map[string]func(diskfault.Op) error{"EIO": diskfault.Broken, "ENOSPC": diskfault.Full} {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n += thinning {
				d := newDisk()
				d.SetHook(failOnce(n, fail))
				before, after, call, done := runUntil(d, lifeWithTerms())
				d.Crash(diskfault.KeepAll, diskfault.KeepNames)
				if err := checkSurvivor(d, before, after); err != nil {
					t.Fatalf("%s at step %d, in %q: %v", name, n, call, err)
				}
				if done {
					return
				}
			}
		})
	}
}

// failOnce returns a hook that fails the n-th changing step only. Removals of old segments are let
// through: a file that stays costs space, not data, and the call succeeds.
func failOnce(n int, fail func(diskfault.Op) error) diskfault.Hook {
	var mu sync.Mutex
	return func(o diskfault.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if !o.Mutates() {
			return nil
		}
		if n--; n == -1 {
			return fail(o)
		}
		return nil
	}
}

func TestWritesStopAfterAFailure(t *testing.T) {
	d := newDisk()
	cfg := testConfig(d, storage.EngineWAL)
	var fatal []error
	cfg.OnFatal = func(err error) { fatal = append(fatal, err) }
	s, err := storage.Open(groupDir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	appendEntries(t, s, 1, 10, 1)
	d.SetHook(func(o diskfault.Op) error {
		if o.Kind == diskfault.OpSync && strings.HasSuffix(o.Path, ".wal") {
			return diskfault.Broken(o)
		}
		return nil
	})
	first := s.Log.StoreLog(entry(11, 1))
	d.SetHook(nil)
	for what, err := range map[string]error{
		"append":   s.Log.StoreLog(entry(11, 1)),
		"cut":      s.Log.DeleteRange(5, 10),
		"term":     s.Stable.SetUint64([]byte("CurrentTerm"), 9),
		"snapshot": takeSnapshot(s.Snapshots, 10, 1, nil),
	} {
		if !errors.Is(err, disk.ErrFailed) {
			t.Errorf("%s after a failed sync: %v, want ErrFailed", what, err)
		}
	}
	if first == nil || len(fatal) != 1 || !errors.Is(first, fatal[0]) {
		t.Errorf("first failure %v, told %v", first, fatal)
	}
	_ = s.Close()
}

func TestLeftoverTemporariesAreRemoved(t *testing.T) {
	d := fullDisk(t)
	leftovers := []string{"MANIFEST.tmp", "stable.tmp", "snapshots/0000000000000001-0000000000000001-00000009.snap.tmp"}
	for _, name := range leftovers {
		d.SetContents(path.Join(groupDir, name), []byte("half"))
	}
	s := openOn(t, d)
	defer closeStores(t, s)
	for _, name := range leftovers {
		if d.Contents(path.Join(groupDir, name)) != nil {
			t.Errorf("%s is still there", name)
		}
	}
}
