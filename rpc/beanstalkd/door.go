// Package beanstalkd answers programs that speak beanstalkd's protocol. See DESIGN.md beside this
// file for what its words mean in Belfry.
package beanstalkd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/access/connlimit"
	"github.com/belfrydb/belfry/rpc/auth"
	"github.com/belfrydb/belfry/rpc/beanstalkd/protocol"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/drain"
	"github.com/belfrydb/belfry/rpc/queue"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// Config configures a Door. All fields but ConnectionsMax are required.
type Config struct {
	// Queues carries out what connections ask for, and Router finds shards.
	Queues *queue.Service
	Router shardcall.Router
	// CreateQueue makes a queue, and UpdateQueue changes its settings, for pause-tube.
	CreateQueue func(context.Context, *belfryv1.CreateQueueRequest) error
	UpdateQueue func(context.Context, *belfryv1.UpdateQueueRequest) error
	// Identify returns the context of a connection's calls, with the caller in it, or refuses the
	// connection.
	Identify func(net.Conn) (context.Context, error)
	// Succeeded measures the calls of a procedure that succeed, in seconds. Failed measures a call that
	// does not, and audits it if it was refused.
	Succeeded func(procedure string) prometheus.Observer
	Failed    func(ctx context.Context, call *auth.Call, err error, took time.Duration)
	// Drain says that the server stops.
	Drain *drain.Signal
	// Logger receives the failures of the server.
	Logger *slog.Logger
	// JobBytesMax bounds the body of a job; beanstalkd's default is 65,535 bytes.
	JobBytesMax int
	// ConnectionsMax bounds the connections; 0 is no bound. At the bound, a new connection takes the
	// place of one that is idle.
	ConnectionsMax int
	// DelayMax and TTRMax are what longer delays and leases are shortened to.
	DelayMax, TTRMax time.Duration
	// SendWait is how long a body may take to arrive after its command, and an answer to be taken.
	SendWait time.Duration
	// Version is the version of Belfry, for statistics.
	Version string
}

// Door serves the protocol on listeners. Its methods may be called from any goroutine.
type Door struct {
	cfg     Config
	batches *batches
	tubes   tubeRefs
	counts  counts
	// succeeded measures the commands that succeed.
	succeeded [protocol.Ops]prometheus.Observer
	limiter   *connlimit.Limiter
	began     time.Time
	// requests begins the request ids of this door.
	requests string

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	serving   sync.WaitGroup // the goroutines of connections
}

// counts are counters since the start.
type counts struct {
	connections, requests, lapses atomic.Uint64
	commands                      [protocol.Ops]atomic.Uint64
}

// New returns a door that does not listen yet.
func New(cfg Config) *Door {
	d := &Door{
		cfg: cfg, began: time.Now(), requests: rand.Text() + "-",
		listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{},
	}
	d.batches = newBatches(d)
	for op := range d.succeeded {
		d.succeeded[op] = cfg.Succeeded(procedureOf(protocol.Op(op))) //nolint:gosec // a command
	}
	if cfg.ConnectionsMax > 0 {
		d.limiter = connlimit.New(cfg.ConnectionsMax)
	}
	return d
}

// errClosed is returned by Serve after Shutdown.
var errClosed = errors.New("beanstalkd: the door is closed")

// Serve accepts connections until Shutdown or an error of the listener.
func (d *Door) Serve(l net.Listener) error {
	if !d.add(l) {
		return errors.Join(errClosed, l.Close())
	}
	for {
		accepted, err := l.Accept()
		if err != nil {
			if d.isClosed() {
				return nil
			}
			return fmt.Errorf("accepting connections of beanstalkd clients: %w", err)
		}
		d.accept(accepted)
	}
}

func (d *Door) add(l net.Listener) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.listeners[l] = struct{}{}
	}
	return !d.closed
}

func (d *Door) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// accept starts to serve a connection.
func (d *Door) accept(accepted net.Conn) {
	c := &conn{
		door: d, net: accepted, used: defaultTube, queue: defaultTube, watched: []string{defaultTube},
		queues: []string{defaultTube},
		held:   map[uint64]*heldJob{},
	}
	if d.limiter != nil {
		if c.slot, _ = d.limiter.Acquire(accepted); c.slot == nil {
			_ = accepted.Close() // all others are busy
			return
		}
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		c.close()
		return
	}
	d.conns[c] = struct{}{}
	d.serving.Add(1)
	d.mu.Unlock()
	d.counts.connections.Add(1)
	go func() {
		defer d.serving.Done()
		defer d.remove(c)
		ctx, err := d.cfg.Identify(accepted)
		if err != nil {
			d.cfg.Logger.Warn("a connection of a beanstalkd client is refused", slog.Any("error", err),
				slog.String("address", accepted.RemoteAddr().String()))
			return
		}
		c.serve(ctx)
	}()
}

// remove closes and forgets a connection.
func (d *Door) remove(c *conn) {
	c.close()
	d.mu.Lock()
	delete(d.conns, c)
	d.mu.Unlock()
}

// connectionKinds counts connections.
type connectionKinds struct{ all, producers, workers, waiting uint64 }

// kinds counts the connections.
func (d *Door) kinds() (k connectionKinds) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k.all = uint64(len(d.conns))
	for c := range d.conns {
		if c.producer.Load() {
			k.producers++
		}
		if c.worker.Load() {
			k.workers++
		}
		if c.isWaiting() {
			k.waiting++
		}
	}
	return k
}

// Shutdown stops listening, ends waiting reserves, and closes each connection once its command is
// answered. The jobs of the connections are released. It returns when all that is done, or when ctx
// ends. It may be called once.
func (d *Door) Shutdown(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	var problems []error
	for l := range d.listeners {
		problems = append(problems, l.Close())
	}
	for c := range d.conns {
		c.interrupt()
	}
	d.mu.Unlock()
	done := make(chan struct{})
	go func() {
		d.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		d.mu.Lock()
		for c := range d.conns {
			_ = c.net.Close()
		}
		d.mu.Unlock()
		problems = append(problems, fmt.Errorf("closing connections of beanstalkd clients: %w", ctx.Err()))
	}
	return errors.Join(problems...)
}
