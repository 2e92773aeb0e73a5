package beanstalkd

import (
	"context"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/belfrydb/belfry/access/connlimit"
	"github.com/belfrydb/belfry/rpc/beanstalkd/protocol"
)

const defaultTube = protocol.DefaultTube

const (
	// answersBytesMax is how many bytes of answers are collected before they are written.
	answersBytesMax = 64 << 10
	// batchMax and batchBytesMax bound the commands of one connection that are carried out together.
	batchMax      = 512
	batchBytesMax = 1 << 20
)

// conn is a connection. One goroutine serves it; while that waits for a job, another one may read.
type conn struct {
	door *Door
	net  net.Conn
	slot *connlimit.Slot

	in input
	// out has the answers that are not written yet.
	out []byte

	used    string
	queue   string   // of the tube in use
	watched []string // in the order of their watch commands
	queues  []string // of the watched tubes; a call that is under way may have them
	held    map[uint64]*heldJob
	batch   batch
	// producer and worker say that it has put, or reserved.
	producer, worker atomic.Bool

	mu sync.Mutex
	// interrupted says that the door closes, and readStopped that reads end at once.
	interrupted, readStopped bool
	// endWait ends the wait for a job; nil while there is none.
	endWait context.CancelFunc
}

// serve carries out the commands of the connection until it ends.
func (c *conn) serve(ctx context.Context) {
	c.door.tubes.use(c.used, 1)
	c.door.tubes.watch(c.used, 1)
	defer c.leave(ctx)
	defer func() {
		if p := recover(); p != nil {
			c.door.cfg.Logger.Error("a connection of a beanstalkd client panicked", slog.Any("panic", p),
				slog.String("stack", string(debug.Stack())))
		}
	}()
	for {
		more, err := c.runBuffered(ctx)
		if flushErr := c.flush(); err != nil || flushErr != nil || !more || c.in.ended || c.isInterrupted() {
			return // the connection is gone, or ends for a reason that was counted
		}
		if c.fill() != nil {
			return
		}
	}
}

// runBuffered carries out the commands that have come whole. It reports false if the client quits.
func (c *conn) runBuffered(ctx context.Context) (more bool, err error) {
	for {
		cmd, body, found := c.in.next(c.door)
		if found == command && c.joinsBatch(ctx, &cmd) {
			if err := c.addToBatch(ctx, &cmd, body); err != nil {
				return false, err
			}
			continue
		}
		if err := c.runBatch(ctx); err != nil {
			return false, err
		}
		switch {
		case found == nothing:
			return true, nil
		case found == refusal:
			c.answer(c.in.refused)
		case cmd.Op == protocol.Quit:
			return false, nil
		default:
			if err := c.run(ctx, &cmd); err != nil {
				return false, err
			}
		}
		if len(c.out) > answersBytesMax {
			if err := c.flush(); err != nil {
				return false, err
			}
		}
	}
}

// interrupt ends the connection once its command is answered. A wait for a job ends at once.
func (c *conn) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted = true
	if c.endWait != nil {
		c.endWait()
	}
	_ = c.net.SetReadDeadline(longAgo) // a connection that is closed needs no interruption
}

// isWaiting reports whether the connection waits for a job.
func (c *conn) isWaiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endWait != nil
}

func (c *conn) isInterrupted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interrupted
}

// setWait sets what ends the wait for a job; nil after the wait. It ends the wait at once if the door
// closes.
func (c *conn) setWait(end context.CancelFunc) {
	c.mu.Lock()
	c.endWait = end
	if end != nil && c.interrupted {
		end()
	}
	c.mu.Unlock()
	c.setPinned()
}

// setPinned keeps the slot of a connection that holds jobs, or waits for one, from newcomers.
func (c *conn) setPinned() {
	switch {
	case c.slot == nil:
	case len(c.held) > 0, c.isWaiting():
		c.slot.Pin() // if the slot was taken, the connection is closed and its reader fails
	default:
		c.slot.Unpin()
	}
}

// close closes the connection.
func (c *conn) close() {
	if c.slot != nil {
		c.slot.Release()
	}
	_ = c.net.Close() // nothing is lost that the client was told
}
