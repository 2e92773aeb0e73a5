package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// facts writes what the kernel says.
func (b *Bundle) facts(s *strings.Builder, dir string) {
	fmt.Fprintf(s, "kernel %s\nclock source %s\nload %s\n", line("/proc/sys/kernel/osrelease"),
		line("/sys/devices/system/clocksource/clocksource0/current_clocksource"), line("/proc/loadavg"))
	b.timeFacts(s)
	b.memory(s)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		fmt.Fprintf(s, "files that this command may open: %d, at most %d\n", files.Cur, files.Max)
	}
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max"} {
		fmt.Fprintf(s, "%s: %s\n", path, line(path))
	}
	b.disk(s, dir)
}

// timeFacts writes whether the kernel's clock is synchronised.
func (b *Bundle) timeFacts(s *strings.Builder) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		fmt.Fprintf(s, "clock: %v\n", err)
		return
	}
	synchronised := t.Status&unix.STA_UNSYNC == 0
	fmt.Fprintf(s, "clock synchronised: %v, estimated error %d us\n", synchronised, t.Esterror)
	if !synchronised {
		b.Find("the clock of this machine is not synchronised, says its kernel",
			"run an NTP client, such as chrony or systemd-timesyncd; in a container that is the host's business")
	}
}

// memory writes how much there is and how much is free.
func (b *Bundle) memory(s *strings.Builder) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		b.Miss("memory", err)
		return
	}
	var total, free uint64
	for l := range strings.Lines(string(text)) {
		for _, name := range []string{"MemTotal:", "MemAvailable:", "SwapTotal:", "SwapFree:"} {
			if strings.HasPrefix(l, name) {
				s.WriteString(l)
			}
		}
		_, _ = fmt.Sscanf(l, "MemTotal: %d kB", &total)
		_, _ = fmt.Sscanf(l, "MemAvailable: %d kB", &free)
	}
	if total > 0 && free < total/10 {
		b.Find(fmt.Sprintf("%d of %d MiB of memory are left on this machine", free>>10, total>>10),
			"all jobs are in memory: 'belfry bench pending' says what one costs; set GOMEMLIMIT below what the machine has")
	}
}

// disk writes how full the file system of a directory is, and what it is.
func (b *Bundle) disk(s *strings.Builder, dir string) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		b.Miss("the disk of the data directory "+dir, err)
		return
	}
	total, free := st.Blocks*uint64(st.Bsize), st.Bavail*uint64(st.Bsize)
	fmt.Fprintf(s, "data directory %s: %s, %d of %d bytes free, %d of %d files\n", dir, fileSystem(dir), free, total,
		st.Ffree, st.Files)
	if free < diskLow {
		b.Find(fmt.Sprintf("the disk of %s has %d MiB free", dir, free>>20),
			"free some, or give it more: below 256 MiB and the size of a snapshot puts are refused, below a quarter of that "+
				"nearly everything")
	}
}

// fileSystem returns the kind and options of the file system that a directory is in.
func fileSystem(dir string) string {
	path, err := filepath.Abs(dir)
	if target, links := filepath.EvalSymlinks(path); links == nil {
		path = target
	}
	mounts, readErr := os.ReadFile("/proc/self/mounts")
	if err = errors.Join(err, readErr); err != nil {
		return err.Error()
	}
	best, kind := "", "unknown file system"
	for l := range strings.Lines(string(mounts)) {
		f := strings.Fields(l) // device, place, kind, options
		if len(f) > 3 && len(f[1]) >= len(best) && (f[1] == "/" || path == f[1] || strings.HasPrefix(path, f[1]+"/")) {
			// users of shares are among them
			flags := slices.DeleteFunc(strings.Split(f[3], ","), func(option string) bool {
				return strings.Contains(option, "=")
			})
			best, kind = f[1], f[2]+" ("+strings.Join(flags, ",")+")"
		}
	}
	return kind
}
