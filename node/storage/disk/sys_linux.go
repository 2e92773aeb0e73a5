package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// DirectFlag asks for writes past the kernel's cache.
const DirectFlag = unix.O_DIRECT

func dataSync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func allocate(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			// The file system cannot reserve: keep the length, lose only the early warning.
			return f.Truncate(size)
		default:
			return err
		}
	}
}

func freeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}
