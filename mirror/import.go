package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
)

// ImportOptions say what [Import] does. RedisQueue must be set; what else is zero has its default.
type ImportOptions struct {
	// RedisQueue is the name that Redisson's processes give the queue.
	RedisQueue string
	// Queue is the queue of Belfry. Default: RedisQueue.
	Queue string
	// Codec says how payloads become bodies. Default: as they are.
	Codec redisson.Codec
	// SetAside moves entries that Belfry cannot take to a key of their own, instead of refusing to
	// begin or stopping at them.
	SetAside bool
	// Ready takes the ready list along: what is due and waits for a consumer of Redisson. Those
	// consumers should have been stopped; each payload goes to one side only.
	Ready bool
	// Follow continues with entries that Redisson's processes offer, until the context ends. It
	// releases the queue for an export or a rollback. Then it waits, with [ErrTakenBack] as a notice,
	// until an import without Follow, or one with Again, decides that the jobs are imported again.
	Follow, Again bool
	// Share is the part of Redis' time that scripts may take: above 0, up to 1, default 0.25.
	Share float64
	// Hold is for how long no other process may do the work after this one was killed: 1 s to 5
	// min, default 15 s. If Belfry cannot be reached for as long, the work ends.
	Hold time.Duration
	// Notice is told what it waits for: another process that mirrors the queue, Redis or Belfry
	// being out of reach. May be nil; it must not block.
	Notice func(error)
	// Progress is called after each batch. May be nil; it must not block.
	Progress func(ImportCounts)
}

// ImportCounts is how far an import is.
type ImportCounts struct {
	// Total is how many entries Redis had when it began.
	Total int64 `json:"total"`
	// Claimed, Committed and Acked are entries on their way: taken out of Redisson's reach, put
	// into Belfry, and gone from Redis.
	Claimed   int64 `json:"claimed"`
	Committed int64 `json:"committed"`
	Acked     int64 `json:"acked"`
	// Repeated are those of Committed that Belfry had already: an earlier run was interrupted after
	// it had put them.
	Repeated int64 `json:"repeated"`
	// Decoded are entries whose payload the codec could read; the others' bodies are the payload
	// itself.
	Decoded int64 `json:"decoded"`
	// SetAside are entries that Belfry cannot take; Orphans are members that were in the list only
	// and will never be delivered.
	SetAside int64 `json:"setAside"`
	Orphans  int64 `json:"orphans"`
	// Left is how many entries Redis had at the last look that are not claimed.
	Left int64 `json:"left"`
	// Earliest is when the first entry that Redis had at the last look was or is due, one that is
	// claimed and not gone from Redis yet as well; zero if there was none. Now less that is how far
	// behind the import is.
	Earliest time.Time `json:"-"`
	// Looked is when that look was, zero if there was none yet: while Redis does not answer, or
	// Belfry does not take what was claimed, it stays where it was.
	Looked time.Time `json:"-"`
	// TakenBack says that it waits, because an export or a rollback takes or took the jobs back.
	TakenBack bool `json:"-"`
	// Stranded are entries, and payloads of the ready list, that were claimed and not brought over
	// when a run ended with an error. [Settle] brings them over, and so does the next run.
	// StrandedUnknown says that Redis did not answer, so that they could not be counted.
	Stranded        int64 `json:"stranded"`
	StrandedUnknown bool  `json:"strandedUnknown,omitempty"`
	// Slowest is the longest that one script took, as seen from here.
	Slowest time.Duration `json:"slowestNs"`
}

const (
	// followWait is how often a follower looks: Redisson announces only entries that are due before
	// all others.
	followWait = time.Second
)

// importer is an import under way.
type importer struct {
	link
	codec    redisson.Codec
	setAside bool
	ready    bool
	follow   bool
	again    bool // whether its being called decides that entries come over, also if they were taken back
	standing bool // whether it waits where others end, and begins again
	worked   bool // whether it had the hold
	// listening is closed by heard, once a follower hears of new entries.
	listening chan struct{}
	heard     func()
	progress  func(ImportCounts)
	batch     int  // how many entries the next claim takes
	behind    bool // whether the hand-over key may have entries that are not in hand
	seen      map[redisson.Generation]int64
	moved     atomic.Int64 // places of Redis' keys that it took
	counts    ImportCounts
}

