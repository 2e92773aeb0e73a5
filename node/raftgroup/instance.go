package raftgroup

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/peer"
	"github.com/belfrydb/belfry/node/storage"
)

// instance is Raft and its stores from one start of a group to its stop. A restart makes a new
// instance.
type instance struct {
	*raft.Raft
	stores  *storage.Stores
	replica *Replica // the replica that applies Raft's entries
	// transport knows how far the followers are while this node leads.
	transport *peer.Transport
	ended     chan struct{} // closed when all goroutines of Raft have ended

	ends sync.Map // by type of future: the path to the field that endOf returns, nil if there is none
	once sync.Once
	err  error // of shutDown
}

// shutDown stops Raft and closes the stores. A later or concurrent call waits for the first one and
// returns the same error.
func (i *instance) shutDown() error {
	i.once.Do(func() {
		i.replica.stopped.Store(true)
		i.transport.Leave() // Raft waits for attempts to reach its followers
		// Raft itself answers a second caller before Raft has ended.
		if err := i.Shutdown().Error(); err != nil {
			i.err = fmt.Errorf("stopping raft: %w", err)
		}
		close(i.ended)
		_ = i.replica.log.Load().Drain() // a write that failed has ended the process
		if err := i.stores.Close(); err != nil {
			i.err = errors.Join(i.err, fmt.Errorf("closing the files: %w", err))
		}
	})
	return i.err
}

// outcome waits for the answer to a future of the instance. When Raft is stopped, it never answers
// the entries that its machine's goroutine has not reached; outcome then returns ErrRaftShutdown.
// If both an answer and the end are there, a future takes either one at random. An answer of the
// machine counts.
func (i *instance) outcome(future raft.Future) error {
	if end := i.endOf(future); end.IsValid() && end.IsNil() {
		end.Set(reflect.ValueOf(i.ended))
	}
	err := future.Error()
	if entry, ok := future.(raft.ApplyFuture); ok && errors.Is(err, raft.ErrRaftShutdown) {
		select {
		case <-i.ended:
			if entry.Response() != nil {
				return nil
			}
		default: // Raft has answered before the machine
		}
	}
	return err
}

// endOf returns the channel that ends the wait for a future when it is closed. Raft sets it in only
// a few of its futures. Raft exports this field, but not the types of the futures. Futures that
// Raft answers at once have no such field.
func (i *instance) endOf(future raft.Future) reflect.Value {
	v := reflect.ValueOf(future)
	if v.Kind() != reflect.Pointer {
		return reflect.Value{}
	}
	v = v.Elem()
	index, ok := i.ends.Load(v.Type()) // a lookup by name is slow
	if !ok {
		field, _ := v.Type().FieldByName("ShutdownCh")
		index, _ = i.ends.LoadOrStore(v.Type(), field.Index)
	}
	if path := index.([]int); path != nil {
		return v.FieldByIndex(path)
	}
	return reflect.Value{}
}
