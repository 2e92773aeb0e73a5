package diskfault_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, d disk.FS, name, text string) disk.File {
	t.Helper()
	f, err := d.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR)
	must(t, err)
	_, err = f.WriteAt([]byte(text), 0)
	must(t, err)
	return f
}

// The fake and the real file system give the same answers to the same steps.
func TestDiskBehavesLikeAFileSystem(t *testing.T) {
	script := func(fsys disk.FS, root string) []string {
		var log []string
		note := func(what string, err error, more ...any) {
			kind := "ok"
			for _, known := range []error{fs.ErrExist, fs.ErrNotExist, fs.ErrClosed, io.EOF} {
				if errors.Is(err, known) {
					kind = known.Error()
				}
			}
			log = append(log, fmt.Sprint(what, ": ", kind, more))
		}
		in := func(name string) string { return filepath.Join(root, name) }
		_, err := fsys.OpenFile(in("d/a"), os.O_CREATE|os.O_RDWR)
		note("create without directory", err)
		note("mkdir", fsys.MkdirAll(in("d/e")))
		_, err = fsys.OpenFile(in("d/a"), os.O_RDONLY)
		note("open absent", err)
		f, err := fsys.OpenFile(in("d/a"), os.O_CREATE|os.O_EXCL|os.O_RDWR)
		note("create", err)
		_, err = fsys.OpenFile(in("d/a"), os.O_CREATE|os.O_EXCL|os.O_RDWR)
		note("create again", err)
		n, err := f.WriteAt([]byte("hello"), 3)
		note("write", err, n)
		dated, ok := f.(disk.Dater)
		note("written", nil, ok && !dated.Written().IsZero())
		b := make([]byte, 6)
		n, err = f.ReadAt(b, 2)
		note("read", err, n, b)
		n, err = f.ReadAt(b, 7)
		note("read across the end", err, n, b[:n])
		n, err = f.ReadAt(b, 99)
		note("read behind the end", err, n)
		note("allocate", f.Allocate(20))
		size, err := f.Size()
		note("size", err, size)
		note("sync", errors.Join(f.Sync(), f.SyncData()))
		note("close", f.Close())
		note("close again", f.Close())
		_, err = f.WriteAt([]byte("x"), 0)
		note("write when closed", err)
		note("rename", fsys.Rename(in("d/a"), in("d/b")))
		note("rename absent", fsys.Rename(in("d/a"), in("d/b")))
		note("remove absent", fsys.Remove(in("d/a")))
		names, err := fsys.ReadDir(in("d"))
		note("list", err, names)
		_, err = fsys.ReadDir(in("x"))
		note("list absent", err)
		note("sync directory", fsys.SyncDir(in("d")))
		note("remove", fsys.Remove(in("d/b")))
		note("remove all", fsys.RemoveAll(in("d")))
		return log
	}
	want := script(disk.OSFS{}, t.TempDir())
	if diff := cmp.Diff(want, script(diskfault.New(), "/")); diff != "" {
		t.Errorf("real (-) and fake (+) differ:\n%s", diff)
	}
}

func TestCrashFates(t *testing.T) {
	even := func(_ string, sector int64) bool { return sector%2 == 0 }
	old, fresh := bytes.Repeat([]byte("o"), 2048), bytes.Repeat([]byte("n"), 2048)
	mixed := slices.Concat(fresh[:512], old[:512], fresh[:512], old[:512])
	for _, tc := range []struct {
		name string
		fate diskfault.Fate
		want []byte
	}{
		{"lose all", diskfault.LoseAll, old}, {"keep all", diskfault.KeepAll, fresh}, {"tear", even, mixed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := diskfault.New()
			f := create(t, d, "/a", string(old))
			must(t, errors.Join(f.Sync(), d.SyncDir("/")))
			_, err := f.WriteAt(fresh, 0)
			must(t, err)
			d.Crash(tc.fate, diskfault.LoseNames)
			if got := d.Contents("/a"); !bytes.Equal(got, tc.want) {
				t.Errorf("got %.8q…, want %.8q…", got, tc.want)
			}
			if _, err := f.WriteAt(fresh, 0); !errors.Is(err, diskfault.ErrCrashed) {
				t.Errorf("write to a file of the earlier life: %v", err)
			}
			// What survived is durable now.
			d.Crash(diskfault.LoseAll, diskfault.LoseNames)
			if got := d.Contents("/a"); !bytes.Equal(got, tc.want) {
				t.Error("a second crash changed it")
			}
		})
	}
}

