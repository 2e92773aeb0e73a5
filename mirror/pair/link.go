package pair

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
)

// shareDefault is the part of Redis' time that scripts take if nothing else is said.
const shareDefault = 0.25

// Options say which queues a [Link] connects, and how. Redis, Belfry, RedisQueue, StateKey and
// TrialKey must be set; what else is zero has its default.
type Options struct {
	// Redis and Belfry are the two sides.
	Redis  redis.UniversalClient
	Belfry *client.Client
	// RedisQueue names the queue in Redis, Queue that of Belfry. Default: RedisQueue.
	RedisQueue, Queue string
	// StateKey is the hash in Redis that names the owner of the mirror. TrialKey is a key that is
	// written and removed to try a user's rights.
	StateKey, TrialKey string
	// Share is the part of Redis' time that scripts may take: above 0, up to 1. Default, also for what
	// is out of range: 0.25.
	Share float64
	// Hold is for how long no other process may do the work after this one was killed: HoldMin to
	// HoldMax. Default, also for what is out of range: HoldDefault.
	Hold time.Duration
	// Replicas is how many replicas of Redis must have what a script did before it counts as done.
	Replicas int
	// Notice is told what is waited for. May be nil; it must not block.
	Notice func(error)
}

// A Link is one process's way to a pair of queues: one in Redis, and the queue of Belfry that it
// belongs to. Nothing changes its exported fields after [New]. One goroutine at a time may use a
// Link; several need an [Link.Outward] of their own.
type Link struct {
	Redis      redis.UniversalClient
	Belfry     *client.Client
	RedisQueue string
	Queue      string
	Hold       time.Duration // how long the hold outlives a process that is killed
	Notice     func(error)   // never nil

	StateKey, TrialKey string
	control            string // the queue of Belfry that has the notes about the pair
	share              float64
	replicas           int   // how many of them must have what a script did
	held               error // what is told while another process has the hold

	cluster string // of Belfry; set by identify
	fence   uint64
	way     way
	epoch   int
	slowest time.Duration
	restEnd time.Time // until when Redis is left alone
}

// New returns a link that has looked at neither side and does not have the hold.
func New(o Options) Link {
	if o.Queue == "" {
		o.Queue = o.RedisQueue
	}
	if o.Share <= 0 || o.Share > 1 {
		o.Share = shareDefault
	}
	if o.Hold < HoldMin || o.Hold > HoldMax {
		o.Hold = HoldDefault
	}
	if o.Notice == nil {
		o.Notice = func(error) {}
	}
	return Link{
		Redis: o.Redis, Belfry: o.Belfry, RedisQueue: o.RedisQueue, Queue: o.Queue, Hold: o.Hold, Notice: o.Notice,
		StateKey: o.StateKey, TrialKey: o.TrialKey, control: controlQueue(o.RedisQueue, o.Queue),
		share: o.Share, replicas: max(0, o.Replicas), held: ErrHeld, way: newWay("in"),
	}
}

// Outward returns a link for scripts that go the other way, to be used beside l: a bridge has one
// for each direction. Each has its own order of scripts and its own rest.
func (l *Link) Outward() Link {
	out := *l
	out.way = newWay("out")
	return out
}

// Cluster returns the id of Belfry's cluster; empty before [Link.Identify].
func (l *Link) Cluster() string { return l.cluster }

// Epoch returns the epoch that the pair was in when this process got the hold; 0 before.
func (l *Link) Epoch() int { return l.epoch }

// Slowest returns the longest that one script took, with its way there and back.
func (l *Link) Slowest() time.Duration { return l.slowest }

// AwaitRest waits until Redis was left alone for as long as the share asks. [Link.Script] does that
// itself.
func (l *Link) AwaitRest(ctx context.Context) error { return Sleep(ctx, time.Until(l.restEnd)) }

// controlQueue is the queue in Belfry that holds what the mirror remembers about one pair of
// queues.
func controlQueue(redisQueue, queue string) string {
	sum := sha256.Sum256([]byte(redisQueue + "\x00" + queue))
	return "belfry.mirror/" + hex.EncodeToString(sum[:8])
}

// open notes what scripts and ids need to know.
func (l *Link) open(ctx context.Context, fence uint64) (err error) {
	l.fence = fence
	l.epoch, err = l.CurrentEpoch(ctx)
	return err
}

// WithHold does work while this process, and no other, may change what belongs to the pair. It
// waits for the hold, and tells Notice [ErrHeld] if that takes a while. The context of work ends
// when the hold is lost; then [ErrHoldLost] is among the errors. Call [Link.Identify] first.
func (l *Link) WithHold(ctx context.Context, work func(ctx context.Context) error) error {
	return underHold(ctx, l.Belfry, l.control, l.Hold, func() { l.Notice(l.held) }, func(ctx context.Context,
		fence uint64) error {
		if err := l.open(ctx, fence); err != nil {
			return err
		}
		return work(ctx)
	})
}
