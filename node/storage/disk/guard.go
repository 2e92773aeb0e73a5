package disk

import (
	"errors"
	"fmt"
	"sync"
)

// Errors of a guard after its first failure, and after its end.
var (
	// ErrFailed is wrapped by the error of every write after the first failed one. The outcome of
	// the failed write is unknown, and the store takes no further writes. The process must end; the
	// next Open decides.
	ErrFailed = errors.New("storage: an earlier write failed, no further writes are taken")

	// ErrClosed is returned by stores used after Close.
	ErrClosed = errors.New("storage: closed")
)

// Guard stands in front of every durable write of a group. After the first failed write it refuses
// all others: the kernel may have dropped the dirty pages whose sync failed, so a later success
// would not prove that they are on the disk.
type Guard struct {
	Watchdog *Watchdog
	OnFatal  func(error)

	mu    sync.Mutex
	cause error
}

// Do runs one durable write under the watchdog.
func (g *Guard) Do(op string, write func() error) error {
	if err := g.Failure(); err != nil {
		return err
	}
	done := g.Watchdog.Begin(op)
	err := write()
	done()
	if err != nil {
		err = fmt.Errorf("storage: %s: %w", op, err)
		g.Fail(err)
	}
	return err
}

// Watch runs a write that may fail without harm, such as a snapshot, under the watchdog.
func (g *Guard) Watch(op string, write func() error) error {
	if err := g.Failure(); err != nil {
		return err
	}
	defer g.Watchdog.Begin(op)()
	return write()
}

// Failure returns an error wrapping ErrFailed, ErrClosed and the cause after Fail or Close.
func (g *Guard) Failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause == nil || errors.Is(g.cause, ErrClosed) {
		return g.cause
	}
	return fmt.Errorf("%w: %w", ErrFailed, g.cause)
}

// Fail records the first failure and tells the node, once.
func (g *Guard) Fail(err error) {
	g.mu.Lock()
	first := g.cause == nil
	if first {
		g.cause = err
	}
	g.mu.Unlock()
	if first && g.OnFatal != nil {
		g.OnFatal(err)
	}
}

// Close makes every later write fail with ErrClosed, unless one failed before.
func (g *Guard) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause == nil {
		g.cause = ErrClosed
	}
}
