package node

import "github.com/hashicorp/raft"

// instance is Raft from one start of a group to its stop. A restart makes another.
type instance struct {
	*raft.Raft
	ended chan struct{} // closed when all of its goroutines have ended
}

// shutDown stops the instance.
func (i *instance) shutDown() error {
	err := i.Shutdown().Error()
	close(i.ended)
	return err
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
