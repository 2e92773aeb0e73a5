package pair

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A way is a direction, "in" or "out", whose scripts come one after the other. Copies of it go on
// counting together.
type way struct {
	name string
	last *uint64
}

func newWay(name string) way { return way{name, new(uint64)} }

// order returns what the guard takes for the next script. A script that arrives after it with an
// earlier number was held back by the network: it was sent again since, and its answer has no
// reader.
func (w way) order(fence uint64) string {
	*w.last++
	return fmt.Sprint(fence, " ", w.name, " ", *w.last)
}

// Script runs a script that begins with [Guard], after it has left Redis alone for as long as the
// share requires. The script's KEYS are the state and then keys; its ARGV are the guard's three and
// then args. It returns the duration of the script, including the network. If Options asks for
// replicas, it fails unless that many have the effects of the script. The script may have run
// although Script returns an error; run it again.
func (l *Link) Script(ctx context.Context, s *redis.Script, keys []string, args ...any) (*redis.Cmd, time.Duration,
	error) {
	return l.runScript(ctx, l.replicas, s, keys, args)
}

// ScriptUnreplicated is [Link.Script] without a wait for replicas: for what a failover may take
// back.
func (l *Link) ScriptUnreplicated(ctx context.Context, s *redis.Script, keys []string, args ...any) error {
	_, _, err := l.runScript(ctx, 0, s, keys, args)
	return err
}

func (l *Link) runScript(ctx context.Context, replicas int, s *redis.Script, keys []string,
	args []any) (*redis.Cmd, time.Duration, error) {
	if err := l.AwaitRest(ctx); err != nil {
		return nil, 0, err
	}
	keys = append([]string{l.StateKey}, keys...)
	reply, took := l.on(ctx, replicas, s, keys, append([]any{l.cluster, l.Queue, l.way.order(l.fence)}, args...)...)
	if err := reply.Err(); err != nil {
		return nil, took, err
	}
	l.slowest = max(l.slowest, took)
	l.restEnd = time.Now().Add(time.Duration(float64(took) * (1/l.share - 1)))
	return reply, took, nil
}

// RefuseEarlier has Redis refuse the scripts of processes that had the hold before, and those of
// this process that are still on their way.
func (l *Link) RefuseEarlier(ctx context.Context) error {
	_, _, err := l.Script(ctx, fenceScript, nil)
	return err
}

// RemoveKeys ends what Redis notes about the pair and removes the key disposable. It fails if one
// of the keys that must be empty has something.
func (l *Link) RemoveKeys(ctx context.Context, disposable string, empty ...string) error {
	_, _, err := l.Script(ctx, endScript, append([]string{disposable}, empty...))
	return err
}
