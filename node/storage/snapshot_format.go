package storage

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// A snapshot file, little-endian:
//
//	header   | "BLFYSNAP" | version u32 | meta n u32 | meta (JSON) | CRC32C of all before |
//	block    | length u32 | sum u32 | data |             one or more, the last of length 0
//	trailer  | "BLFYTAIL" | blocks u64 | data bytes u64 | has digest u8 | digest u64 | sum u32 | CRC32C of the trailer |
//
// A block's sum is CRC32C over its length and data, started from the sum before it, or from the
// header's for the first. So a block that is missing, doubled, moved or from another file breaks
// the chain. The trailer repeats the last sum.
const (
	snapshotMagic        = "BLFYSNAP"
	trailerMagic         = "BLFYTAIL"
	snapshotVersion      = 1
	snapshotHeadBytes    = 16
	snapshotMetaMax      = 1 << 20
	snapshotTrailerBytes = 8 + 8 + 8 + 1 + 8 + 4 + 4
	blockHeadBytes       = 8

	// snapshotBlockBytes is small enough to verify before use without a large buffer, and large
	// enough that the 8 bytes of its head hardly count.
	snapshotBlockBytes = 256 << 10

	// snapshotSyncBytes are written between syncs.
	snapshotSyncBytes = 16 << 20
)

// snapshotMeta is raft.SnapshotMeta without what the trailer or the file's name tells.
type snapshotMeta struct {
	Version            raft.SnapshotVersion `json:"version"`
	ID                 string               `json:"id"`
	Index              uint64               `json:"index"`
	Term               uint64               `json:"term"`
	Configuration      raft.Configuration   `json:"configuration"`
	ConfigurationIndex uint64               `json:"configurationIndex"`
}

type snapshotTrailer struct {
	blocks    uint64
	bytes     uint64
	digest    uint64
	hasDigest bool
	sum       uint32
}

func encodeSnapshotHeader(m snapshotMeta) ([]byte, uint32, error) {
	payload, err := json.Marshal(m)
	if err != nil {
		return nil, 0, fmt.Errorf("encoding snapshot meta: %w", err)
	}
	b := []byte(snapshotMagic)
	b = binary.LittleEndian.AppendUint32(b, snapshotVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, payload...)
	sum := disk.SumBytes(0, b)
	return binary.LittleEndian.AppendUint32(b, sum), sum, nil
}

// readSnapshotHeader returns the meta, the header's length and its sum. Its errors say what is
// wrong, not where.
func readSnapshotHeader(r io.ReaderAt) (m snapshotMeta, length int64, sum uint32, err error) {
	head := make([]byte, snapshotHeadBytes)
	if err := readFull(r, head, 0); err != nil {
		return m, 0, 0, fmt.Errorf("reading the header: %w", err)
	}
	if string(head[:8]) != snapshotMagic {
		return m, 0, 0, fmt.Errorf("file type %q, expected %q", head[:8], snapshotMagic)
	}
	n := binary.LittleEndian.Uint32(head[12:])
	if n > snapshotMetaMax {
		return m, 0, 0, fmt.Errorf("meta of %d bytes", n)
	}
	b := make([]byte, snapshotHeadBytes+int(n)+4)
	if err := readFull(r, b, 0); err != nil {
		return m, 0, 0, fmt.Errorf("reading the header: %w", err)
	}
	body := b[:len(b)-4]
	sum = binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := disk.SumBytes(0, body); got != sum {
		return m, 0, 0, fmt.Errorf("header checksum %08x, computed %08x", sum, got)
	}
	if v := binary.LittleEndian.Uint32(head[8:]); v != snapshotVersion {
		return m, 0, 0, fmt.Errorf("format version %d, this program reads %d", v, snapshotVersion)
	}
	if err := json.Unmarshal(body[snapshotHeadBytes:], &m); err != nil {
		return m, 0, 0, fmt.Errorf("meta: %w", err)
	}
	return m, int64(len(b)), sum, nil
}

func encodeBlock(dst, data []byte, sum uint32) ([]byte, uint32) {
	dst = binary.LittleEndian.AppendUint32(dst[:0], uint32(len(data)))
	sum = disk.SumBytes(disk.SumBytes(sum, dst), data)
	dst = binary.LittleEndian.AppendUint32(dst, sum)
	return append(dst, data...), sum
}

func encodeTrailer(t snapshotTrailer) []byte {
	b := []byte(trailerMagic)
	b = binary.LittleEndian.AppendUint64(b, t.blocks)
	b = binary.LittleEndian.AppendUint64(b, t.bytes)
	if t.hasDigest {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.LittleEndian.AppendUint64(b, t.digest)
	b = binary.LittleEndian.AppendUint32(b, t.sum)
	return binary.LittleEndian.AppendUint32(b, disk.SumBytes(0, b))
}

func decodeTrailer(b []byte) (snapshotTrailer, error) {
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := disk.SumBytes(0, body); got != sum || string(b[:8]) != trailerMagic {
		return snapshotTrailer{}, fmt.Errorf("trailer %q with checksum %08x, computed %08x", b[:8], sum, got)
	}
	return snapshotTrailer{
		blocks: binary.LittleEndian.Uint64(b[8:]), bytes: binary.LittleEndian.Uint64(b[16:]),
		hasDigest: b[24] == 1, digest: binary.LittleEndian.Uint64(b[25:]), sum: binary.LittleEndian.Uint32(b[33:]),
	}, nil
}

func readFull(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
