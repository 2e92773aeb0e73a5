//go:build jepsen

package server

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/journal"
)

// Environment variables of a build for fault injection. An empty value does not change the node.
const (
	// journalVariable is a directory. Each start of the process writes its own journal into it.
	journalVariable = "BELFRY_JEPSEN_JOURNAL"
	// clockVariable is a file with the faults of this process's clock; see faultyClock.
	clockVariable = "BELFRY_JEPSEN_CLOCK"
	// snapshotVariable is SnapshotBytes and TrailingBytes of node.Config, in bytes. Small values cause
	// snapshots and their installation within minutes.
	snapshotVariable = "BELFRY_JEPSEN_SNAPSHOT_BYTES"
)

// instrument makes the node write a journal of the entries that it applies. It also gives the node
// a clock that the harness can set wrong while the node runs.
func instrument(cfg node.Config) (node.Config, error) {
	if dir := os.Getenv(journalVariable); dir != "" {
		if err := keepJournal(&cfg, dir); err != nil {
			return cfg, err
		}
	}
	if path := os.Getenv(clockVariable); path != "" {
		clock, err := openFaultyClock(path)
		if err != nil {
			return cfg, err
		}
		cfg.Clock = clock
	}
	if text := os.Getenv(snapshotVariable); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 {
			return cfg, &ConfigError{fmt.Sprintf("%s: have %q, want a number of bytes", snapshotVariable, text)}
		}
		cfg.SnapshotBytes, cfg.TrailingBytes = n, n
	}
	return cfg, nil
}

// keepJournal makes the node write every applied entry to a new file in dir. A failure ends the
// process: a run without the journal has no value as proof.
func keepJournal(cfg *node.Config, dir string) error {
	w, err := journal.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.journal", cfg.Name, time.Now().UnixNano())))
	if err != nil {
		return err
	}
	log := cfg.Logger
	cfg.Applied = func(e node.AppliedEntry) {
		if err := w.Append(e); err != nil {
			log.Error("the journal cannot be written", slog.Any("error", err))
			os.Exit(1)
		}
	}
	return nil
}

// faultyClock is the system's clock with faults. A mapped file of five little-endian numbers of 8
// bytes sets them; the harness may change it at any time:
//
//	version │ at │ reading │ rate │ missed
//
// The wall clock reads `reading` at the true time `at`. From then on it runs at 1 + rate/10⁹ of the
// true speed; at -10⁹ it stands still. The monotonic clock is the true one less `missed`, as if the
// machine had been suspended that long. Version 0 means that the wall clock has no faults. An odd
// version means that the harness is changing them.
type faultyClock struct {
	clock.Source
	words *[clockWords]atomic.Uint64
}

const clockWords = 5

func openFaultyClock(path string) (*faultyClock, error) {
	file, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the file of clock faults: %w", err)
	}
	defer file.Close() //nolint:errcheck // the mapping stays
	raw, err := syscall.Mmap(int(file.Fd()), 0, clockWords*8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the file of clock faults: %w", err)
	}
	return &faultyClock{Source: clock.System(), words: (*[clockWords]atomic.Uint64)(unsafe.Pointer(&raw[0]))}, nil
}

// Wall implements clock.Source.
func (c *faultyClock) Wall() fsm.Time {
	for {
		version := c.word(0)
		at, reading, rate := fsm.Time(c.word(1)), fsm.Time(c.word(2)), int64(c.word(3))
		if version%2 != 0 || c.word(0) != version {
			continue
		}
		now := c.Source.Wall()
		if version == 0 {
			return now
		}
		since := int64(now - at)
		return reading + fsm.Time(since+int64(float64(since)*float64(rate)/1e9))
	}
}

// Monotonic implements clock.Source.
func (c *faultyClock) Monotonic() time.Duration {
	return c.Source.Monotonic() - time.Duration(c.word(4))
}

// word reads one number. The file is little endian on every machine.
func (c *faultyClock) word(i int) uint64 {
	v := c.words[i].Load()
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.LittleEndian.Uint64(b[:])
}
