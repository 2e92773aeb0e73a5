package mirror

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// backoff waits longer after each failure.
type backoff struct{ last time.Duration }

const (
	backoffFirst = 50 * time.Millisecond
	backoffMax   = 2 * time.Second
)

// wait waits until another try makes sense.
func (p *backoff) wait(ctx context.Context) error {
	p.last = min(backoffMax, max(backoffFirst, 2*p.last))
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

// hasCode reports whether Redis answered with a code. Before its version 7 it writes what a command in a script was answered behind a text of its own.
func hasCode(err error, code string) bool {
	return redis.HasErrorPrefix(err, code) || redis.HasErrorPrefix(err, "Error running script") && strings.Contains(err.Error(), " -"+code+" ")
}

// passing reports whether an error of Redis may be gone at the next try: it is starting, failing over, moving keys, full, busy, or not reached, or has had a script before whose answer was lost, which the library sent again.
func passing(err error) bool {
	return fleeting(err) || slices.ContainsFunc([]string{"READONLY", "NOREPLICAS", "MISCONF", "OOM", "MOVED", "ASK", "BELFRYTURN"}, func(code string) bool { return hasCode(err, code) }) ||
		errors.Is(err, errReplicas)
}

// fleeting is passing for a process that begins. What a Redis answers that fails over, is full or cannot reach its replicas, one that was named by mistake answers as well, and nobody should have to wait to learn that.
func fleeting(err error) bool {
	var network net.Error
	if errors.As(err, &network) {
		return !refusesTLS(err)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, redis.ErrPoolTimeout) {
		return true
	}
	return slices.ContainsFunc([]string{"LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "UNBLOCKED", "max number of clients"}, func(code string) bool { return hasCode(err, code) })
}

// refusesTLS reports whether the server ended the handshake.
func refusesTLS(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && operation.Op == "remote error"
}

// explained is an error that says already what it means.
type explained struct{ error }

func (e *explained) Unwrap() error { return e.error }

// explain says, once, what an error of Redis means and what to do.
func explain(err error) error {
	var already *explained
	if errors.As(err, &already) {
		return err
	}
	return &explained{meaning(err)}
}

// meaning is what an error of Redis means and what to do.
func meaning(err error) error {
	var bad *BadEntry
	var dial *net.OpError
	switch text := err.Error(); {
	case errors.As(err, &bad):
		return err
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("no Sentinel knows a primary of the name that ?master_name= says: %w", err)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("no Redis answers: %w", err)
	case hasCode(err, "BELFRYOWNER"):
		cluster, queue, _ := strings.Cut(strings.TrimPrefix(text, "BELFRYOWNER "), " ")
		return otherOwner(cluster, queue)
	case hasCode(err, "BELFRYLEFT"):
		return fmt.Errorf("the key %s has something again; look once more", strings.TrimPrefix(text, "BELFRYLEFT "))
	case hasCode(err, "BELFRYFENCE"):
		fence, key, _ := strings.Cut(strings.TrimPrefix(text, "BELFRYFENCE "), " ")
		return fmt.Errorf("%w; Redis has seen the fence %s; if nobody else mirrors the queue, Belfry was restored from an older backup: HDEL %s fence", errHoldLost, fence, key)
	case hasCode(err, "NOPERM"), hasCode(err, "The user executing the script"):
		return fmt.Errorf("the Redis user lacks a right; it needs the keys of the queue and belfry_*, of Redisson's queues also redisson_* and the channels redisson_delay_queue_channel:*, and the commands "+
			"for them (~KEY &CHANNEL +@all -@admin, or those that mirror/README.md lists): %w", err)
	case hasCode(err, "NOAUTH"), hasCode(err, "WRONGPASS"):
		return fmt.Errorf("no access to Redis; name a user and its password, as in redis://user:password@host, and for Sentinels that want one sentinel_username=… and sentinel_password=…: %w", err)
	case hasCode(err, "WRONGTYPE"):
		return fmt.Errorf("a key of this queue is not what Redisson makes of it: %w", err)
	case hasCode(err, "CROSSSLOT"):
		return fmt.Errorf("the keys of this queue are in different slots of the Redis Cluster, Redisson cannot use it either: %w", err)
	default:
		return stateOf(err)
	}
}

// stateOf is meaning for the state that Redis is in, and the way to it.
func stateOf(err error) error {
	var record tls.RecordHeaderError
	var host x509.HostnameError
	var authority x509.UnknownAuthorityError
	switch kind := otherKind(err); {
	case kind != "":
		return fmt.Errorf("%s: %w", kind, err)
	case strings.Contains(err.Error(), `reply: "HTTP/`):
		return fmt.Errorf("%w but speaks HTTP; the URL needs the port of Redis: %w", ErrNoRedis, err)
	case hasCode(err, "READONLY"):
		return fmt.Errorf("this Redis is a read-only replica; name its primary: %w", err)
	case hasCode(err, "MOVED"), hasCode(err, "ASK"):
		return fmt.Errorf("the queue is on another node of this Redis Cluster; a URL that begins with redis+cluster:// finds it: %w", err)
	case hasCode(err, "OOM"):
		return fmt.Errorf("this Redis has used up its maxmemory; give it more: %w", err)
	case hasCode(err, "MISCONF"):
		return fmt.Errorf("this Redis cannot write to its disk; its log says why: %w", err)
	case hasCode(err, "NOREPLICAS"):
		return fmt.Errorf("this Redis takes nothing while it lacks replicas: %w", err)
	case errors.As(err, &authority):
		return fmt.Errorf("the certificate of Redis is signed by an authority that this machine does not know; name a file with that authority's certificate with --redis-ca: %w", err)
	case errors.As(err, &host):
		return fmt.Errorf("the certificate of Redis is for another host; connect to one that it names, or say which name it has with --redis-tls-name: %w", err)
	case errors.Is(err, errReplicas):
		return fmt.Errorf("%w; wait for fewer with --replicas, or look why they are behind: INFO replication", err)
	case errors.As(err, &record):
		return fmt.Errorf("what answers there does not speak TLS; redis:// is without it: %w", err)
	case refusesTLS(err):
		return fmt.Errorf("the TLS handshake was refused; if Redis wants a certificate, name one and its key with --redis-cert and --redis-key: %w", err)
	default:
		return err
	}
}

// otherOwner says that a queue belongs to another mirror.
func otherOwner(cluster, queue string) error {
	return fmt.Errorf("this Redis queue is mirrored to the queue %s of the Belfry cluster %s; finalize there first, after a rollback as well", queue, cluster)
}
