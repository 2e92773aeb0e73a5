package flips

import (
	"encoding/binary"
	"hash/crc32"
)

// What the judge and the planted mistakes know of the layout of files; package storage describes
// it.
const (
	snapshotHeadFixed = 16
	snapshotTail      = 41

	markSlot, markStride = 512, 4096
	markMagic            = 0x4d594c42
)

// snapshotHead returns the length of a snapshot's header.
func snapshotHead(b []byte) int64 {
	if len(b) < snapshotHeadFixed {
		return 0
	}
	return min(snapshotHeadFixed+int64(binary.LittleEndian.Uint32(b[12:]))+4, int64(len(b)))
}

// sumOf is the sum of all files: CRC32C.
func sumOf(start uint32, b []byte) uint32 {
	return crc32.Update(start, crc32.MakeTable(crc32.Castagnoli), b)
}

// logMark returns the log index that the high-water file says was durable.
func logMark(b []byte) uint64 {
	var seq, mark uint64
	for at := 0; at+markSlot <= len(b); at += markStride {
		slot := b[at : at+markSlot]
		sound := binary.LittleEndian.Uint32(slot) == markMagic &&
			sumOf(0, slot[:markSlot-4]) == binary.LittleEndian.Uint32(slot[markSlot-4:])
		if n := binary.LittleEndian.Uint64(slot[4:]); sound && n > seq {
			seq, mark = n, binary.LittleEndian.Uint64(slot[12:])
		}
	}
	return mark
}
