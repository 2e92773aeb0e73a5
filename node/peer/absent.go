package peer

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// absentPause is the time between two checks of a follower that was not reached: entries find
	// the follower that long after its return. Heartbeats to it are tried about once a second, so a
	// shorter pause would be most of the cost of an absent node.
	absentPause = 500 * time.Millisecond
	// refusedPause is the same pause for a server that was there and did not accept the greeting:
	// it starts, was removed, or is another server. Heartbeats ask it as often.
	refusedPause = time.Second
	// dialTimeout bounds the dialling of a server, before the greeting. Packets to an absent server
	// may vanish. TCP then retries ever more seldom, and only a new attempt finds the server soon.
	dialTimeout = 2 * time.Second
)

// unreachedError is the error of a connection that could not be made.
type unreachedError struct {
	cause    error
	answered bool // a server was there
}

// Error implements error.
func (e *unreachedError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *unreachedError) Unwrap() error { return e.cause }

// unreached reports whether a message was not sent because its receiver was not reached.
func unreached(err error) bool {
	_, ok := errors.AsType[*unreachedError](err)
	return ok
}

// await waits until a follower that was not reached can be reached. It reports false if there is no
// more to send to it in this term.
//
// Raft would retry too, but ever more seldom as failures add up, up to every ten seconds. Only an
// answer to a message that is not a heartbeat resets their number. So an absence, however long, is
// not a failure here.
func (t *Transport) await(id raft.ServerID, term uint64, err error) bool {
	ctx, cancel := context.WithCancel(context.Background())
	var leaving sync.WaitGroup
	leaving.Go(func() {
		select {
		case <-t.left:
			cancel()
		case <-ctx.Done():
		}
	})
	defer leaving.Wait()
	defer cancel()
	for {
		failed, ok := errors.AsType[*unreachedError](err)
		if !ok {
			return ctx.Err() == nil
		}
		pause := absentPause
		if failed.answered {
			pause = refusedPause
		}
		if !t.hasMessagesFor(id, term) || !sleep(ctx, pause) {
			return false
		}
		err = t.Reach(ctx, id)
	}
}

// sleep waits for a duration. It returns false if ctx ended first.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// hasMessagesFor reports whether this node leads in a term and a server is a member, so that there
// are messages for it.
func (t *Transport) hasMessagesFor(id raft.ServerID, term uint64) bool {
	r := t.raft.Load()
	if r == nil || r.State() != raft.Leader || r.CurrentTerm() != term {
		return false
	}
	future := r.GetConfiguration() // from memory
	return future.Error() == nil && slices.ContainsFunc(future.Configuration().Servers, func(s raft.Server) bool {
		return s.ID == id
	})
}

// Leave ends all waits for followers, now and in the future. When Raft is stopped, it waits for
// them, and only then closes its transport.
func (t *Transport) Leave() { t.leaving.Do(func() { close(t.left) }) }

// InstallSnapshot sends a snapshot. If the follower is not reached, it waits until the follower is
// back, then fails, and Raft retries with the newest snapshot. It closes the file before the wait:
// once there is a newer snapshot, the disk needs the room of this one.
func (t *Transport) InstallSnapshot(
	id raft.ServerID, target raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse,
	data io.Reader,
) error {
	err := t.NetworkTransport.InstallSnapshot(id, target, req, resp, data)
	if !unreached(err) {
		return err
	}
	if file, ok := data.(io.Closer); ok {
		_ = file.Close() // it was only read
	}
	t.await(id, req.Term, err)
	return err
}
