package belfrytest

import (
	"context"
	"net"
	"time"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/storage"
)

// An Option configures a Server.
type Option func(*options)

// options are what the options set.
type options struct {
	clock  *stoppedClock // nil for the system's
	memory bool
	synced bool
	wrong  error // what is wrong with one of them
}

// StoppedAt has the server's time begin at now, to the millisecond, and stand still but for Advance. Any time after 1970 and before 2262 will do, also one that
// is years from this machine's; another is refused, such as the zero time.Time. A directory that is opened again must not be
// taken back in time: give what Now said last, or later.
func StoppedAt(now time.Time) Option {
	return func(o *options) { o.clock, o.wrong = newStoppedClock(now) }
}

// InMemory has the server reached through memory instead of a socket: by its Client, and by client.WithDialer(server.Dial). Only so can it run in a bubble of
// testing/synctest, where a goroutine that waits on a socket keeps time from passing.
func InMemory() Option {
	return func(o *options) { o.memory = true }
}

// Synced has every write on the disk before the caller hears of it, as with `belfry serve`. Without it a test's jobs outlive the process, but not the
// machine, and the tests of a slow disk are as fast as others.
func Synced() Option {
	return func(o *options) { o.synced = true }
}

// node returns the parts of a node's configuration that the options say.
func (o *options) node() node.Config {
	cfg := node.Config{}
	if o.clock != nil {
		cfg.Clock = o.clock
	}
	if !o.synced {
		cfg.FS, cfg.SegmentBytes = unsynced{storage.OSFS{}}, segmentBytes
	}
	return cfg
}

// listen returns what the server is reached through.
func (o *options) listen(ctx context.Context) (net.Listener, error) {
	if o.memory {
		return newPipeListener(), nil
	}
	return (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
}
