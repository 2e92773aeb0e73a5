//go:build fuse

package disk

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// scriptVariable names what a child process of the test does instead of testing. A process that
// serves a disk must not map a file on it, nor hang on it: the garbage collector would wait for the
// thread that does, and the thread for the disk.
const scriptVariable = "BELFRY_DISK_SCRIPT"

func TestMain(m *testing.M) {
	scripts := map[string]func(dir string) error{"use": scriptUse, "sync": scriptSync, "map": scriptMap, "die": scriptDie}
	name := os.Getenv(scriptVariable)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := scripts[name](os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// script returns a child process that is not started yet.
func script(t *testing.T, name, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	c := exec.CommandContext(t.Context(), self, dir)
	c.Env = append(os.Environ(), scriptVariable+"="+name)
	c.Stderr = t.Output()
	return c
}

// mounted returns a disk that is closed when the test ends.
func mounted(t testing.TB) *Disk {
	t.Helper()
	d, err := Mount(t.Context(), Config{
		Mountpoint: filepath.Join(t.TempDir(), "mount"), Backing: filepath.Join(t.TempDir(), "backing"),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	return d
}

// TestUse: a process finds what it expects of a file system.
func TestUse(t *testing.T) {
	d := mounted(t)
	if err := script(t, "use", d.Mountpoint()).Run(); err != nil {
		t.Fatal(err)
	}
	if got, want := d.Files(), []string{"/d/b", "/d/direct", "/lock", "/mapped"}; !slices.Equal(got, want) {
		t.Errorf("the disk has %v, want %v", got, want)
	}
}

func scriptUse(dir string) error {
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.MkdirAll(in("d/e"), 0o750); err != nil {
		return err
	}
	for name, use := range map[string]func(func(string) string) error{
		"names": useNames, "a mapped file": useMapped, "a lock": useLock, "a direct file": useDirect,
		"an allocated file": useAllocated,
	} {
		if err := use(in); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func useNames(in func(string) string) error {
	if err := os.WriteFile(in("d/a"), []byte("hello"), 0o640); err != nil {
		return err
	}
	_, exists := os.OpenFile(in("d/a"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o640)
	f, err := os.OpenFile(in("d/a"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(" world")
	err = errors.Join(err, f.Sync(), f.Close(), os.Rename(in("d/a"), in("d/b")))
	_, gone := os.Stat(in("d/a"))
	info, statErr := os.Stat(in("d/b"))
	text, readErr := os.ReadFile(in("d/b"))
	entries, listErr := os.ReadDir(in("d"))
	full := os.Remove(in("d"))
	switch err := errors.Join(err, statErr, readErr, listErr, os.Remove(in("d/e"))); {
	case err != nil:
		return err
	case !errors.Is(exists, fs.ErrExist) || !errors.Is(gone, fs.ErrNotExist) || !errors.Is(full, syscall.ENOTEMPTY):
		return fmt.Errorf("wrong errors: %w, %w, %w", exists, gone, full)
	case string(text) != "hello world" || info.Size() != 11 || info.Mode() != 0o640:
		return fmt.Errorf("found %q with %v", text, info)
	case !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "b" && e.Type().IsRegular() }):
		return fmt.Errorf("the directory has %v", entries)
	}
	dirFile, err := os.Open(in("d"))
	if err != nil {
		return err
	}
	return errors.Join(dirFile.Sync(), dirFile.Close())
}

// useMapped reads through a mapping what was written with pwrite, as bbolt does, also behind the
// old end of the file.
func useMapped(in func(string) string) error {
	f, err := os.Create(in("mapped"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(64 << 10); err != nil {
		return err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, 128<<10, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	for i := range 500 {
		want, off := bytes.Repeat([]byte{byte(1 + i%250)}, 3000), int64(i*7919%100_000)
		if _, err := f.WriteAt(want, off); err != nil {
			return err
		}
		if i%10 == 0 {
			if err := unix.Fdatasync(int(f.Fd())); err != nil {
				return err
			}
		}
		if !bytes.Equal(m[off:off+3000], want) {
			return fmt.Errorf("write %d is not seen through the mapping", i)
		}
	}
	return unix.Munmap(m)
}

func useLock(in func(string) string) error {
	one, err := os.Create(in("lock"))
	if err != nil {
		return err
	}
	two, err := os.Open(in("lock"))
	if err != nil {
		return err
	}
	if err := unix.Flock(int(one.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	if err := unix.Flock(int(two.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("two have the lock: %w", err)
	}
	if err := one.Close(); err != nil {
		return err
	}
	return errors.Join(unix.Flock(int(two.Fd()), unix.LOCK_EX|unix.LOCK_NB), two.Close())
}

func useDirect(in func(string) string) error {
	f, err := os.OpenFile(in("d/direct"), os.O_CREATE|os.O_RDWR|unix.O_DIRECT, 0o640)
	if err != nil {
		return err
	}
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned
	if err != nil {
		return err
	}
	page[17] = 42
	if _, err := f.WriteAt(page, 4096); err != nil {
		return err
	}
	text, err := os.ReadFile(in("d/direct"))
	if err != nil || len(text) != 8192 || text[4096+17] != 42 {
		return fmt.Errorf("read back %d bytes: %w", len(text), err)
	}
	return errors.Join(f.Sync(), f.Close())
}

func useAllocated(in func(string) string) error {
	f, err := os.Create(in("allocated"))
	if err != nil {
		return err
	}
	err = errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, 1<<20),
		unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 2<<20))
	info, statErr := f.Stat()
	if err := errors.Join(err, statErr); err != nil || info.Size() != 1<<20 {
		return fmt.Errorf("%v: %w", info, err)
	}
	hole := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, 0, 4096)
	if !errors.Is(hole, unix.EOPNOTSUPP) {
		return fmt.Errorf("a hole: %w", hole)
	}
	return errors.Join(f.Truncate(10), f.Close(), os.Remove(f.Name()))
}

// TestPowerCut: after a crash the disk has what was synced; what was open is dead, and the hook is
// gone.
func TestPowerCut(t *testing.T) {
	d := mounted(t)
	in := func(name string) string { return filepath.Join(d.Mountpoint(), name) }
	f, err := os.Create(in("a"))
	must(t, err)
	_, err = f.WriteString("old")
	must(t, errors.Join(err, f.Sync()))
	dir, err := os.Open(d.Mountpoint())
	must(t, err)
	must(t, dir.Sync())
	_, err = f.WriteAt([]byte("new and more"), 0)
	must(t, err)
	must(t, os.WriteFile(in("b"), []byte("b"), 0o600))
	d.SetHook(ReadOnly())
	lost, err := d.Crash(LoseAll, LoseNames)
	must(t, err)
	if want := (Losses{Bytes: 13, Names: 1}); lost != want {
		t.Errorf("lost %+v, want %+v", lost, want)
	}
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("a file from before the crash can be written to")
	}
	_ = errors.Join(f.Close(), dir.Close()) // they are dead
	text, err := os.ReadFile(in("a"))
	if _, gone := os.Stat(in("b")); err != nil || string(text) != "old" || !errors.Is(gone, fs.ErrNotExist) {
		t.Errorf("found %q and %v: %v", text, gone, err)
	}
	must(t, os.WriteFile(in("a"), []byte("changed"), 0o600))
	lost, err = d.Crash(KeepAll, KeepNames)
	must(t, err)
	if text, err := os.ReadFile(in("a")); err != nil || string(text) != "changed" || lost != (Losses{}) {
		t.Errorf("of what was kept there is %q, lost %+v: %v", text, lost, err)
	}
	must(t, os.WriteFile(in("a"), []byte("later"), 0o600))
	for _, want := range []string{"later", "changed"} { // it was not made durable by the death of its process
		lost, err = d.Crash(nil, nil)
		if want == "changed" {
			lost, err = d.Crash(LoseAll, LoseNames)
		}
		must(t, err)
		if text, err := os.ReadFile(in("a")); err != nil || string(text) != want || (lost == Losses{}) != (want == "later") {
			t.Errorf("left is %q, want %q, and lost %+v: %v", text, want, lost, err)
		}
	}
	copied := filepath.Join(t.TempDir(), "copy")
	must(t, d.Copy(copied))
	must(t, os.Remove(in("a")))
	must(t, d.ReplaceAll(copied))
	if text, err := os.ReadFile(in("a")); err != nil || string(text) != "changed" {
		t.Errorf("after its copy was put back: %q, %v", text, err)
	}
}

func scriptSync(dir string) error {
	f, err := os.Create(filepath.Join(dir, "hung"))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return f.Sync()
}

// scriptDie dies with a disk mounted.
func scriptDie(dir string) error {
	cfg := Config{Mountpoint: filepath.Join(dir, "a mount"), Backing: filepath.Join(dir, "backing"),
		Logger: slog.New(slog.DiscardHandler)}
	if _, err := Mount(context.Background(), cfg); err != nil {
		return err
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// TestTheDeadAreSwept: what a process that died left mounted is gone once another one mounts.
func TestTheDeadAreSwept(t *testing.T) {
	dir := t.TempDir()
	if err := script(t, "die", dir).Run(); err == nil {
		t.Fatal("the process lives")
	}
	dead := filepath.Join(dir, "a mount")
	if err := unix.Statfs(dead, &unix.Statfs_t{}); !errors.Is(err, unix.ENOTCONN) {
		t.Fatalf("it left %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dead, unix.MNT_DETACH) })
	alive := mounted(t)
	for range 2 {
		if _, err := os.ReadDir(dead); err != nil {
			t.Error(err)
		}
		mounted(t)
		if err := os.WriteFile(filepath.Join(alive.Mountpoint(), "a"), nil, 0o600); err != nil {
			t.Errorf("the disk of somebody alive: %v", err)
		}
	}
}

// TestHungDisk: a process that waits for a hung disk cannot be killed until the disk is released,
// or closed.
func TestHungDisk(t *testing.T) {
	for name, end := range map[string]func(*Disk) error{
		"release": func(d *Disk) error { d.Release(); return nil },
		"crash":   func(d *Disk) error { _, err := d.Crash(LoseAll, LoseNames); return err },
		"close":   (*Disk).Close,
	} {
		t.Run(name, func(t *testing.T) {
			d := mounted(t)
			hung := make(chan struct{}, 1)
			d.SetHook(func(op Op) Verdict {
				if op.Kind == OpSync {
					hung <- struct{}{}
				}
				return Hang(OpSync)(op)
			})
			c := script(t, "sync", d.Mountpoint())
			must(t, c.Start())
			<-hung
			must(t, c.Process.Kill())
			state, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
			must(t, err)
			if strings.Contains(string(state), "Z (zombie)") {
				t.Error("the process ended while it waited for the disk")
			}
			must(t, end(d))
			if err := c.Wait(); err == nil {
				t.Error("the process ended by itself")
			}
		})
	}
}

// scriptMap prints the first byte of a mapped file whenever it is asked to.
func scriptMap(dir string) error {
	f, err := os.Open(filepath.Join(dir, "mapped"))
	if err != nil {
		return err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, 0); err != nil {
			return err
		}
		_, absent := os.Stat(filepath.Join(dir, "other"))
		fmt.Println(m[0], b[0], absent == nil)
	}
	return lines.Err()
}

// TestDamageIsSeen: by a process that has the file mapped and in the kernel's cache.
func TestDamageIsSeen(t *testing.T) {
	d := mounted(t)
	for _, name := range []string{"mapped", "other"} {
		must(t, os.WriteFile(filepath.Join(d.Mountpoint(), name), bytes.Repeat([]byte{1}, 4096), 0o600))
	}
	c := script(t, "map", d.Mountpoint())
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	lines := bufio.NewReader(out)
	ask := func(want string) {
		t.Helper()
		_, err := io.WriteString(in, "\n")
		must(t, err)
		if line, err := lines.ReadString('\n'); err != nil || strings.TrimSpace(line) != want {
			t.Errorf("the process sees %q, want %q: %v", line, want, err)
		}
	}
	ask("1 1 true")
	must(t, d.Flip("/mapped", 0, 3))
	ask("9 9 true")
	must(t, d.Overwrite("/mapped", 0, []byte{77}))
	ask("77 77 true")
	must(t, d.Remove("/other"))
	ask("77 77 false")
	must(t, errors.Join(in.Close(), c.Wait()))
	must(t, d.Truncate("/mapped", 100))
	b, err := d.Contents("/mapped")
	must(t, err)
	if info, err := os.Stat(filepath.Join(d.Mountpoint(), "mapped")); err != nil || info.Size() != 100 ||
		len(b) != 100 || b[0] != 77 {
		t.Errorf("after the cut: %v, %d bytes: %v", info, len(b), err)
	}
	if err := d.Flip("/mapped", 100, 0); err == nil {
		t.Error("a bit behind the end was flipped")
	}
}

// TestFree: statfs says what SetFree said, and a write that takes more is refused.
func TestFree(t *testing.T) {
	d := mounted(t)
	d.SetFree(1 << 20)
	var st unix.Statfs_t
	must(t, unix.Statfs(d.Mountpoint(), &st))
	if got := st.Bavail * uint64(st.Bsize); got != 1<<20 {
		t.Errorf("%d bytes are free, want 1 MiB", got)
	}
	name := filepath.Join(d.Mountpoint(), "a")
	if err := os.WriteFile(name, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing 2 MiB: %v", err)
	}
}

// BenchmarkWriteSync is 256 bytes written and synced, in files that were allocated before, by one
// writer to a directory.
func BenchmarkWriteSync(b *testing.B) {
	run := func(b *testing.B, dirs []string) {
		done := make(chan error)
		for i, dir := range dirs {
			go func() { done <- writeSynced(dir, b.N/len(dirs)+min(1, max(0, b.N%len(dirs)-i))) }()
		}
		for range dirs {
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "syncs/s")
	}
	places := map[string]func(*testing.B) string{
		"bare": func(b *testing.B) string { return b.TempDir() },
		"disk": func(b *testing.B) string { return mounted(b).Mountpoint() },
	}
	for _, kind := range slices.Sorted(maps.Keys(places)) {
		for _, n := range []int{1, 3} {
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) {
				dirs := make([]string, n)
				for i := range dirs {
					dirs[i] = places[kind](b)
				}
				b.ResetTimer()
				run(b, dirs)
			})
		}
	}
}

func writeSynced(dir string, n int) (err error) {
	f, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, 16<<20); err != nil {
		return err
	}
	entry := bytes.Repeat([]byte("e"), 256)
	for i := range n {
		if _, err := f.WriteAt(entry, int64(i%(16<<12))*256); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return err
		}
	}
	return nil
}

// waitMax bounds waits that end by themselves, however busy the machine is.
const waitMax = 2 * time.Minute
