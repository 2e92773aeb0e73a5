package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// An entry as the wal engine stores it, little-endian:
//
//	0      4         5      6       14     22           30       34      38
//	| sum  | version | type | index | term | appendedAt | data n | ext m | data | ext |
//
// The sum is CRC32C over everything after it, started from the group's salt. Because of the salt,
// an entry from another group's file fails the check like any other damage. So do bytes that a
// client put into a body to look like an entry.
const (
	entryHeaderBytes = 38
	entryVersion     = 1

	// entryCodecID is stored in segment headers. Ids below 1<<16 belong to raft-wal itself.
	entryCodecID = 1<<16 + 1

	// extTrailerBytes is what the bolt engine appends to Extensions: version and sum.
	extTrailerBytes = 5
)

var errEntrySum = errors.New("entry checksum mismatch")

type entryCodec struct{ salt uint32 }

// ID implements wal.Codec.
func (entryCodec) ID() uint64 { return entryCodecID }

func entryHeader(l *raft.Log) [entryHeaderBytes]byte {
	var h [entryHeaderBytes]byte
	h[4] = entryVersion
	h[5] = byte(l.Type)
	binary.LittleEndian.PutUint64(h[6:], l.Index)
	binary.LittleEndian.PutUint64(h[14:], l.Term)
	if !l.AppendedAt.IsZero() {
		binary.LittleEndian.PutUint64(h[22:], uint64(l.AppendedAt.UnixNano()))
	}
	binary.LittleEndian.PutUint32(h[30:], uint32(len(l.Data)))
	binary.LittleEndian.PutUint32(h[34:], uint32(len(l.Extensions)))
	return h
}

// encodedBytes returns the encoded size of an entry.
func encodedBytes(l *raft.Log) int { return entryHeaderBytes + len(l.Data) + len(l.Extensions) }

// Encode implements wal.Codec.
func (c entryCodec) Encode(l *raft.Log, w io.Writer) error {
	h := entryHeader(l)
	sum := disk.SumBytes(c.salt, h[4:])
	sum = disk.SumBytes(sum, l.Data)
	sum = disk.SumBytes(sum, l.Extensions)
	binary.LittleEndian.PutUint32(h[:4], sum)
	if buf, ok := w.(*bytes.Buffer); ok {
		// One allocation of the right size; without it a large body is copied while the buffer doubles.
		buf.Grow(encodedBytes(l))
		buf.Write(h[:])
		buf.Write(l.Data)
		buf.Write(l.Extensions)
		return nil
	}
	for _, part := range [][]byte{bytes.Clone(h[:]), l.Data, l.Extensions} {
		if _, err := w.Write(part); err != nil {
			return fmt.Errorf("encoding entry %d: %w", l.Index, err)
		}
	}
	return nil
}

// Decode implements wal.Codec. It checks the sum before it trusts any length.
func (c entryCodec) Decode(b []byte, l *raft.Log) error {
	if err := c.check(b); err != nil {
		return err
	}
	l.Type = raft.LogType(b[5])
	l.Index = binary.LittleEndian.Uint64(b[6:])
	l.Term = binary.LittleEndian.Uint64(b[14:])
	l.AppendedAt = time.Time{}
	if ns := int64(binary.LittleEndian.Uint64(b[22:])); ns != 0 {
		l.AppendedAt = time.Unix(0, ns)
	}
	n := int(binary.LittleEndian.Uint32(b[30:]))
	// b goes back to a pool of the engine: data must be copied out.
	l.Data, l.Extensions = nil, nil
	if n > 0 {
		l.Data = bytes.Clone(b[entryHeaderBytes : entryHeaderBytes+n])
	}
	if ext := b[entryHeaderBytes+n:]; len(ext) > 0 {
		l.Extensions = bytes.Clone(ext)
	}
	return nil
}

func (c entryCodec) check(b []byte) error {
	if len(b) < entryHeaderBytes {
		return fmt.Errorf("%w: %d bytes are too few for an entry", errEntrySum, len(b))
	}
	sum := binary.LittleEndian.Uint32(b)
	if got := disk.SumBytes(c.salt, b[4:]); got != sum {
		return fmt.Errorf("%w: stored %08x, computed %08x", errEntrySum, sum, got)
	}
	n, m := binary.LittleEndian.Uint32(b[30:]), binary.LittleEndian.Uint32(b[34:])
	if b[4] != entryVersion || uint64(n)+uint64(m)+entryHeaderBytes != uint64(len(b)) {
		return fmt.Errorf("%w: version %d with lengths %d and %d in %d bytes", errEntrySum, b[4], n, m, len(b))
	}
	return nil
}

// seal returns a copy of l whose Extensions end in the sum. Data is shared, not copied, and l is
// not changed: Raft hands the same entry to the machine and to the transport.
func (c entryCodec) seal(l *raft.Log) *raft.Log {
	sealed := *l
	sealed.Extensions = make([]byte, 0, len(l.Extensions)+extTrailerBytes)
	sealed.Extensions = append(sealed.Extensions, l.Extensions...)
	sealed.Extensions = append(sealed.Extensions, entryVersion)
	sealed.Extensions = binary.LittleEndian.AppendUint32(sealed.Extensions, c.sum(l))
	return &sealed
}

// unseal checks and removes what seal added.
func (c entryCodec) unseal(l *raft.Log) error {
	n := len(l.Extensions) - extTrailerBytes
	if n < 0 || l.Extensions[n] != entryVersion {
		return fmt.Errorf("%w: no sum stored", errEntrySum)
	}
	sum := binary.LittleEndian.Uint32(l.Extensions[n+1:])
	l.Extensions = l.Extensions[:n:n]
	if n == 0 {
		l.Extensions = nil
	}
	if got := c.sum(l); got != sum {
		return fmt.Errorf("%w: stored %08x, computed %08x", errEntrySum, sum, got)
	}
	return nil
}

func (c entryCodec) sum(l *raft.Log) uint32 {
	h := entryHeader(l)
	sum := disk.SumBytes(c.salt, h[4:])
	sum = disk.SumBytes(sum, l.Data)
	return disk.SumBytes(sum, l.Extensions)
}
