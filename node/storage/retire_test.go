package storage_test

import (
	"errors"
	"math/rand/v2"
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// lived returns a disk with a group that has lived, and what of it is kept when it retires.
func lived(t *testing.T) (*diskfault.Disk, held) {
	t.Helper()
	d := newDisk()
	_, after, call, done := runUntil(d, lifeWithTerms())
	if !done {
		t.Fatalf("the group did not outlive %q", call)
	}
	return d, held{Term: after.Term, VoteTerm: after.VoteTerm, Candidate: after.Candidate}
}

func TestRetiredGroupKeepsTermAndVote(t *testing.T) {
	for _, st := range stacks() {
		t.Run(st.name, func(t *testing.T) {
			cfg := testConfig(st.fs(), st.engine)
			dir := st.dir(t)
			s, err := storage.Open(dir, cfg)
			if err != nil {
				t.Fatal(err)
			}
			appendEntries(t, s, 1, 40, 3)
			if err := errors.Join(vote(s.Stable, 3, "b"), takeSnapshot(s.Snapshots, 30, 3, snapshotData(30))); err != nil {
				t.Fatal(err)
			}
			closeStores(t, s)
			cfg.Engine = storage.EngineWAL // whatever the group has
			for range 2 {
				if err := storage.Retire(dir, cfg); err != nil {
					t.Fatal(err)
				}
			}
			cfg.Mode = storage.MustExist
			if s, err = storage.Open(dir, cfg); err != nil {
				t.Fatal(err)
			}
			defer closeStores(t, s)
			got, err := observe(s)
			if diff := cmp.Diff(held{Term: 3, VoteTerm: 3, Candidate: "b"}, got); err != nil || diff != "" {
				t.Errorf("after retiring: %v (-want +got):\n%s", err, diff)
			}
			appendEntries(t, s, 1, 20, 4) // it comes back
		})
	}
}

// A crash at any step of a retirement is made good by the next, and never costs the vote.
func TestCrashAtEveryStepOfRetiring(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	torn := func(string, int64) bool { return r.IntN(2) == 0 }
	for _, tc := range []struct {
		name  string
		fate  diskfault.Fate
		names diskfault.Names
	}{
		{"lose all", diskfault.LoseAll, diskfault.LoseNames},
		{"lose bytes", diskfault.LoseAll, diskfault.KeepNames},
		{"keep all", diskfault.KeepAll, diskfault.KeepNames},
		{"tear, lose names", torn, diskfault.LoseNames},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for n, done := 0, false; !done; n++ {
				d, kept := lived(t)
				d.SetHook(crashAfter(n))
				done = storage.Retire(groupDir, smallSegments(d)) == nil
				d.Crash(tc.fate, tc.names)
				if !done {
					if err := storage.Retire(groupDir, smallSegments(d)); err != nil {
						t.Fatalf("a second attempt after a crash at step %d: %v", n, err)
					}
				}
				if err := checkSurvivor(d, kept, kept); err != nil {
					t.Fatalf("after a crash at step %d: %v", n, err)
				}
			}
		})
	}
}

// An Open of a group that is half retired returns the group as it was, or an error.
func TestHalfRetiredGroupIsNotTakenForWhole(t *testing.T) {
	for n := 0; ; n++ {
		d, kept := lived(t)
		before := mustObserve(t, d)
		d.SetHook(crashAfter(n))
		if storage.Retire(groupDir, smallSegments(d)) == nil {
			return
		}
		d.Crash(diskfault.KeepAll, diskfault.KeepNames)
		s, err := storage.Open(groupDir, smallSegments(d))
		if _, damaged := errors.AsType[*disk.CorruptError](err); damaged {
			continue
		}
		if err != nil {
			t.Fatalf("step %d: %v", n, err)
		}
		got, err := observe(s)
		if err != nil || got != before && got != kept {
			t.Errorf("step %d: holds %+v, %v", n, got, err)
		}
		closeStores(t, s)
	}
}

// mustObserve returns what the group on a disk holds.
func mustObserve(t *testing.T, d *diskfault.Disk) held {
	t.Helper()
	s, err := storage.Open(groupDir, smallSegments(d))
	if err != nil {
		t.Fatal(err)
	}
	defer closeStores(t, s)
	h, err := observe(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestRetireRefuses(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(d *diskfault.Disk, cfg *storage.Config)
	}{
		{"no group", func(_ *diskfault.Disk, cfg *storage.Config) { cfg.FS = newDisk() }},
		{"another group", func(_ *diskfault.Disk, cfg *storage.Config) { cfg.Group = "other" }},
		{"a damaged vote", func(d *diskfault.Disk, _ *storage.Config) { d.Flip(path.Join(groupDir, "stable"), 20, 3) }},
		{"a damaged manifest", func(d *diskfault.Disk, _ *storage.Config) { d.Flip(path.Join(groupDir, "MANIFEST"), 20, 3) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, _ := lived(t)
			cfg := smallSegments(d)
			tt.spoil(d, &cfg)
			cfg.FS.(*diskfault.Disk).SetHook(func(o diskfault.Op) error {
				if o.Mutates() {
					t.Errorf("the disk is changed: %v", o)
				}
				return nil
			})
			err := storage.Retire(groupDir, cfg)
			if _, damaged := errors.AsType[*disk.CorruptError](err); !damaged {
				t.Errorf("error is %v", err)
			}
		})
	}
}
