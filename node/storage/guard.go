package storage

import (
	"errors"
	"fmt"
	"sync"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// guard stands in front of every durable write of a group. After the first failed write it refuses
// all others: the kernel may have dropped the dirty pages whose sync failed, so a later success
// would not prove that they are on the disk.
type guard struct {
	watchdog *disk.Watchdog
	onFatal  func(error)

	mu    sync.Mutex
	cause error
}

// do runs one durable write under the watchdog.
func (g *guard) do(op string, write func() error) error {
	if err := g.failed(); err != nil {
		return err
	}
	done := g.watchdog.Begin(op)
	err := write()
	done()
	if err != nil {
		err = fmt.Errorf("storage: %s: %w", op, err)
		g.fail(err)
	}
	return err
}

// watch runs a write that may fail without harm, such as a snapshot, under the watchdog.
func (g *guard) watch(op string, write func() error) error {
	if err := g.failed(); err != nil {
		return err
	}
	defer g.watchdog.Begin(op)()
	return write()
}

// failed returns an error wrapping ErrFailed, ErrClosed and the cause after fail or close.
func (g *guard) failed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause == nil || errors.Is(g.cause, ErrClosed) {
		return g.cause
	}
	return fmt.Errorf("%w: %w", ErrFailed, g.cause)
}

// fail records the first failure and tells the node, once.
func (g *guard) fail(err error) {
	g.mu.Lock()
	first := g.cause == nil
	if first {
		g.cause = err
	}
	g.mu.Unlock()
	if first && g.onFatal != nil {
		g.onFatal(err)
	}
}

func (g *guard) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause == nil {
		g.cause = ErrClosed
	}
}
