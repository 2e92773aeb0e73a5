package storage_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// refusing is a real file system that takes direct writes, or refuses them when the file is opened
// or only when it is written.
type refusing struct {
	disk.OSFS
	atOpen, atWrite bool
	written         int // by direct writes
	refused         int
}

func (r *refusing) OpenFile(name string, flag int) (disk.File, error) {
	const known = os.O_RDONLY | os.O_RDWR | os.O_CREATE | os.O_EXCL
	f, err := r.OSFS.OpenFile(name, flag&known)
	switch {
	case flag&^known == 0 || err != nil:
		return f, err
	case r.atOpen:
		r.refused++
		return nil, errors.Join(syscall.EINVAL, f.Close()) // and the file is there, as on Linux
	}
	return &refusingFile{f, r}, nil
}

type refusingFile struct {
	disk.File
	fs *refusing
}

func (f *refusingFile) WriteAt(p []byte, at int64) (int, error) {
	if f.fs.atWrite {
		f.fs.refused++
		return 0, syscall.EINVAL
	}
	f.fs.written += len(p)
	return f.File.WriteAt(p, at)
}

// A snapshot of any size is read as it was written, on file systems with and without direct writes.
func TestSnapshotPastTheCache(t *testing.T) {
	watched := &refusing{}
	for name, fsys := range map[string]disk.FS{
		"direct": disk.OSFS{}, "direct as far as can be": watched,
		"refused at open": &refusing{atOpen: true}, "refused at write": &refusing{atWrite: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := storage.Open(filepath.Join(t.TempDir(), "group"), testConfig(fsys, storage.EngineWAL))
			if err != nil {
				t.Fatal(err)
			}
			defer closeStores(t, s)
			setTerm(t, s, 2)
			const buffer, page = 1 << 20, 4 << 10
			index := uint64(10)
			for _, size := range []int{0, 1, page, buffer - page, buffer - page/2, buffer, buffer + 1, 2*buffer + page,
				3*buffer - 7} {
				want := bigData(size)
				index++
				mustSnapshot(t, s, index, 2, want)
				at, got, err := readSnapshot(s.Snapshots)
				if err != nil || at != index || !bytes.Equal(got, want) {
					t.Errorf("%d bytes: read %d at %d, %v", size, len(got), at, err)
				}
			}
			if r, ok := fsys.(*refusing); ok && runtime.GOOS == "linux" && (r.refused == 0) != (r == watched) {
				t.Errorf("%d direct writes were refused", r.refused)
			}
		})
	}
	// Of the largest two snapshots two buffers each are full, of the next three one each.
	if runtime.GOOS == "linux" && watched.written != 7<<20 {
		t.Errorf("%d bytes were written directly", watched.written)
	}
}