// Import moves the entries of a delayed queue of Redisson to a queue of Belfry. It may be
// interrupted at any point and repeated; no entry is lost or doubled. Redisson's processes may run
// meanwhile; either they deliver an entry, or Belfry does. From then on the queue remembers ids
// without end.
//
// Import retries a broken connection to Redis, and temporary refusals of Belfry, until ctx ends.
// Errors: [ErrNoQueue] unless Follow; entries that Belfry cannot take, unless SetAside, as
// [*BadEntry] if such an entry came after the scan; a permanent refusal of Redis or Belfry;
// [ErrTakenBack] if a rollback came while it waited for the hold; the error of ctx.
func Import(ctx context.Context, r redis.UniversalClient, c *client.Client, o ImportOptions) (ImportCounts, error) {
	return newImporter(newLink(r, c, pair.Options{RedisQueue: o.RedisQueue, Queue: o.Queue, Share: o.Share,
		Hold: o.Hold, Notice: o.Notice}), o).all(ctx)
}

// Rehearse makes all the checks of an import and returns what it would find, in Redis and in
// Belfry. It changes nothing.
//
// Errors: those with which [Import] would refuse to begin, but for entries that Belfry cannot take.
func Rehearse(ctx context.Context, r redis.UniversalClient, c *client.Client, o ImportOptions) (*Finding, error) {
	o.SetAside = true // what cannot be brought over is in the finding
	i := newImporter(newLink(r, c, pair.Options{RedisQueue: o.RedisQueue, Queue: o.Queue, Share: o.Share,
		Hold: o.Hold, Notice: o.Notice}), o)
	if err := i.check(ctx); err != nil {
		return nil, err
	}
	target, err := i.target(ctx)
	if err != nil {
		return nil, err
	}
	found, err := inspect(ctx, r, o.RedisQueue)
	if err != nil {
		return nil, err
	}
	found.aim(target)
	return found, nil
}

// newImporter returns an importer that has done nothing yet.
func newImporter(l link, o ImportOptions) *importer {
	listening := make(chan struct{})
	return &importer{
		link: l, codec: o.Codec, setAside: o.SetAside, ready: o.Ready, follow: o.Follow, again: o.Again || !o.Follow,
		standing: o.Follow, progress: o.Progress,
		listening: listening, heard: sync.OnceFunc(func() { close(listening) }), batch: pair.BatchMax, behind: true,
		seen: map[redisson.Generation]int64{},
	}
}

// all is the whole import.
func (i *importer) all(ctx context.Context) (ImportCounts, error) {
	if err := i.Begin(ctx, i.check); err != nil {
		return i.counts, err
	}
	err := i.holding(ctx, func(ctx context.Context) error {
		if err := i.Persist(ctx, i.prepare); err != nil {
			return err
		}
		return i.run(ctx)
	})
	i.counts.Slowest = i.Slowest()
	i.countStranded(ctx, err)
	return i.counts, err
}

// prepare makes the queue remember ids, and finishes what an interrupted export left behind.
func (i *importer) prepare(ctx context.Context) error {
	i.behind = true
	if err := i.BeginEpoch(ctx, i.Epoch()); err != nil {
		return err
	}
	if err := i.RememberIDs(ctx, i.Queue); err != nil {
		return err
	}
	if err := errors.Join(i.warnPaused(ctx), i.settleLeftovers(ctx)); err != nil {
		return err
	}
	waiting, claimed := i.Redis.ZCard(ctx, i.keys.Timer), i.Redis.ZCard(ctx, i.keys.handover)
	if err := errors.Join(waiting.Err(), claimed.Err()); err != nil {
		return err
	}
	i.counts.Total = waiting.Val() + claimed.Val()
	return nil
}

