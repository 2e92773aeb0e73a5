package node

import (
	"errors"
	"fmt"
	"reflect"
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
// when Raft was stopped; ErrRaftShutdown is then the answer. Of an answer and the end, if both are there, a future takes either; what the machine has
// answered counts.
func (i *instance) outcome(future raft.Future) error {
	if end := endOf(future); end.IsValid() && end.IsNil() {
		end.Set(reflect.ValueOf(i.ended))
	}
	err := future.Error()
	if entry, ok := future.(raft.ApplyFuture); ok && errors.Is(err, raft.ErrRaftShutdown) {
		select {
		case <-i.ended:
			if entry.Response() != nil {
				return nil
			}
		default: // Raft itself has answered, before the machine
		}
	}
	return err
}

// endOf returns the channel whose closing ends the wait for a future. Raft sets it in a few of its futures only; they are of types
// that it does not export, the field it does. What Raft answers at once has none.
func endOf(future raft.Future) reflect.Value {
	v := reflect.ValueOf(future)
	if v.Kind() != reflect.Pointer {
		return reflect.Value{}
	}
	return v.Elem().FieldByName("ShutdownCh")
}

// boundFuture is the future of an entry whose wait ends with its instance.
type boundFuture struct {
	raft.ApplyFuture
	instance *instance
}

// Error implements raft.Future.
func (f boundFuture) Error() error { return f.instance.outcome(f.ApplyFuture) }
