// Package journal records every entry that a node applied, and reads the records back. It is for
// tests that compare the answers to clients with what was committed. A node has a journal only in a
// build for tests that gives it one.
package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// A journal is a line that names the format and then records, each
//
//	length(4) │ CRC32C(4) │ shard uvarint │ opening uvarint │ term uvarint │ index uvarint │
//	digest(8) │ applied at(8) │ entry
//
// in little endian; length and checksum are those of what follows them.
const (
	magic      = "belfry journal 2\n"
	frameBytes = 8
	// recordBytesMax is more than the largest record, which has an entry of the largest size that a
	// node can be set to.
	recordBytesMax = 32 << 20
)

// Entry is an applied entry as a journal has it.
type Entry struct {
	node.AppliedEntry
	// At is when it was applied, by the true clock.
	At fsm.Time
}

// Writer appends to one journal. Its methods may be called from any goroutine.
type Writer struct {
	mu     sync.Mutex
	file   *os.File
	buffer []byte
	now    func() fsm.Time
}

// Create makes a journal, which must not exist.
func Create(path string) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making a journal: %w", err)
	}
	if _, err := file.WriteString(magic); err != nil {
		return nil, errors.Join(fmt.Errorf("making a journal: %w", err), file.Close())
	}
	return &Writer{file: file, now: func() fsm.Time { return fsm.Time(time.Now().UnixNano()) }}, nil
}

// Append writes one entry. When it returns, the operating system has the entry, so it outlives a
// process that is killed. It is not synced.
func (w *Writer) Append(e node.AppliedEntry) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := append(w.buffer[:0], make([]byte, frameBytes)...)
	b = binary.AppendUvarint(b, uint64(e.Shard))
	b = binary.AppendUvarint(b, uint64(e.Opening))
	b = binary.AppendUvarint(b, e.Term)
	b = binary.AppendUvarint(b, e.Index)
	b = binary.LittleEndian.AppendUint64(b, e.Digest)
	b = binary.LittleEndian.AppendUint64(b, uint64(w.now()))
	b = append(b, e.Entry...)
	binary.LittleEndian.PutUint32(b, uint32(len(b)-frameBytes))
	binary.LittleEndian.PutUint32(b[4:], checksum(b[frameBytes:]))
	w.buffer = b
	if _, err := w.file.Write(b); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	return nil
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// ErrDamaged says that a journal has bytes that no Writer wrote.
var ErrDamaged = errors.New("the journal is damaged")

// Read passes each entry of a journal to take, in the order in which they were applied; take may
// keep the entry. A process that was killed may leave an incomplete record at the end. Read ignores
// it.
func Read(r io.Reader, take func(Entry) error) error {
	in := bufio.NewReaderSize(r, 1<<20)
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(in, head); err != nil || string(head) != magic {
		return fmt.Errorf("%w: it does not begin as one", ErrDamaged)
	}
	frame := make([]byte, frameBytes)
	for {
		if _, err := io.ReadFull(in, frame); err != nil {
			return untorn(err)
		}
		length := binary.LittleEndian.Uint32(frame)
		if length > recordBytesMax {
			return fmt.Errorf("%w: a record of %d bytes", ErrDamaged, length)
		}
		record := make([]byte, length)
		if _, err := io.ReadFull(in, record); err != nil {
			return untorn(err)
		}
		if checksum(record) != binary.LittleEndian.Uint32(frame[4:]) {
			return fmt.Errorf("%w: a record has another checksum", ErrDamaged)
		}
		e, err := parse(record)
		if err != nil {
			return err
		}
		if err := take(e); err != nil {
			return err
		}
	}
}

// untorn returns nil for a file that ends in the middle of a record.
func untorn(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return fmt.Errorf("reading a journal: %w", err)
}

func parse(b []byte) (Entry, error) {
	var numbers [4]uint64
	for i := range numbers {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return Entry{}, fmt.Errorf("%w: a record ends too early", ErrDamaged)
		}
		numbers[i], b = v, b[n:]
	}
	if len(b) < 16 {
		return Entry{}, fmt.Errorf("%w: a record ends too early", ErrDamaged)
	}
	return Entry{
		AppliedEntry: node.AppliedEntry{
			Shard: uint32(numbers[0]), Opening: uint32(numbers[1]), Term: numbers[2], Index: numbers[3],
			Digest: binary.LittleEndian.Uint64(b), Entry: b[16:],
		},
		At: fsm.Time(binary.LittleEndian.Uint64(b[8:])),
	}, nil
}
