package redissontest

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// soonMs is up to when what is due is transferred at once and not by the timer.
const soonMs = 10

// worker is what one call of Run has in hand. All but transfers and replies belongs to Run's
// goroutine.
type worker struct {
	clock      func() time.Time
	transfer   func(ctx context.Context, nowMs int64) (next string, err error)
	observe    func(next string, err error)
	retryAfter time.Duration

	timer     *time.Timer
	transfers sync.WaitGroup
	replies   chan reply
}

// reply is what one transfer answered.
type reply struct {
	next string
	err  error
}

// Run does the work of a Redisson process that has an object for the queue, until ctx ends. It
// transfers due entries after each subscription to the queue's channel, and when the timer fires.
// The last message or reply sets the timer, whatever was set before. So a reply that is overtaken
// by a message with an earlier time delays the entries that are due then. A transfer that fails, or
// that returns a time that is not a whole number, is repeated after five seconds. The timer is
// exact; Redisson's is up to 100 ms late.
func (c *Client) Run(ctx context.Context) {
	subscription := c.redis.Subscribe(ctx, c.channel)
	defer subscription.Close() //nolint:errcheck // nothing is left to be read
	w := &worker{clock: c.clock, transfer: c.Transfer, observe: c.observe, retryAfter: c.retryAfter}
	w.follow(ctx, subscription.ChannelWithSubscriptions())
}

// follow acts on what comes through the channel until ctx ends.
func (w *worker) follow(ctx context.Context, incoming <-chan any) {
	w.replies = make(chan reply)
	defer w.transfers.Wait()
	w.timer = time.NewTimer(math.MaxInt64)
	defer w.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-incoming:
			w.handle(ctx, event)
		case <-w.timer.C:
			w.beginTransfer(ctx)
		case r := <-w.replies:
			w.observe(r.next, r.err)
			w.replied(ctx, r)
		}
	}
}

// handle acts on what came through the channel.
func (w *worker) handle(ctx context.Context, event any) {
	switch event := event.(type) {
	case *redis.Subscription: // the first one, or another after a lost connection
		w.beginTransfer(ctx)
	case *redis.Message:
		if dueMs, err := strconv.ParseInt(event.Payload, 10, 64); err == nil {
			w.schedule(ctx, dueMs)
		}
	}
}

// replied acts on what a transfer answered.
func (w *worker) replied(ctx context.Context, r reply) {
	if r.next == "" && r.err == nil {
		return // messages will tell
	}
	dueMs, parseErr := strconv.ParseInt(r.next, 10, 64)
	if r.err != nil || parseErr != nil {
		dueMs = w.clock().Add(w.retryAfter).UnixMilli()
	}
	w.schedule(ctx, dueMs)
}

// schedule has a transfer done at a time, and not at the time for which one was scheduled before.
func (w *worker) schedule(ctx context.Context, dueMs int64) {
	w.timer.Stop()
	inMs := dueMs - w.clock().UnixMilli()
	if inMs <= soonMs {
		w.beginTransfer(ctx)
		return
	}
	w.timer.Reset(time.Duration(min(inMs, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond)
}

// beginTransfer starts a transfer, whose answer comes through replies.
func (w *worker) beginTransfer(ctx context.Context) {
	nowMs := w.clock().UnixMilli()
	w.transfers.Go(func() {
		next, err := w.transfer(ctx, nowMs)
		select {
		case w.replies <- reply{next, err}:
		case <-ctx.Done():
		}
	})
}
