package disk

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// names is a tree under test, by paths.
type names struct {
	t    *testing.T
	tree *tree
}

func newNames(t *testing.T) *names {
	t.Helper()
	n := &names{t, newTree(t.TempDir(), &space{})}
	t.Cleanup(n.tree.close)
	return n
}

func (n *names) at(name string) place {
	n.t.Helper()
	dir, err := n.tree.find(path.Dir(name))
	must(n.t, err)
	return place{dir, path.Base(name)}
}

func (n *names) create(name string) {
	n.t.Helper()
	at := n.at(name)
	f, err := n.tree.add(at.dir, at.name, syscall.S_IFREG|0o640)
	must(n.t, err)
	must(n.t, f.file.write([]byte(name), 0))
	must(n.t, f.file.sync())
}

func (n *names) mkdir(name string) {
	n.t.Helper()
	at := n.at(name)
	_, err := n.tree.add(at.dir, at.name, syscall.S_IFDIR|0o750)
	must(n.t, err)
}

func (n *names) rename(from, to string) {
	n.t.Helper()
	must(n.t, n.tree.rename(n.at(from), n.at(to)))
}

func (n *names) remove(name string) {
	n.t.Helper()
	at := n.at(name)
	must(n.t, n.tree.remove(at.dir, at.name))
}

func (n *names) sync(name string) {
	n.t.Helper()
	dir, err := n.tree.find(name)
	must(n.t, err)
	must(n.t, n.tree.syncDir(dir))
}

// list returns each file with its contents.
func (n *names) list() (list []string) {
	n.t.Helper()
	for _, name := range n.tree.paths() {
		f, err := n.tree.find(name)
		must(n.t, err)
		list = append(list, name+"="+string(f.file.all(n.t)))
	}
	return list
}

// TestCrashOfNames: what a directory's last sync did not see is undone, as Names has it.
func TestCrashOfNames(t *testing.T) {
	keepTwo := func() Names {
		asked := 0
		return func(Step) bool { asked++; return asked <= 2 }
	}
	for _, tc := range []struct {
		name  string
		do    func(*names)
		names Names
		want  []string
		lost  int
	}{
		{"synced", func(n *names) { n.create("/a"); n.sync("/") }, LoseNames, []string{"/a=/a"}, 0},
		{"a created name is lost", func(n *names) { n.create("/a") }, LoseNames, nil, 1},
		{"a created name is kept", func(n *names) { n.create("/a") }, KeepNames, []string{"/a=/a"}, 0},
		{"a directory is lost with what was synced in it", func(n *names) { n.mkdir("/d"); n.create("/d/a"); n.sync("/d") },
			LoseNames, nil, 1},
		{"a removed name is back", func(n *names) { n.create("/a"); n.sync("/"); n.remove("/a") }, LoseNames,
			[]string{"/a=/a"}, 1},
		{"a replaced file is back", func(n *names) { n.create("/a"); n.sync("/"); n.create("/b"); n.rename("/b", "/a") },
			LoseNames, []string{"/a=/a"}, 2},
		{"a replaced file is gone", func(n *names) {
			n.create("/a")
			n.create("/b")
			n.rename("/b", "/a")
			n.sync("/")
		}, LoseNames, []string{"/a=/b"}, 0},
		{"the first steps of a directory are kept", func(n *names) { n.create("/a"); n.rename("/a", "/b"); n.remove("/b") },
			keepTwo(), []string{"/b=/a"}, 1},
		{"a lost step does not stop another directory", func(n *names) {
			n.mkdir("/d")
			n.sync("/")
			n.create("/a")
			n.create("/d/b")
		}, func(s Step) bool { return s.Path == "/d/b" }, []string{"/d/b=/d/b"}, 1},
		{"a lost step takes the later ones along", func(n *names) { n.create("/a"); n.rename("/a", "/b") },
			func(s Step) bool { return s.Kind == OpRename }, nil, 2},
		{"a removed directory is back with what was in it", func(n *names) {
			n.mkdir("/d")
			n.create("/d/a")
			n.sync("/d")
			n.sync("/")
			n.remove("/d/a")
			n.remove("/d")
		}, LoseNames, []string{"/d/a=/d/a"}, 2},
		{"moved, and the new place synced", func(n *names) {
			n.mkdir("/d")
			n.create("/a")
			n.sync("/")
			n.rename("/a", "/d/b")
			n.sync("/d")
		}, LoseNames, []string{"/a=/a"}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNames(t)
			tc.do(n)
			crashTwice(t, n, tc.names, tc.want, tc.lost)
		})
	}
}

