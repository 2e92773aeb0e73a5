//go:build unix && !linux

package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// DirectFlag is 0 where there are no direct writes, or where they are not asked for by a flag.
const DirectFlag = 0

func dataSync(f *os.File) error { return f.Sync() }

func allocate(f *os.File, size int64) error { return f.Truncate(size) }

func freeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}