// What a killed process leaves behind is there, and not durable; of what a sync failed to write the
// same is true after a later sync.
func TestKilledAndDropped(t *testing.T) {
	d := diskfault.New()
	f := create(t, d, "/a", "old")
	must(t, errors.Join(f.Sync(), d.SyncDir("/")))
	_, err := f.WriteAt([]byte("new"), 0)
	must(t, err)
	create(t, d, "/b", "b")
	d.Crash(nil, diskfault.LoseNames)
	if a, b := d.Contents("/a"), d.Contents("/b"); string(a) != "new" || string(b) != "b" {
		t.Errorf("the process died, and the disk has %q and %q", a, b)
	}
	d.Crash(diskfault.LoseAll, diskfault.LoseNames)
	if a, b := d.Contents("/a"), d.Contents("/b"); string(a) != "old" || b != nil {
		t.Errorf("then the power went, and the disk has %q and %q", a, b)
	}
	for _, again := range []bool{false, true} {
		f, err := d.OpenFile("/a", os.O_RDWR)
		must(t, err)
		_, err = f.WriteAt([]byte("new"), 0)
		must(t, err)
		d.SetHook(diskfault.Broken)
		if f.Sync() == nil {
			t.Fatal("a broken disk synced")
		}
		d.SetHook(nil)
		want := "old"
		if again {
			want = "new"
			_, err = f.WriteAt([]byte("new"), 0)
		}
		must(t, errors.Join(err, f.Sync()))
		d.Crash(diskfault.LoseAll, diskfault.LoseNames)
		if got := d.Contents("/a"); string(got) != want {
			t.Errorf("synced again after a failure, written again: %v: a power cut left %q", again, got)
		}
	}
}

func TestCrashNames(t *testing.T) {
	for _, tc := range []struct {
		names diskfault.Names
		want  []string
	}{
		{diskfault.LoseNames, []string{"/kept", "/old", "/removed"}},
		{diskfault.KeepNames, []string{"/created", "/kept", "/new"}},
	} {
		d := diskfault.New()
		for _, name := range []string{"/kept", "/old", "/removed"} {
			must(t, create(t, d, name, name).Sync())
		}
		must(t, d.SyncDir("/"))
		must(t, create(t, d, "/created", "").Sync())
		must(t, d.Rename("/old", "/new"))
		must(t, d.Remove("/removed"))
		d.Crash(diskfault.LoseAll, tc.names)
		if diff := cmp.Diff(tc.want, d.Files()); diff != "" {
			t.Errorf("names %v (-want +got):\n%s", tc.names, diff)
		}
	}
}

func TestHookSeesAndStopsSteps(t *testing.T) {
	d := diskfault.New()
	must(t, d.MkdirAll("/d"))
	var seen []diskfault.Op
	d.SetHook(func(o diskfault.Op) error {
		seen = append(seen, o)
		if o.Kind == diskfault.OpWrite {
			return diskfault.Full(o)
		}
		if o.Kind == diskfault.OpRename {
			return diskfault.Broken(o)
		}
		return nil
	})
	f, err := d.OpenFile("/d/a", os.O_CREATE|os.O_RDWR)
	must(t, err)
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.ENOSPC) || len(d.Contents("/d/a")) != 0 {
		t.Errorf("write: %v, %q", err, d.Contents("/d/a"))
	}
	must(t, f.Sync())
	if err := d.Rename("/d/a", "/d/b"); !errors.Is(err, syscall.EIO) || !slices.Equal(d.Files(), []string{"/d/a"}) {
		t.Errorf("rename: %v", err)
	}
	_, err = d.ReadDir("/d")
	must(t, err)
	want := []diskfault.Op{
		{Kind: diskfault.OpCreate, Path: "/d/a"}, {Kind: diskfault.OpWrite, Path: "/d/a"},
		{
			Kind: diskfault.OpSync, Path: "/d/a",
		}, {Kind: diskfault.OpRename, Path: "/d/b"}, {Kind: diskfault.OpRead, Path: "/d"},
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	for _, o := range want {
		if o.Mutates() != (o.Kind != diskfault.OpRead) {
			t.Errorf("%s mutates: %v", o.Kind, o.Mutates())
		}
	}
}