// crashTwice crashes, which leaves the files of want, and once more, which changes nothing.
func crashTwice(t *testing.T, n *names, kept Names, want []string, loses int) {
	t.Helper()
	lost, err := n.tree.cutPower(LoseAll, kept)
	must(t, err)
	if diff := cmp.Diff(want, n.list()); diff != "" || lost.Names != loses {
		t.Errorf("lost %d names, want %d; wanted (-), got (+):\n%s", lost.Names, loses, diff)
	}
	again, err := n.tree.cutPower(LoseAll, LoseNames)
	must(t, err)
	if diff := cmp.Diff(want, n.list()); diff != "" || again != (Losses{}) {
		t.Errorf("a second crash lost %v:\n%s", again, diff)
	}
	objects, err := os.ReadDir(n.tree.backing)
	must(t, err)
	if len(objects) != len(want) {
		t.Errorf("%d files in the backing directory for %d", len(objects), len(want))
	}
}

// TestNamesAreRefused: what a file system refuses.
func TestNamesAreRefused(t *testing.T) {
	n := newNames(t)
	n.mkdir("/d")
	n.create("/d/a")
	n.create("/f")
	for _, tc := range []struct {
		name string
		err  error
		want error
	}{
		{"remove a full directory", n.tree.remove(n.tree.root, "d"), syscall.ENOTEMPTY},
		{"remove nothing", n.tree.remove(n.tree.root, "x"), syscall.ENOENT},
		{"rename nothing", n.tree.rename(n.at("/x"), n.at("/y")), syscall.ENOENT},
		{"rename onto a full directory", n.tree.rename(n.at("/f"), n.at("/d")), syscall.ENOTEMPTY},
	} {
		if !errors.Is(tc.err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, tc.err, tc.want)
		}
	}
	if _, err := n.tree.add(n.tree.root, "f", syscall.S_IFREG); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("create what exists: %v", err)
	}
}

// TestBackingFilesGo: a file that nothing leads to any more, durably or not, takes no place.
func TestBackingFilesGo(t *testing.T) {
	n := newNames(t)
	count := func() int {
		objects, err := os.ReadDir(n.tree.backing)
		must(t, err)
		return len(objects)
	}
	for range 3 {
		n.create("/tmp")
		n.rename("/tmp", "/a")
	}
	if count() != 3 {
		t.Errorf("%d backing files, want 3: a crash may bring each back", count())
	}
	n.sync("/")
	if count() != 1 {
		t.Errorf("%d backing files after the sync, want 1", count())
	}
	n.remove("/a")
	n.sync("/")
	if count() != 0 {
		t.Errorf("%d backing files after the removal, want none", count())
	}
}

// TestNestedRemoval: directories that were made, filled and removed before any sync leave no step
// behind.
func TestNestedRemoval(t *testing.T) {
	n := newNames(t)
	n.mkdir("/d")
	n.mkdir("/d/e")
	n.create("/d/e/a")
	n.remove("/d/e/a")
	n.remove("/d/e")
	n.remove("/d")
	n.sync("/")
	if len(n.tree.pending) > 0 || len(n.tree.files) > 0 {
		t.Errorf("%d steps and %d files are left", len(n.tree.pending), len(n.tree.files))
	}
	lost, err := n.tree.cutPower(KeepAll, KeepNames)
	must(t, err)
	if lost != (Losses{}) {
		t.Errorf("lost %+v", lost)
	}
}

