package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience waits longer from one failure to the next.
type patience struct{ last time.Duration }

const (
	patienceFirst = 50 * time.Millisecond
	patienceMax   = 2 * time.Second
)

// wait waits until another try makes sense.
func (p *patience) wait(ctx context.Context) error {
	p.last = min(patienceMax, max(patienceFirst, 2*p.last))
	return sleep(ctx, p.last)
}

// sleep waits, or returns why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	alarm := time.NewTimer(d)
	defer alarm.Stop()
	select {
	case <-alarm.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// passing reports whether an error of Redis may be gone at the next try: it is starting, failing over, busy, or not reached.
func passing(err error) bool {
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, redis.ErrPoolTimeout) {
		return true
	}
	for _, code := range []string{"LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN"} {
		if redis.HasErrorPrefix(err, code) {
			return true
		}
	}
	return false
}

// explain says what an error of Redis means and what to do.
func explain(err error) error {
	var bad *BadEntry
	var dial *net.OpError
	switch text := err.Error(); {
	case errors.As(err, &bad):
		return err
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("no Redis answers: %w", err)
	case redis.HasErrorPrefix(err, "BELFRYOWNER"):
		cluster, queue, _ := strings.Cut(strings.TrimPrefix(text, "BELFRYOWNER "), " ")
		return otherOwner(cluster, queue)
	case redis.HasErrorPrefix(err, "BELFRYLEFT"):
		return fmt.Errorf("the key %s has something again; look once more", strings.TrimPrefix(text, "BELFRYLEFT "))
	case redis.HasErrorPrefix(err, "BELFRYFENCE"):
		fence, key, _ := strings.Cut(strings.TrimPrefix(text, "BELFRYFENCE "), " ")
		return fmt.Errorf("%w; Redis has seen the fence %s; if nobody else mirrors the queue, Belfry was restored from an older backup: HDEL %s fence", errHoldLost, fence, key)
	case redis.HasErrorPrefix(err, "NOPERM"), redis.HasErrorPrefix(err, "ERR The user executing the script"):
		return fmt.Errorf("the Redis user lacks a right; it needs the keys redisson_*, belfry_* and the queue's, the channels redisson_delay_queue_channel:* and the commands "+
			"for them (~KEY &CHANNEL +@all -@admin, or those that mirror/README.md lists): %w", err)
	case redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "WRONGPASS"):
		return fmt.Errorf("no access to Redis; name a user and its password, as in redis://user:password@host: %w", err)
	case redis.HasErrorPrefix(err, "READONLY"):
		return fmt.Errorf("this Redis is a read-only replica; name its primary: %w", err)
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return fmt.Errorf("a key of this queue is not what Redisson makes of it: %w", err)
	case redis.HasErrorPrefix(err, "CROSSSLOT"):
		return fmt.Errorf("the keys of this queue are in different slots of the Redis Cluster, Redisson cannot use it either: %w", err)
	default:
		return err
	}
}

// otherOwner says that a queue belongs to another mirror.
func otherOwner(cluster, queue string) error {
	return fmt.Errorf("this Redis queue is mirrored to the queue %s of the Belfry cluster %s; finalize or roll back there first", queue, cluster)
}
