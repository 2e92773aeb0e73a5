package disk

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// testLife is a disk that is not mounted, and steps on it.
func testLife() *life {
	s := &space{}
	d := &Disk{space: s, steps: newSteps(), tree: newTree("", s)}
	return &life{disk: d, tree: d.tree, ended: make(chan struct{})}
}

// do takes a step on a name in the root and returns how often it was taken.
func (l *life) do(kind Kind, name string) (taken int, errno syscall.Errno) {
	errno = l.step(Op{Kind: kind}, place{l.tree.root, name}, func() error { taken++; return nil })
	return taken, errno
}

func TestVerdicts(t *testing.T) {
	for _, tc := range []struct {
		name  string
		hook  Hook
		kind  Kind
		taken int
		errno syscall.Errno
	}{
		{"no hook", nil, OpWrite, 1, 0},
		{"an error", Fail(syscall.ENOSPC), OpWrite, 0, syscall.ENOSPC},
		{"an error for changes only", Fail(syscall.EIO), OpRead, 1, 0},
		{"an error for one kind", Fail(syscall.EIO, OpRead), OpRead, 0, syscall.EIO},
		{"an error for another kind", Fail(syscall.EIO, OpRead), OpWrite, 1, 0},
		{"read-only", ReadOnly(), OpRename, 0, syscall.EROFS},
		{"a lie", LieSyncs(), OpSync, 0, 0},
		{"a lie about a directory", LieSyncs(), OpSyncDir, 0, 0},
		{"no lie about a write", LieSyncs(), OpWrite, 1, 0},
		{"the first objection of a chain", Chain(Fail(syscall.EIO, OpRead), ReadOnly(), Fail(syscall.ENOSPC)), OpWrite,
			0, syscall.EROFS},
		{"a chain without objections", Chain(Fail(syscall.EIO, OpRead)), OpWrite, 1, 0},
		{"what cannot be lied about", func(Op) Verdict { return Verdict{Lie: true} }, OpWrite, 0, syscall.EIO},
	} {
		l := testLife()
		l.disk.SetHook(tc.hook)
		if taken, errno := l.do(tc.kind, "a"); taken != tc.taken || errno != tc.errno {
			t.Errorf("%s: taken %d times with %v, want %d and %v", tc.name, taken, errno, tc.taken, tc.errno)
		}
	}
}

// TestHookSees: kinds are counted from when the hook was set, and paths begin at the mount point.
func TestHookSees(t *testing.T) {
	l := testLife()
	var seen []Op
	l.disk.SetHook(func(op Op) Verdict { seen = append(seen, op); return Verdict{} })
	for _, op := range []Op{{Kind: OpWrite, Path: "a"}, {Kind: OpSync, Path: "a"}, {Kind: OpWrite, Path: "b"}} {
		if taken, errno := l.do(op.Kind, op.Path); taken != 1 || errno != 0 {
			t.Errorf("%v was taken %d times with %v", op, taken, errno)
		}
	}
	want := []Op{{Kind: OpWrite, Path: "/a", Count: 1}, {Kind: OpSync, Path: "/a", Count: 1},
		{Kind: OpWrite, Path: "/b", Count: 2}}
	if !slices.Equal(seen, want) {
		t.Errorf("the hook saw %v, want %v", seen, want)
	}
}

func TestHangAndDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLife()
		l.disk.SetHook(Hang())
		results := make(chan syscall.Errno, 1)
		hang := func() {
			_, errno := l.do(OpSync, "a")
			results <- errno
		}
		go hang()
		synctest.Wait()
		if len(results) > 0 {
			t.Fatal("the step does not hang")
		}
		l.disk.Release()
		if errno := <-results; errno != 0 {
			t.Errorf("after the release the step ended with %v", errno)
		}
		go hang()
		synctest.Wait()
		close(l.ended)
		if errno := <-results; errno != syscall.EIO {
			t.Errorf("after the end of the disk the step ended with %v", errno)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := testLife()
		l.disk.SetHook(Slow(time.Minute, OpSync))
		began := time.Now()
		if taken, errno := l.do(OpWrite, "a"); taken != 1 || errno != 0 || time.Since(began) != 0 {
			t.Errorf("the write was taken %d times with %v after %v", taken, errno, time.Since(began))
		}
		if taken, errno := l.do(OpSync, "a"); taken != 1 || errno != 0 || time.Since(began) != time.Minute {
			t.Errorf("the sync was taken %d times with %v after %v", taken, errno, time.Since(began))
		}
	})
}

// TestKillAt: the n-th step of a site is the last one, taken or not, and nothing comes after it.
func TestKillAt(t *testing.T) {
	for _, when := range []When{Before, After} {
		l := testLife()
		killed := 0
		site := Site{When: when, Kind: OpSync, Path: "*.wal"}
		l.disk.SetHook(l.disk.KillAt(site, 2, func() {
			killed++
			if taken, errno := l.do(OpWrite, "other"); taken != 0 || errno != syscall.EIO {
				t.Errorf("%s: a write while the process is killed: taken %d times with %v", when, taken, errno)
			}
		}))
		for _, name := range []string{"a.wal", "b.tmp"} {
			if taken, errno := l.do(OpSync, name); taken != 1 || errno != 0 || killed != 0 {
				t.Errorf("%s: %s, which is not the second of its kind: taken %d times with %v, killed %d times", when, name, taken,
					errno, killed)
			}
		}
		wantTaken, wantErrno := 0, syscall.EIO
		if when == After {
			wantTaken, wantErrno = 1, 0
		}
		if taken, errno := l.do(OpSync, "a.wal"); taken != wantTaken || errno != wantErrno || killed != 1 {
			t.Errorf("%s: taken %d times with %v, killed %d times", when, taken, errno, killed)
		}
		if taken, errno := l.do(OpSync, "a.wal"); taken != 0 || errno != syscall.EIO || killed != 1 {
			t.Errorf("%s: a step after the last: taken %d times with %v, killed %d times", when, taken, errno, killed)
		}
		if taken, _ := l.do(OpRead, "a.wal"); taken != 1 {
			t.Errorf("%s: a disk that was stopped cannot be read", when)
		}
	}
}

func TestSites(t *testing.T) {
	sites := Sites()
	names := map[string]bool{}
	for _, s := range sites {
		if names[s.Name] || !strings.HasPrefix(s.Name, string(s.When)+"-") {
			t.Errorf("%q is there twice, or says something else than %s", s.Name, s.When)
		}
		names[s.Name] = true
	}
	if len(sites) < 25 {
		t.Errorf("%d sites, want at least 25", len(sites))
	}
	site := Site{Kind: OpSync, Path: "log/*.wal"}
	for name, want := range map[string]bool{
		"/data/shards/0000/log/1-2.wal": true, "/log/1.wal": true, "/1.wal": false, "/log/1.wal.tmp": false,
		"/log/x/1.wal": false, "/": false,
	} {
		if site.Matches(Op{Kind: OpSync, Path: name}) != want || site.Matches(Op{Kind: OpWrite, Path: name}) {
			t.Errorf("%s: matches other than %v", name, want)
		}
	}
}