func TestDamageByHand(t *testing.T) {
	d := diskfault.New()
	f := create(t, d, "/a", "abc")
	must(t, errors.Join(f.Sync(), d.SyncDir("/"), f.Close()))
	c := d.Clone()
	d.Flip("/a", 1, 1)
	d.Crash(diskfault.LoseAll, diskfault.LoseNames)
	if got := string(d.Contents("/a")); got != "a`c" {
		t.Errorf("flipped: %q", got)
	}
	d.Overwrite("/a", 0, []byte("xy"))
	d.Crash(diskfault.LoseAll, diskfault.LoseNames)
	if got := string(d.Contents("/a")); got != "xyc" {
		t.Errorf("overwritten: %q", got)
	}
	d.SetContents("/a", nil)
	d.SetContents("/b", []byte("new"))
	d.Crash(diskfault.LoseAll, diskfault.LoseNames)
	if diff := cmp.Diff([]string{"/b"}, d.Files()); diff != "" || d.Contents("/a") != nil {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got := string(c.Contents("/a")); got != "abc" {
		t.Errorf("the copy changed: %q", got)
	}
}

// What was allocated and not written is zeros, and is lost in a crash before a sync, as a size is.
func TestAllocatedSpace(t *testing.T) {
	d := diskfault.New()
	f := create(t, d, "/a", "abc")
	must(t, errors.Join(f.Allocate(1000), f.Sync(), f.Allocate(2000), d.SyncDir("/")))
	b := bytes.Repeat([]byte("x"), 8)
	if n, err := f.ReadAt(b, 1); n != 8 || err != nil || string(b) != "bc\x00\x00\x00\x00\x00\x00" {
		t.Errorf("read %d bytes, %v: %q", n, err, b)
	}
	if n, err := f.ReadAt(b, 1996); n != 4 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d bytes across the end, %v", n, err)
	}
	for _, size := range []int{2000, 1000} {
		if got := d.Contents("/a"); len(got) != size || !bytes.HasPrefix(got, []byte("abc\x00")) {
			t.Errorf("%d bytes, want %d", len(got), size)
		}
		d.Crash(diskfault.LoseAll, diskfault.LoseNames)
	}
}

// A program that has a disk open goes on after Fork, and the next life sees nothing of it.
func TestForkLeavesTheDeadBehind(t *testing.T) {
	for _, tc := range []struct {
		fate  diskfault.Fate
		names diskfault.Names
		want  map[string]string
	}{
		{diskfault.LoseAll, diskfault.LoseNames, map[string]string{"/a": "old"}},
		{diskfault.KeepAll, diskfault.LoseNames, map[string]string{"/a": "new"}},
		{diskfault.KeepAll, diskfault.KeepNames, map[string]string{"/a": "new", "/b": "b"}},
	} {
		d := diskfault.New()
		d.SetFree(7)
		f := create(t, d, "/a", "old")
		must(t, errors.Join(f.Sync(), d.SyncDir("/")))
		_, err := f.WriteAt([]byte("new"), 0)
		must(t, err)
		create(t, d, "/b", "b")
		next := d.Fork(tc.fate, tc.names)
		_, err = f.WriteAt([]byte("xyz"), 0)
		must(t, errors.Join(err, f.Sync(), d.Rename("/a", "/c")))
		got := map[string]string{}
		for _, name := range next.Files() {
			got[name] = string(next.Contents(name))
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || next.FreeBytes() != 7 {
			t.Errorf("after Fork, with %d bytes free (-want +got):\n%s", next.FreeBytes(), diff)
		}
		next.Crash(diskfault.LoseAll, diskfault.LoseNames)
		if got := string(next.Contents("/a")); got != tc.want["/a"] {
			t.Errorf("what survived was not durable: %q", got)
		}
		if got := string(d.Contents("/c")); got != "xyz" {
			t.Errorf("the dead disk has %q", got)
		}
	}
}
