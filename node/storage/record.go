package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
)

// A checked record is a whole small file:
//
//	0       8        12          16         16+n     20+n
//	| magic | version | payload n | payload  | CRC32C |
//
// The sum covers every byte before it, so each flipped or cut bit in the file is found.
const (
	recordHeaderBytes = 16
	recordMinBytes    = recordHeaderBytes + 4
	recordVersion     = 1

	manifestMagic = "BLFYMANI"
	stableMagic   = "BLFYSTBL"
	walMetaMagic  = "BLFYWALM"
)

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func sumBytes(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli(), b) }

func encodeRecord(magic string, payload []byte) []byte {
	b := make([]byte, 0, recordMinBytes+len(payload))
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, recordVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, payload...)
	return binary.LittleEndian.AppendUint32(b, sumBytes(0, b))
}

func decodeRecord(magic string, b []byte) ([]byte, error) {
	if len(b) < recordMinBytes {
		return nil, fmt.Errorf("%d bytes, fewer than the %d of an empty record", len(b), recordMinBytes)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := sumBytes(0, body); got != sum {
		return nil, fmt.Errorf("checksum %08x, computed %08x", sum, got)
	}
	if string(b[:8]) != magic {
		return nil, fmt.Errorf("file type %q, expected %q", b[:8], magic)
	}
	if v := binary.LittleEndian.Uint32(b[8:12]); v != recordVersion {
		return nil, fmt.Errorf("format version %d, this program reads %d", v, recordVersion)
	}
	if n := binary.LittleEndian.Uint32(b[12:16]); int(n) != len(body)-recordHeaderBytes {
		return nil, fmt.Errorf("payload of %d bytes, header says %d", len(body)-recordHeaderBytes, n)
	}
	return body[recordHeaderBytes:], nil
}

// readRecord returns fs.ErrNotExist (wrapped) for an absent file and *CorruptError for a damaged
// one.
func readRecord(fsys FS, name, magic string) ([]byte, error) {
	raw, err := ReadFile(fsys, name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		return nil, &CorruptError{File: name, Detail: "cannot be read", Err: err}
	}
	payload, err := decodeRecord(magic, raw)
	if err != nil {
		return nil, &CorruptError{File: name, Detail: err.Error()}
	}
	return payload, nil
}

func writeRecord(fsys FS, name, magic string, payload []byte) error {
	return ReplaceFile(fsys, name, encodeRecord(magic, payload))
}
