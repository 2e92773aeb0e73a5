package node

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
	// absentPause is between two looks for a follower that was not reached: entries find it that long after its return. Heartbeats to it are tried about
	// once a second, so a shorter pause would be most of what an absent node costs.
	absentPause = 500 * time.Millisecond
	// refusedPause is that for one that was there and did not take the greeting: it starts, was removed, or is another. Heartbeats ask it as often.
	refusedPause = time.Second
	// dialTimeout bounds the dialling of a server, before the greeting. Packets to one that is away may vanish; TCP then tries ever more seldom, and only a
	// new attempt finds it soon.
	dialTimeout = 2 * time.Second
)

// unreachedError is the error of a connection that did not come about.
type unreachedError struct {
	cause    error
	answered bool // somebody was there
}

// Error implements error.
func (e *unreachedError) Error() string { return e.cause.Error() }

// Unwrap returns what went wrong.
func (e *unreachedError) Unwrap() error { return e.cause }

// unreached reports whether a message was not sent because its receiver was not reached.
func unreached(err error) bool {
	_, ok := errors.AsType[*unreachedError](err)
	return ok
}

// await waits until a follower that was not reached can be. It reports false if there is nothing more to be sent to it in this term.
//
// Raft would try again too, but ever more seldom, up to every ten seconds, as failures add up, and nothing resets their number but an answer to what
// is no heartbeat. So an absence, however long, is no failure at all.
func (t *raftTransport) await(id raft.ServerID, term uint64, err error) bool {
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
		if !t.owes(id, term) || !sleep(ctx, pause) {
			return false
		}
		err = t.reach(ctx, id)
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

// owes reports whether this node leads in a term, and another server is a member: whether there is anything to be sent to it.
func (t *raftTransport) owes(id raft.ServerID, term uint64) bool {
	r := t.raft.Load()
	if r == nil || r.State() != raft.Leader || r.CurrentTerm() != term {
		return false
	}
	future := r.GetConfiguration() // from memory
	return future.Error() == nil && slices.ContainsFunc(future.Configuration().Servers, func(s raft.Server) bool { return s.ID == id })
}

// leave ends all waits for followers, now and in the future. Raft waits for them when it is stopped, and closes its transport only then.
func (t *raftTransport) leave() { t.leaving.Do(func() { close(t.left) }) }

// InstallSnapshot sends a snapshot. To a follower that is not reached it fails when the follower is there again, and Raft tries again with the
// newest: the file is closed before the wait, since the room that it takes on the disk is needed once there is a newer one.
func (t *raftTransport) InstallSnapshot(
	id raft.ServerID, target raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader,
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
