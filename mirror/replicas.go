package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// replicasWait is how long replicas may take to have what a script did, until that is told and tried again.
const replicasWait = time.Second

// errReplicas says that what was done is not yet where it is safe.
var errReplicas = errors.New("too few replicas of Redis have what was written")

// on runs a script, and waits until as many replicas have what it did as the link asks for. What has not come so far counts as failed: it may have been done, as after a lost answer. It returns how long the script
// itself took.
func (l *link) on(ctx context.Context, s *redis.Script, keys []string, args ...any) (*redis.Cmd, time.Duration) {
	began := time.Now()
	if l.replicas == 0 {
		return s.Run(ctx, l.redis, keys, args...), time.Since(began)
	}
	conn, err := l.primary(ctx)
	if err != nil {
		return failedCmd(ctx, err), 0
	}
	defer conn.Close() //nolint:errcheck // it goes back to those that wait for work
	reply := s.Run(ctx, conn, keys, args...)
	took := time.Since(began)
	if reply.Err() == nil {
		if err := l.replicated(ctx, conn); err != nil {
			return failedCmd(ctx, err), took
		}
	}
	return reply, took
}

// primary is one connection to the server that has the queue: what is waited for must have been asked for there.
func (l *link) primary(ctx context.Context) (*redis.Conn, error) {
	switch r := l.redis.(type) {
	case *redis.Client:
		return r.Conn(), nil
	case *redis.ClusterClient:
		one, err := r.MasterForKey(ctx, l.keys.state)
		if err != nil {
			return nil, err
		}
		return one.Conn(), nil
	default:
		return nil, fmt.Errorf("a client of the type %T has no replicas that could be waited for", r)
	}
}

// replicated waits until enough replicas have all that a connection's server did before.
func (l *link) replicated(ctx context.Context, conn *redis.Conn) error {
	n, err := conn.Wait(ctx, l.replicas, replicasWait).Result()
	if err == nil && n < int64(l.replicas) {
		err = fmt.Errorf("%w: %d, want %d", errReplicas, n, l.replicas)
	}
	return err
}

// checkReplicas refuses a Redis that lacks the replicas that the link asks for, and a user who may not wait for them.
func (l *link) checkReplicas(ctx context.Context) error {
	if l.replicas == 0 {
		return nil
	}
	conn, err := l.primary(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()                                           //nolint:errcheck // it goes back to those that wait for work
	if err := conn.Exists(ctx, l.keys.state).Err(); err != nil { // what a connection waits for is what was done before its last command
		return err
	}
	return l.replicated(ctx, conn)
}

func failedCmd(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}
