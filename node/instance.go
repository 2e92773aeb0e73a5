package node

import (
	"errors"
	"fmt"
	"sync"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/hashicorp/raft"
)

// instance is Raft and its stores from one start of a group to its stop. A restart makes another.
type instance struct {
	*raft.Raft
	stores  *storage.Stores
	replica *replica // whose entries Raft has applied
	// transport knows how far the followers are while this node leads.
	transport *raftTransport
	ended     chan struct{} // closed when all goroutines of Raft have ended

	once sync.Once
	err  error // of shutDown
}

// shutDown stops Raft and closes the stores. Who calls it again, or meanwhile, waits for the first and gets the same error.
func (i *instance) shutDown() error {
	i.once.Do(func() {
		i.replica.stopped.Store(true)
		i.transport.leave() // Raft waits for what tries to reach its followers
		// Raft itself answers a second caller before it has ended.
		if err := i.Shutdown().Error(); err != nil {
			i.err = fmt.Errorf("stopping raft: %w", err)
		}
		close(i.ended)
		if err := i.stores.Close(); err != nil {
			i.err = errors.Join(i.err, fmt.Errorf("closing the files: %w", err))
		}
	})
	return i.err
}

// outcome waits for the answer to a future of the instance. Raft never answers what its machine's goroutine had not come to
// when Raft was stopped; ErrRaftShutdown is then the answer, and one goroutine stays behind.
func (i *instance) outcome(future raft.Future) error {
	answered := make(chan error, 1)
	go func() { answered <- future.Error() }()
	select {
	case err := <-answered:
		return err
	case <-i.ended:
	}
	select {
	case err := <-answered:
		return err
	default:
		return raft.ErrRaftShutdown
	}
}

// boundFuture is the future of an entry whose wait ends with its instance.
type boundFuture struct {
	raft.ApplyFuture
	instance *instance
}

// Error implements raft.Future.
func (f boundFuture) Error() error { return f.instance.outcome(f.ApplyFuture) }