// warnPaused says that nothing of a paused queue will be delivered: an export leaves it so.
func (l *link) warnPaused(ctx context.Context) error {
	queue, err := l.Belfry.Admin().Queue(ctx, l.Queue)
	if err != nil && !pair.IsGone(err) {
		return fmt.Errorf("reading the queue: %w", err)
	}
	if isSet(queue.Settings.Paused) {
		l.Notice(fmt.Errorf("the queue %s is paused, so none of its jobs is delivered; 'belfry queue resume %[1]s' ends that",
			l.Queue))
	}
	return nil
}

// isSet reports whether a setting is there and true.
func isSet(setting *bool) bool { return setting != nil && *setting }

// run moves entries until there are none, or for ever if it follows. When ctx ends it brings over
// what it has claimed.
func (i *importer) run(ctx context.Context) error {
	err := i.moveAll(ctx)
	if ctx.Err() != nil {
		i.windUp(ctx)
	}
	return err
}

// moveAll is run without its end.
func (i *importer) moveAll(ctx context.Context) error {
	hint := make(<-chan *redis.Message)
	if i.follow {
		var offers *redis.PubSub
		if err := i.Persist(ctx, func(ctx context.Context) (err error) {
			offers, err = i.listen(ctx)
			return err
		}); err != nil {
			return err
		}
		defer offers.Close() //nolint:errcheck // it is only listened to
		hint = offers.Channel()
		i.heard()
	}
	retry := pair.Backoff{}
	for {
		taken, err := i.cycle(ctx)
		if err == nil && (taken == 0 || time.Since(i.counts.Looked) > followWait) {
			err = i.look(ctx)
		}
		switch {
		case err != nil:
			i.behind = true
			if err := i.Outlast(ctx, err, &retry); err != nil {
				return err
			}
		case taken > 0:
			retry = pair.Backoff{}
		case !i.follow:
			return nil
		default:
			select {
			case <-hint:
			case <-time.After(followWait):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// look finds out when the first entry that is left is due, and tells. What has no due time does not
// count.
func (i *importer) look(ctx context.Context) error {
	heads := make([]*redis.ZSliceCmd, 2)
	_, err := i.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, key := range []string{i.keys.Timer, i.keys.handover} {
			heads[n] = p.ZRangeWithScores(ctx, key, 0, 0)
		}
		return nil
	})
	if err != nil {
		return err
	}
	i.counts.Looked, i.counts.Earliest = time.Now(), time.Time{}
	for _, head := range heads {
		for _, first := range head.Val() {
			if due := time.UnixMilli(int64(first.Score)); first.Score > 0 && (i.counts.Earliest.IsZero() ||
				due.Before(i.counts.Earliest)) {
				i.counts.Earliest = due
			}
		}
	}
	i.report()
	return nil
}

// cycle moves one batch, after what an earlier one left behind. It returns how many places of
// Redis' keys it took.
func (i *importer) cycle(ctx context.Context) (int, error) {
	if i.behind {
		if err := i.catchUp(ctx); err != nil {
			return 0, err
		}
		i.behind = false
	}
	c, err := i.claim(ctx)
	if err != nil {
		return 0, err
	}
	i.behind = c.waiting > int64(len(c.entries))
	i.counts.Orphans += c.orphans
	i.counts.Left = c.left
	i.counts.Claimed += int64(len(c.entries))
	i.moved.Add(int64(c.taken))
	if err := i.commit(ctx, c.entries); err != nil {
		return 0, err
	}
	delivered := 0
	if i.ready && c.taken == 0 {
		if delivered, err = i.takeReady(ctx); err != nil {
			return 0, err
		}
	}
	if i.behind {
		return 1, nil
	}
	return c.taken + delivered, nil
}

// catchUp commits the entries in the hand-over keys. It includes payloads of the ready list even if
// those are not to be imported, because the process that claimed them may not come again.
func (i *importer) catchUp(ctx context.Context) error {
	for {
		left, err := i.left(ctx, i.keys.handover)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return i.catchUpReady(ctx)
		}
		if err := i.commit(ctx, left); err != nil {
			return err
		}
	}
}