// TestErase: a name that damage took away does not come back, and what is below it neither.
func TestErase(t *testing.T) {
	n := newNames(t)
	n.mkdir("/d")
	n.create("/d/a")
	n.sync("/d")
	n.sync("/")
	n.create("/d/b")
	d, err := n.tree.find("/d")
	must(t, err)
	n.tree.erase(d)
	_, err = n.tree.cutPower(KeepAll, KeepNames)
	must(t, err)
	if got := n.list(); len(got) > 0 || len(n.tree.files) > 0 {
		t.Errorf("%v is still there", got)
	}
}

// TestCopyAndLoad: what was copied out and in again is the same, and durable.
func TestCopyAndLoad(t *testing.T) {
	n, m := newNames(t), newNames(t)
	n.mkdir("/d")
	n.create("/d/a")
	n.create("/b")
	dir := filepath.Join(t.TempDir(), "copy")
	must(t, n.tree.save(n.tree.root, dir))
	must(t, m.tree.load(m.tree.root, dir))
	_, err := m.tree.cutPower(KeepAll, KeepNames)
	must(t, err)
	_, err = m.tree.cutPower(LoseAll, LoseNames)
	must(t, err)
	if diff := cmp.Diff(n.list(), m.list()); diff != "" {
		t.Error(diff)
	}
}

// TestSpace: what grows takes room, what goes gives it back, and what is allocated can be written.
func TestSpace(t *testing.T) {
	n := newNames(t)
	s := n.tree.space
	n.create("/abc")
	s.setFree(1000)
	f, err := n.tree.find("/abc")
	must(t, err)
	must(t, f.file.allocate(0, 1004, 0))
	if err := f.file.write([]byte("x"), 1004); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write beyond what is free: %v", err)
	}
	must(t, f.file.write(make([]byte, 1004), 0))
	if free, limited := s.free(); free != 0 || !limited {
		t.Errorf("%d bytes are free, want none", free)
	}
	must(t, f.file.resize(504))
	n.create("/d")
	n.rename("/d", "/abc")
	if free, _ := s.free(); free != 1002 {
		t.Errorf("%d bytes are free after the file was replaced by one of 2 bytes, want 1002", free)
	}
	_, err = n.tree.cutPower(LoseAll, LoseNames)
	must(t, err)
	if free, _ := s.free(); free != 1004 {
		t.Errorf("%d bytes are free after a crash that left nothing, want 1004", free)
	}
}

// TestConfig: each setting that is wrong is named.
func TestConfig(t *testing.T) {
	full := t.TempDir()
	must(t, os.WriteFile(filepath.Join(full, "x"), nil, 0o600))
	_, err := open(Config{Backing: full})
	for _, want := range []string{"no Mountpoint", "Backing " + full + " is not empty", "no Logger"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	d, err := open(Config{Mountpoint: t.TempDir(), Backing: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	if _, err := d.Crash(LoseAll, LoseNames); !errors.Is(err, ErrClosed) {
		t.Errorf("a crash of what is not mounted: %v", err)
	}
	if files := d.Files(); !slices.Equal(files, nil) {
		t.Errorf("a new disk has %v", files)
	}
}

// TestChance: the share is about the one asked for, and the same seed decides the same way.
func TestChance(t *testing.T) {
	fate, names := Chance(7, 0.25)
	again, _ := Chance(7, 0.25)
	other, _ := Chance(8, 0.25)
	kept, differ, keptNames := 0, 0, 0
	for sector := range int64(4000) {
		if fate("/a", sector) {
			kept++
		}
		if fate("/a", sector) != other("/a", sector) {
			differ++
		}
		if fate("/a", sector) != again("/a", sector) {
			t.Fatalf("sector %d: one seed, two decisions", sector)
		}
		if names(Step{Kind: OpCreate, Path: fmt.Sprint("/", sector)}) {
			keptNames++
		}
	}
	for what, n := range map[string]int{"sectors kept": kept, "names kept": keptNames} {
		if n < 800 || n > 1200 {
			t.Errorf("%s: %d of 4000, want about 1000", what, n)
		}
	}
	if differ == 0 {
		t.Error("two seeds decide alike")
	}
}
