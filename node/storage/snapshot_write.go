package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// DigestSetter is implemented by the sinks of SnapshotStore. Before it returns from Persist, the
// machine may give the digest of the state that it wrote; the trailer of the file keeps it. Raft
// does not send it to other nodes: a machine that wants its digest checked on install writes it
// into the data as well.
type DigestSetter interface {
	SetDigest(digest uint64)
}

// snapshotSink writes one snapshot to a temporary file and gives it its name on Close.
type snapshotSink struct {
	store *SnapshotStore
	meta  snapshotMeta
	name  string // final path
	file  *stream
	start time.Time

	synced  int64 // offset up to which the data was synced on the way
	trailer snapshotTrailer
	buf     []byte // data of the block being filled
	out     []byte // encoded block
	err     error  // sticky; errSinkDone after Close or Cancel
}

var (
	_ raft.SnapshotSink = (*snapshotSink)(nil)
	_ DigestSetter      = (*snapshotSink)(nil)

	errSinkDone = errors.New("storage: snapshot is already closed or cancelled")
)

func (s *snapshotSink) create() error {
	header, sum, err := encodeSnapshotHeader(s.meta)
	if err != nil {
		return err
	}
	tmp := s.name + disk.TemporarySuffix
	if s.file, err = createStream(s.store.fsys, tmp); err != nil {
		s.store.abandoned()
		return fmt.Errorf("storage: %w", err)
	}
	s.trailer.sum = sum
	s.buf = make([]byte, 0, snapshotBlockBytes)
	if err := s.append(header); err != nil {
		return errors.Join(err, s.abandon())
	}
	return nil
}

// ID implements raft.SnapshotSink.
func (s *snapshotSink) ID() string { return s.meta.ID }

// SetDigest implements DigestSetter.
func (s *snapshotSink) SetDigest(digest uint64) { s.trailer.digest, s.trailer.hasDigest = digest, true }

// Write implements io.Writer.
func (s *snapshotSink) Write(p []byte) (int, error) {
	written := 0
	for s.err == nil && written < len(p) {
		n := min(len(p)-written, snapshotBlockBytes-len(s.buf))
		s.buf = append(s.buf, p[written:written+n]...)
		written += n
		if len(s.buf) == snapshotBlockBytes {
			s.err = s.flush()
		}
	}
	return written, s.err
}

// flush writes the buffered bytes as a block. An empty block is the last one.
func (s *snapshotSink) flush() error {
	s.out, s.trailer.sum = encodeBlock(s.out, s.buf, s.trailer.sum)
	s.trailer.blocks++
	s.trailer.bytes += uint64(len(s.buf))
	s.buf = s.buf[:0]
	return s.append(s.out)
}

// append writes b, unless a newer snapshot is durable by now. With pauses between its blocks, or
// during an install, a snapshot may come too late.
func (s *snapshotSink) append(b []byte) error {
	if err := s.store.overtaken(s.meta.ID, s.meta.Index); err != nil {
		return err
	}
	return s.store.guard.Watch("write "+s.name, func() error {
		if err := s.file.write(b); err != nil {
			return fmt.Errorf("storage: %w", err)
		}
		if s.file.at-s.synced < snapshotSyncBytes {
			return nil
		}
		// In small portions: one sync of gigabytes at the end would hold up the log's syncs, and look
		// like a hung disk to the watchdog.
		s.synced = s.file.at
		if err := s.file.syncData(); err != nil {
			return fmt.Errorf("storage: %w", err)
		}
		return nil
	})
}

// Close implements raft.SnapshotSink. When it returns nil the snapshot is durable under its name;
// after an error there is none, and the log still holds what it would have covered.
func (s *snapshotSink) Close() error {
	if errors.Is(s.err, errSinkDone) {
		return s.err
	}
	s.store.publishing.Lock()
	defer s.store.publishing.Unlock()
	if s.err == nil {
		s.err = s.finish()
	}
	if cause := s.err; cause != nil {
		return errors.Join(cause, s.abandon()) // which sets s.err
	}
	s.err = errSinkDone
	return s.store.written(s)
}

func (s *snapshotSink) finish() error {
	if len(s.buf) > 0 {
		if err := s.flush(); err != nil {
			return err
		}
	}
	if err := s.flush(); err != nil {
		return err
	}
	if err := s.append(encodeTrailer(s.trailer)); err != nil {
		return err
	}
	if err := s.store.guard.Watch("write "+s.name, s.file.flush); err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	return s.store.guard.Watch("sync "+s.name, s.publish)
}

// publish is sync, close, rename, sync of the directory, in this order: the name must never be
// durable before the bytes, and Raft must not compact the log before the name is. Close may fail,
// and a file that failed must not get the name.
func (s *snapshotSink) publish() error {
	tmp, fsys := s.name+disk.TemporarySuffix, s.store.fsys
	if err := s.file.sync(); err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	if err := s.file.Close(); err != nil {
		return fmt.Errorf("storage: closing %s: %w", tmp, err)
	}
	if err := fsys.Rename(tmp, s.name); err != nil {
		return fmt.Errorf("storage: renaming %s: %w", tmp, err)
	}
	if err := fsys.SyncDir(filepath.Dir(s.name)); err != nil {
		return fmt.Errorf("storage: syncing directory of %s: %w", s.name, errors.Join(err, fsys.Rename(s.name, tmp)))
	}
	return nil
}

// Cancel implements raft.SnapshotSink.
func (s *snapshotSink) Cancel() error {
	if errors.Is(s.err, errSinkDone) {
		return nil
	}
	return s.abandon()
}

func (s *snapshotSink) abandon() error {
	s.err = errSinkDone
	s.store.abandoned()
	// The file may be closed already; what is left is the temporary name. It may be large.
	return errors.Join(ignoreClosed(s.file.Close()), s.store.gone.delete(removal{name: s.name + disk.TemporarySuffix}))
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
