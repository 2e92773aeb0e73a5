package server

import (
	"testing"
	"testing/fstest"
)

func TestFindMemoryLimit(t *testing.T) {
	const (
		meminfo = "MemTotal:       16777216 kB\nMemFree:  1 kB\n"
		v1Mount = "36 28 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n37 28 0:31 / /sys/fs/cgroup/memory rw - " +
			"cgroup cgroup rw,memory\n"
		v2Mount = "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
		huge    = "9223372036854771712\n"
	)
	for name, tt := range map[string]struct {
		files map[string]string
		want  MemoryLimit
	}{
		"nothing is known": {nil, MemoryLimit{}},
		"the machine":      {map[string]string{"proc/meminfo": meminfo}, MemoryLimit{16 << 30, "the machine"}},
		"version 2, at the top of a container": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/mountinfo": v2Mount, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "2147483648\n",
		}, MemoryLimit{2 << 30, "/sys/fs/cgroup/memory.max"}},
		"version 2, without a limit": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/mountinfo": v2Mount, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "max\n",
		}, MemoryLimit{16 << 30, "the machine"}},
		"version 2, of a group above": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/mountinfo": v2Mount, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/memory.max":   "1073741824\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.high": "2147483648\n",
		}, MemoryLimit{1 << 30, "/sys/fs/cgroup/a/memory.max"}},
		"version 2, by memory.high": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/mountinfo": v2Mount, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max":  "1073741824\n",
			"sys/fs/cgroup/a/memory.high": "536870912\n",
		}, MemoryLimit{512 << 20, "/sys/fs/cgroup/a/memory.high"}},
		"version 1": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/mountinfo": v1Mount, "proc/self/cgroup": "8:pids:/x\n4:cpuset,memory:/a/b\n",
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "314572800\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": huge,
		}, MemoryLimit{300 << 20, "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes"}},
		"version 1, of a group that is not seen": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/mountinfo": v1Mount, "proc/self/cgroup": "4:memory:/docker/1234\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": huge,
			"sys/fs/cgroup/memory/memory.stat":           "cache 1\nhierarchical_memory_limit 314572800\n",
		}, MemoryLimit{300 << 20, "/sys/fs/cgroup/memory/memory.stat"}},
		"version 1, mounted at the container's group": {map[string]string{
			"proc/meminfo":        meminfo,
			"proc/self/mountinfo": "37 28 0:31 /docker/1234 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"proc/self/cgroup":    "4:memory:/docker/1234\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "314572800\n",
		}, MemoryLimit{300 << 20, "/sys/fs/cgroup/memory/memory.limit_in_bytes"}},
		"both versions": {map[string]string{
			"proc/meminfo":        meminfo,
			"proc/self/mountinfo": v1Mount + "40 28 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"proc/self/cgroup":    "4:memory:/a\n0::/a\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1073741824\n", "sys/fs/cgroup/unified/a/cgroup.procs": "",
		}, MemoryLimit{1 << 30, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"}},
	} {
		root := fstest.MapFS{}
		for file, text := range tt.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := findMemoryLimit(root); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
