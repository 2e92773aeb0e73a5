package redisconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// HasCode reports whether Redis answered with a code such as NOPERM, also to a command in a script:
// before version 7 Redis writes that answer behind a text of its own.
func HasCode(err error, code string) bool {
	return redis.HasErrorPrefix(err, code) || redis.HasErrorPrefix(err, "Error running script") &&
		strings.Contains(err.Error(), " -"+code+" ")
}

// Passing reports whether an error may be gone at the next try, for work that is under way: Redis
// is not reached, starting, failing over, moving keys, full, busy, or lacks replicas.
func Passing(err error) bool {
	return Fleeting(err) || slices.ContainsFunc([]string{"READONLY", "NOREPLICAS", "MISCONF", "OOM", "MOVED", "ASK"},
		func(code string) bool { return HasCode(err, code) })
}

// Fleeting is [Passing] for work that begins. A Redis that was named by mistake may be a replica,
// full or without replicas as well, and its user should learn that at once.
func Fleeting(err error) bool {
	var network net.Error
	if errors.As(err, &network) {
		return !refusesTLS(err)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, redis.ErrPoolTimeout) {
		return true
	}
	return slices.ContainsFunc([]string{"LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "UNBLOCKED",
		"max number of clients"}, func(code string) bool { return HasCode(err, code) })
}

// refusesTLS reports whether the server ended the handshake.
func refusesTLS(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && operation.Op == "remote error"
}

// explained is an error that says already what it means.
type explained struct{ error }

func (e *explained) Unwrap() error { return e.error }

// Explained marks an error that already says what it means, so that [Explain] adds nothing.
func Explained(err error) error { return &explained{err} }

// IsExplained reports whether [Explain] or [Explained] has wrapped an error.
func IsExplained(err error) bool {
	var already *explained
	return errors.As(err, &already)
}

// Explain says what an error of Redis means and what to do about it. It wraps the error, and
// returns one that it, or [Explained], has wrapped before as it is.
func Explain(err error) error {
	if IsExplained(err) {
		return err
	}
	return Explained(meaning(err))
}

// meaning is what an error of Redis means and what to do.
func meaning(err error) error {
	var dial *net.OpError
	switch {
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("no Sentinel knows a primary of the name that ?master_name= says: %w", err)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("no Redis answers: %w", err)
	case HasCode(err, "NOPERM"), HasCode(err, "The user executing the script"):
		return fmt.Errorf("the Redis user lacks a right; it needs the keys of the queue and belfry_*, of Redisson's "+
			"queues also redisson_* and the channels redisson_delay_queue_channel:*, and the commands "+
			"for them (~KEY &CHANNEL +@all -@admin, or those that mirror/README.md lists): %w", err)
	case HasCode(err, "NOAUTH"), HasCode(err, "WRONGPASS"):
		return fmt.Errorf("no access to Redis; name a user and its password, as in redis://user:password@host, and for "+
			"Sentinels that want one sentinel_username=… and sentinel_password=…: %w", err)
	case HasCode(err, "WRONGTYPE"):
		return fmt.Errorf("a key of this queue is not what Redisson makes of it: %w", err)
	case HasCode(err, "CROSSSLOT"):
		return fmt.Errorf("the keys of this queue are in different slots of the Redis Cluster, Redisson cannot use it "+
			"either: %w", err)
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
	case HasCode(err, "READONLY"):
		return fmt.Errorf("this Redis is a read-only replica; name its primary: %w", err)
	case HasCode(err, "MOVED"), HasCode(err, "ASK"):
		return fmt.Errorf("the queue is on another node of this Redis Cluster; a URL that begins with redis+cluster:// "+
			"finds it: %w", err)
	case HasCode(err, "OOM"):
		return fmt.Errorf("this Redis has used up its maxmemory; give it more: %w", err)
	case HasCode(err, "MISCONF"):
		return fmt.Errorf("this Redis cannot write to its disk; its log says why: %w", err)
	case HasCode(err, "NOREPLICAS"):
		return fmt.Errorf("this Redis takes nothing while it lacks replicas: %w", err)
	case errors.As(err, &authority):
		return fmt.Errorf("the certificate of Redis is signed by an authority that this machine does not know; name a "+
			"file with that authority's certificate with --redis-ca: %w", err)
	case errors.As(err, &host):
		return fmt.Errorf("the certificate of Redis is for another host; connect to one that it names, or say which name "+
			"it has with --redis-tls-name: %w", err)
	case errors.As(err, &record):
		return fmt.Errorf("what answers there does not speak TLS; redis:// is without it: %w", err)
	case refusesTLS(err):
		return fmt.Errorf("the TLS handshake was refused; if Redis wants a certificate, name one and its key with "+
			"--redis-cert and --redis-key: %w", err)
	default:
		return err
	}
}
