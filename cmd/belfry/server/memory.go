package server

import (
	"bufio"
	"bytes"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/admit"
)

// MemoryLimit is how much memory a process may use, and the source of that limit.
type MemoryLimit struct {
	Bytes uint64 // 0 if no limit is known
	From  string
}

// smaller returns the smaller of two limits; 0 bytes are no limit.
func (l MemoryLimit) smaller(bytes uint64, from string) MemoryLimit {
	if bytes == 0 || l.Bytes != 0 && l.Bytes <= bytes {
		return l
	}
	return MemoryLimit{bytes, from}
}

// FindMemoryLimit returns the smallest of the machine's memory and the limits of this process's
// control groups, version 1 and 2.
func FindMemoryLimit() MemoryLimit { return findMemoryLimit(os.DirFS("/")) }

func findMemoryLimit(root fs.FS) MemoryLimit {
	limit := MemoryLimit{}.smaller(fieldIn(root, "proc/meminfo", "MemTotal:")<<10, "the machine")
	for _, group := range memoryGroups(root) {
		for _, name := range []string{"memory.max", "memory.high", "memory.limit_in_bytes"} {
			if b, err := fs.ReadFile(root, path.Join(group, name)); err == nil {
				limit = limit.smaller(number(string(bytes.TrimSpace(b))), "/"+path.Join(group, name))
			}
		}
		limit = limit.smaller(fieldIn(root, path.Join(group, "memory.stat"), "hierarchical_memory_limit"),
			"/"+path.Join(group, "memory.stat"))
	}
	return limit
}

// number parses a number of bytes. It returns 0 for other text, such as "max".
func number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// fieldIn returns the number after a field's name in a file of lines; 0 if there is none.
func fieldIn(root fs.FS, name, field string) uint64 {
	for _, line := range linesOf(root, name) {
		if words := strings.Fields(line); len(words) >= 2 && words[0] == field {
			return number(words[1])
		}
	}
	return 0
}

func linesOf(root fs.FS, name string) (lines []string) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return nil
	}
	for in := bufio.NewScanner(bytes.NewReader(b)); in.Scan(); {
		lines = append(lines, in.Text())
	}
	return lines
}

// memoryGroups returns the directories of the control groups that limit the memory of this process,
// up to the roots that the process sees.
func memoryGroups(root fs.FS) (groups []string) {
	for _, mount := range memoryMounts(root) {
		for dir := path.Join(mount.point, groupIn(root, mount)); ; dir = path.Dir(dir) {
			groups = append(groups, strings.TrimPrefix(dir, "/"))
			if dir == mount.point || dir == "/" {
				break
			}
		}
	}
	return groups
}

// groupMount is a mount point of a control group hierarchy, and the group that is mounted there.
type groupMount struct {
	point, root string
	unified     bool
}

// memoryMounts reads /proc/self/mountinfo, see proc(5).
func memoryMounts(root fs.FS) (mounts []groupMount) {
	for _, line := range linesOf(root, "proc/self/mountinfo") {
		before, after, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		switch {
		case kind[0] == "cgroup2":
			mounts = append(mounts, groupMount{fields[4], fields[3], true})
		case kind[0] == "cgroup" && hasWord(kind[2], "memory"):
			mounts = append(mounts, groupMount{fields[4], fields[3], false})
		}
	}
	return mounts
}

func hasWord(list, word string) bool {
	for have := range strings.SplitSeq(list, ",") {
		if have == word {
			return true
		}
	}
	return false
}

// groupIn returns the group of this process below a mount, see cgroups(7). It returns "", the mount
// itself, if the mount begins at that group or the process cannot see the path. Both occur in
// containers.
func groupIn(root fs.FS, mount groupMount) string {
	for _, line := range linesOf(root, "proc/self/cgroup") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 || mount.unified != (parts[1] == "") || !mount.unified && !hasWord(parts[1], "memory") {
			continue
		}
		below, ok := strings.CutPrefix(parts[2], strings.TrimSuffix(mount.root, "/"))
		if !ok {
			return ""
		}
		if _, err := fs.Stat(root, strings.TrimPrefix(path.Join(mount.point, below), "/")); err != nil {
			return ""
		}
		return below
	}
	return ""
}

// LimitMemory keeps the heap of the process within the smallest of three limits, and returns that
// limit: what the operator set (0 for no limit), what was found, and GOMEMLIMIT. Near the limit the
// collector runs more often, so that the process does not die.
func LimitMemory(set uint64, found MemoryLimit, log *slog.Logger) uint64 {
	limit := found.smaller(set, "--memory")
	if set > limit.Bytes {
		log.Warn("there is less memory than --memory says", slog.Uint64("memory", set),
			slog.Uint64("limit_bytes", limit.Bytes), slog.String("from", limit.From))
	}
	if given := debug.SetMemoryLimit(-1); given != math.MaxInt64 {
		limit = limit.smaller(uint64(given), "GOMEMLIMIT") //nolint:gosec // the runtime has no negative limit
	}
	switch {
	case limit.Bytes == 0:
		log.Warn("how much memory there is could not be found: puts are not refused before it is full; --memory sets a limit")
		return 0
	case limit.Bytes < node.MemoryBytesMin:
		log.Warn("there is less memory than a node needs", slog.Uint64("limit_bytes", limit.Bytes),
			slog.String("from", limit.From), slog.Uint64("needed_bytes", node.MemoryBytesMin))
		limit.Bytes = node.MemoryBytesMin
	}
	if soft := admit.SoftMemoryLimit(limit.Bytes); limit.From != "GOMEMLIMIT" {
		debug.SetMemoryLimit(int64(min(soft, math.MaxInt64)))
	}
	log.Info("memory", slog.Uint64("limit_bytes", limit.Bytes), slog.String("from", limit.From))
	return limit.Bytes
}

// heapLive returns how many live bytes the last garbage collection found, and how many have run.
func heapLive() (live, cycles uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}
