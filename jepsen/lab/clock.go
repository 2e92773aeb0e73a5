package lab

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Clock is a node's clock, which can be set wrong while the node runs. The server maps its file;
// the layout is in cmd/belfry/server/instrument_jepsen.go.
type Clock struct {
	path  string
	words *[clockWords]atomic.Uint64

	mu      sync.Mutex
	version uint64
	missed  time.Duration
}

// The words of the file.
const (
	wordVersion = iota
	wordAt
	wordReading
	wordRate
	wordMissed
	clockWords
)

// newClock makes the file of a clock that is right. It stays mapped until the harness ends.
func newClock(path string) (*Clock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making a clock: %w", err)
	}
	defer file.Close() //nolint:errcheck // the mapping stays
	if err := file.Truncate(clockWords * 8); err != nil {
		return nil, fmt.Errorf("making a clock: %w", err)
	}
	raw, err := syscall.Mmap(int(file.Fd()), 0, clockWords*8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping a clock: %w", err)
	}
	return &Clock{path: path, words: (*[clockWords]atomic.Uint64)(unsafe.Pointer(&raw[0]))}, nil
}

// Set makes the clock wrong by off now and from now on faster by rate: 0.001 gains a millisecond a
// second, -1 has it stand still.
func (c *Clock) Set(off time.Duration, rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().UnixNano()
	c.change(func() {
		c.set(wordAt, uint64(now))
		c.set(wordReading, uint64(now+int64(off)))
		c.set(wordRate, uint64(int64(rate*1e9)))
	})
}

// Miss has the monotonic clock miss d, as if the machine had been suspended for that long, and no
// other clock.
func (c *Clock) Miss(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missed += d
	c.change(func() { c.set(wordMissed, uint64(c.missed)) })
}

// Publish lets a server of another user read the clock. It does not change access to its directory.
func (c *Clock) Publish() error {
	if err := os.Chmod(c.path, 0o644); err != nil {
		return fmt.Errorf("opening a clock to others: %w", err)
	}
	return nil
}

// Reset makes the wall clock right.
func (c *Clock) Reset() { c.Set(0, 0) }

// change makes a change that the server sees as a whole.
func (c *Clock) change(words func()) {
	if c.version == 0 {
		// A reader must not take the zeros of a clock without faults for faults.
		now := uint64(time.Now().UnixNano())
		c.set(wordAt, now)
		c.set(wordReading, now)
	}
	c.version++
	c.set(wordVersion, c.version) // odd: it is being changed
	words()
	c.version++
	c.set(wordVersion, c.version)
}

// set writes one number, which is little endian on every machine.
func (c *Clock) set(i int, v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	c.words[i].Store(binary.NativeEndian.Uint64(b[:]))
}
