package pair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// replicasWait is how long replicas may take to have what a script did, until that is told and
// tried again.
const replicasWait = time.Second

// errReplicas says that what was done is not yet where it is safe.
var errReplicas = errors.New("too few replicas of Redis have what was written")

// on runs a script, and waits until as many replicas have what it did as are asked for. What has
// not come so far counts as failed: it may have been done, as after a lost answer. It returns how
// long the script itself took.
func (l *Link) on(ctx context.Context, replicas int, s *redis.Script, keys []string, args ...any) (*redis.Cmd,
	time.Duration) {
	began := time.Now()
	if replicas == 0 {
		return s.Run(ctx, l.Redis, keys, args...), time.Since(began)
	}
	conn, err := l.primary(ctx)
	if err != nil {
		return failedCmd(ctx, err), 0
	}
	defer conn.Close() //nolint:errcheck // it goes back to those that wait for work
	reply := s.Run(ctx, conn, keys, args...)
	took := time.Since(began)
	if reply.Err() == nil {
		if err := l.replicated(ctx, conn, replicas); err != nil {
			return failedCmd(ctx, err), took
		}
	}
	return reply, took
}

// primary is one connection to the server that has the queue: what is waited for must have been
// asked for there.
func (l *Link) primary(ctx context.Context) (*redis.Conn, error) {
	switch r := l.Redis.(type) {
	case *redis.Client:
		return r.Conn(), nil
	case *redis.ClusterClient:
		one, err := r.MasterForKey(ctx, l.StateKey)
		if err != nil {
			return nil, err
		}
		return one.Conn(), nil
	default:
		return nil, fmt.Errorf("a client of the type %T has no replicas that could be waited for", r)
	}
}

// replicated waits until enough replicas have all that a connection's server did before.
func (l *Link) replicated(ctx context.Context, conn *redis.Conn, replicas int) error {
	n, err := conn.Wait(ctx, replicas, replicasWait).Result()
	if err == nil && n < int64(replicas) {
		err = fmt.Errorf("%w: %d, want %d", errReplicas, n, replicas)
	}
	return err
}

// CheckReplicas returns an error if Redis lacks the replicas that Options asks for, or if the user
// may not wait for them.
func (l *Link) CheckReplicas(ctx context.Context) error {
	if l.replicas == 0 {
		return nil
	}
	conn, err := l.primary(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it goes back to those that wait for work
	// what a connection waits for is what was done before its last command
	if err := conn.Exists(ctx, l.StateKey).Err(); err != nil {
		return err
	}
	return l.replicated(ctx, conn, l.replicas)
}

func failedCmd(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}
