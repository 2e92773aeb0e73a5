package disk

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
)

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// SumBytes continues a CRC32C sum with more bytes; 0 begins one.
func SumBytes(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli(), b) }

// EncodeRecord returns the bytes of a checked record. The magic names its type in 8 bytes.
func EncodeRecord(magic string, payload []byte) []byte {
	b := make([]byte, 0, recordMinBytes+len(payload))
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, recordVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, payload...)
	return binary.LittleEndian.AppendUint32(b, SumBytes(0, b))
}

// DecodeRecord returns the payload of a checked record of a type, or an error that says what is
// wrong with it.
func DecodeRecord(magic string, b []byte) ([]byte, error) {
	if len(b) < recordMinBytes {
		return nil, fmt.Errorf("%d bytes, fewer than the %d of an empty record", len(b), recordMinBytes)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := SumBytes(0, body); got != sum {
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

// ReadRecord reads a file that is one checked record. It returns fs.ErrNotExist (wrapped) for an
// absent file and *CorruptError for a damaged one.
func ReadRecord(fsys FS, name, magic string) ([]byte, error) {
	raw, err := ReadFile(fsys, name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		return nil, &CorruptError{File: name, Detail: "cannot be read", Err: err}
	}
	payload, err := DecodeRecord(magic, raw)
	if err != nil {
		return nil, &CorruptError{File: name, Detail: err.Error()}
	}
	return payload, nil
}

// WriteRecord replaces a file by a checked record, as ReplaceFile does.
func WriteRecord(fsys FS, name, magic string, payload []byte) error {
	return ReplaceFile(fsys, name, EncodeRecord(magic, payload))
}
