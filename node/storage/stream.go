package storage

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/belfrydb/belfry/node/storage/disk"
)

const (
	// streamBytes are written at once. The runtime gives an allocation of this size whole pages of its
	// own.
	streamBytes = 1 << 20
	// streamAlign is the alignment that direct writes need for offset, length and memory; 4 KiB
	// does for every disk that is sold.
	streamAlign = 4 << 10
)

// A stream writes a new file once, from its beginning to its end, past the kernel's cache where the
// file system can do that. Snapshots are large and seldom read again. Through the cache they would
// cost a copy and push out the pages of the log, and the next sync would write them all at once.
//
// Where direct writes are refused, at the opening or at a write, the file is written in the
// ordinary way.
type stream struct {
	fsys   disk.FS
	name   string
	file   disk.File
	direct bool
	buf    []byte // bytes not written yet
	at     int64  // offset of buf in the file
}

func createStream(fsys disk.FS, name string) (*stream, error) {
	s := &stream{fsys: fsys, name: name, direct: disk.DirectFlag != 0, buf: make([]byte, 0, streamBytes)}
	const flag = os.O_CREATE | os.O_EXCL | os.O_RDWR
	var err error
	if s.file, err = fsys.OpenFile(name, flag|disk.DirectFlag); errors.Is(err, syscall.EINVAL) {
		// Linux makes the file before it refuses the flag.
		if err = disk.RemoveIfPresent(fsys, name); err == nil {
			s.direct = false
			s.file, err = fsys.OpenFile(name, flag)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", name, err)
	}
	return s, nil
}

// write appends p.
func (s *stream) write(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), cap(s.buf)-len(s.buf))
		s.buf = append(s.buf, p[:n]...)
		p = p[n:]
		if len(s.buf) < cap(s.buf) {
			return nil
		}
		if err := s.flush(); err != nil {
			return err
		}
	}
	return nil
}

// flush writes the buffer. After a length that is not a multiple of the alignment, only ordinary
// writes can follow.
func (s *stream) flush() error {
	if s.direct && len(s.buf)%streamAlign != 0 {
		if err := s.reopen(); err != nil {
			return err
		}
	}
	_, err := s.file.WriteAt(s.buf, s.at)
	if s.direct && errors.Is(err, syscall.EINVAL) {
		if err := s.reopen(); err != nil {
			return err
		}
		_, err = s.file.WriteAt(s.buf, s.at)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", s.name, err)
	}
	s.at += int64(len(s.buf))
	s.buf = s.buf[:0]
	return nil
}

// reopen switches to ordinary writes.
func (s *stream) reopen() error {
	file, err := s.fsys.OpenFile(s.name, os.O_RDWR)
	if err != nil {
		return fmt.Errorf("opening %s again: %w", s.name, err)
	}
	err = s.file.Close()
	s.file, s.direct = file, false
	if err != nil {
		return fmt.Errorf("closing %s: %w", s.name, err)
	}
	return nil
}

// syncData is sync with only as much of the metadata as reading the data back needs.
func (s *stream) syncData() error {
	if err := s.file.SyncData(); err != nil {
		return fmt.Errorf("syncing %s: %w", s.name, err)
	}
	return nil
}

// sync makes what was flushed durable.
func (s *stream) sync() error {
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("syncing %s: %w", s.name, err)
	}
	return nil
}

// Close closes the file. What was not synced is lost.
func (s *stream) Close() error { return s.file.Close() }
