package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// snapshotReader streams a snapshot's data. It returns a byte only after it has verified the block,
// and io.EOF only after the trailer agreed. So a reader that reaches the end has read the whole
// snapshot.
type snapshotReader struct {
	file    disk.File
	name    string
	meta    snapshotMeta
	trailer snapshotTrailer
	written time.Time // zero if the file system does not tell
	onRot   func(error)
	onClose func() // nil for nothing

	at      int64
	end     int64 // offset of the trailer
	sum     uint32
	blocks  uint64
	bytes   uint64
	block   []byte
	pending []byte
	err     error // sticky
}

// openSnapshot opens a file and verifies its header and trailer.
func openSnapshot(fsys disk.FS, name string, onRot func(error)) (*snapshotReader, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY)
	if err != nil {
		return nil, &disk.CorruptError{File: name, Detail: "missing or unreadable", Err: err}
	}
	r := &snapshotReader{file: f, name: name, onRot: onRot}
	if err := r.readEnds(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

func (r *snapshotReader) readEnds() error {
	if f, ok := r.file.(disk.Dater); ok {
		r.written = f.Written()
	}
	size, err := r.file.Size()
	if err != nil {
		return &disk.CorruptError{File: r.name, Detail: "cannot be read", Err: err}
	}
	if r.meta, r.at, r.sum, err = readSnapshotHeader(r.file); err != nil {
		return &disk.CorruptError{File: r.name, Detail: err.Error()}
	}
	r.end = size - snapshotTrailerBytes
	if r.end < r.at {
		return &disk.CorruptError{File: r.name, Offset: size, Detail: "too short for its trailer"}
	}
	b := make([]byte, snapshotTrailerBytes)
	if err := readFull(r.file, b, r.end); err != nil {
		return &disk.CorruptError{File: r.name, Offset: r.end, Detail: "reading the trailer", Err: err}
	}
	if r.trailer, err = decodeTrailer(b); err != nil {
		return &disk.CorruptError{File: r.name, Offset: r.end, Detail: err.Error()}
	}
	return nil
}

// raftMeta returns the meta in Raft's form.
func (r *snapshotReader) raftMeta() *raft.SnapshotMeta {
	return &raft.SnapshotMeta{
		Version: r.meta.Version, ID: r.meta.ID, Index: r.meta.Index, Term: r.meta.Term,
		Configuration: r.meta.Configuration, ConfigurationIndex: r.meta.ConfigurationIndex,
		Size: int64(r.trailer.bytes),
	}
}

// Read implements io.Reader.
func (r *snapshotReader) Read(p []byte) (int, error) {
	for len(r.pending) == 0 {
		if r.err == nil {
			r.err = r.nextBlock()
		}
		if r.err != nil {
			return 0, r.err
		}
	}
	n := copy(p, r.pending)
	r.pending = r.pending[n:]
	return n, nil
}

// Close implements io.Closer.
func (r *snapshotReader) Close() error {
	if r.onClose != nil {
		defer r.onClose()
	}
	return r.file.Close()
}

// nextBlock makes the next block pending; io.EOF after the last one.
func (r *snapshotReader) nextBlock() error {
	head := make([]byte, blockHeadBytes)
	if r.at+blockHeadBytes > r.end {
		return r.corrupt("the blocks end without a last one")
	}
	if err := readFull(r.file, head, r.at); err != nil {
		return r.corrupt("reading a block: " + err.Error())
	}
	n := int64(binary.LittleEndian.Uint32(head))
	if n > snapshotBlockBytes || r.at+blockHeadBytes+n > r.end {
		return r.corrupt(fmt.Sprintf("block of %d bytes", n))
	}
	if r.block == nil {
		r.block = make([]byte, snapshotBlockBytes)
	}
	data := r.block[:n]
	if err := readFull(r.file, data, r.at+blockHeadBytes); err != nil {
		return r.corrupt("reading a block: " + err.Error())
	}
	sum := binary.LittleEndian.Uint32(head[4:])
	if got := disk.SumBytes(disk.SumBytes(r.sum, head[:4]), data); got != sum {
		return r.corrupt(fmt.Sprintf("block checksum %08x, computed %08x", sum, got))
	}
	r.at += blockHeadBytes + n
	r.sum = sum
	r.blocks++
	r.bytes += uint64(n)
	if n > 0 {
		r.pending = data
		return nil
	}
	if r.at != r.end || r.blocks != r.trailer.blocks || r.bytes != r.trailer.bytes || r.sum != r.trailer.sum {
		return r.corrupt(fmt.Sprintf("ends after %d blocks with %d bytes, trailer says %d with %d",
			r.blocks, r.bytes, r.trailer.blocks, r.trailer.bytes))
	}
	return io.EOF
}

func (r *snapshotReader) corrupt(detail string) error {
	err := &disk.CorruptError{File: r.name, Offset: r.at, Detail: detail}
	if r.onRot != nil {
		r.onRot(err)
	}
	return err
}

// verifySnapshot reads a whole file.
func verifySnapshot(fsys disk.FS, name string) (r *snapshotReader, err error) {
	r, err = openSnapshot(fsys, name, nil)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, r)
	return r, errors.Join(err, r.Close())
}
