package belfrytest

import (
	"context"
	"net"
	"time"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// An Option configures a Server.
type Option func(*options)

// options are what the options set.
type options struct {
	clock  *stoppedClock // nil for the system's
	memory bool
	synced bool
	wrong  error // the error of an invalid option
}

// StoppedAt makes the server's time begin at now, to the millisecond, and stand still except for
// Advance. now may be any time after 1970 and before 2262, also one that is years from this
// machine's. Any other time is refused, such as the zero time.Time. The time of a directory that is
// opened again must not go back: pass the last result of Now, or a later time.
func StoppedAt(now time.Time) Option {
	return func(o *options) { o.clock, o.wrong = newStoppedClock(now) }
}

// InMemory makes the server reachable through memory instead of a socket: by its Client, and by
// client.WithDialer(server.Dial). A bubble of testing/synctest needs this option, because there a
// goroutine that waits on a socket keeps time from passing.
func InMemory() Option {
	return func(o *options) { o.memory = true }
}

// Synced writes every change to the disk before the caller gets the answer, as `belfry serve` does.
// Without it a test's jobs outlive the process but not the machine, and tests on a slow disk are as
// fast as others.
func Synced() Option {
	return func(o *options) { o.synced = true }
}

// node returns the parts of a node's configuration that the options set.
func (o *options) node() node.Config {
	cfg := node.Config{}
	if o.clock != nil {
		cfg.Clock = o.clock
	}
	if !o.synced {
		cfg.FS, cfg.SegmentBytes = unsynced{disk.OSFS{}}, segmentBytes
	}
	return cfg
}

// listen returns the listener that clients of the server connect to.
func (o *options) listen(ctx context.Context) (net.Listener, error) {
	if o.memory {
		return newPipeListener(), nil
	}
	return (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
}
