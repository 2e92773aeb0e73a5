package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisconn"
)

// Drained looks whether everything of a Redis queue is in Belfry: nothing in Redis, nothing claimed
// or set aside, no process of Redisson that listens. It changes nothing.
func Drained(ctx context.Context, r redis.UniversalClient, redisQueue string) ([]pair.Check, error) {
	return drained(ctx, r, redisQueue, 0)
}

// drained is Drained for a process that listens itself, on own connections.
func drained(ctx context.Context, r redis.UniversalClient, redisQueue string, own int64) ([]pair.Check, error) {
	k := keysOf(redisQueue)
	checks, err := sizesOf(ctx, r, append([]emptyKey{
		{"no entry waits in Redis", redisconn.SortedSet(k.Timer)},
		{"the list of entries is empty", redisconn.List(k.List)},
		{"no job waits on the ready list", redisconn.List(k.Ready)},
	}, k.endsEmpty()...))
	if err != nil {
		return nil, err
	}
	processes, err := redisconn.Subscribers(ctx, r, k.Channel)
	if err != nil {
		return nil, pair.Explain(err)
	}
	processes = max(0, processes-own)
	return append(checks, pair.Check{What: "no process of Redisson listens", Found: fmt.Sprintf("%d listen",
		processes), OK: processes == 0}), nil
}

// An emptyKey is a key that must be empty before a migration ends, and what that says.
type emptyKey struct {
	what string
	redisconn.TypedKey
}

// endsEmpty are those of the mirror.
func (k keys) endsEmpty() []emptyKey {
	return []emptyKey{
		{"every claimed entry is in Belfry", redisconn.SortedSet(k.handover)},
		{"every claimed payload of the ready list is in Belfry", redisconn.Hash(k.readyHand)},
		{"no entry is set aside", redisconn.SortedSet(k.aside)},
		{"every job that went back is gone from Belfry", redisconn.Set(k.returned)},
		{"every job put on the ready list is acked", redisconn.Set(k.delivered)},
	}
}

// sizesOf looks whether keys are empty.
func sizesOf(ctx context.Context, r redis.UniversalClient, wanted []emptyKey) ([]pair.Check, error) {
	sizes := make([]*redis.IntCmd, len(wanted))
	_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, w := range wanted {
			switch w.Kind {
			case "zset":
				sizes[n] = p.ZCard(ctx, w.Key)
			case "list":
				sizes[n] = p.LLen(ctx, w.Key)
			case "hash":
				sizes[n] = p.HLen(ctx, w.Key)
			default:
				sizes[n] = p.SCard(ctx, w.Key)
			}
		}
		return nil
	})
	if err != nil {
		return nil, pair.Explain(err)
	}
	checks := make([]pair.Check, len(wanted))
	for n, w := range wanted {
		checks[n] = pair.Check{What: w.what, Found: fmt.Sprintf("%s has %d", w.Key, sizes[n].Val()), OK: sizes[n].Val() == 0}
	}
	return checks, nil
}

// cutoverEvery is how often a cut-over looks.
const cutoverEvery = time.Second

// CutoverOptions say what [Cutover] does.
type CutoverOptions struct {
	ImportOptions
	// Quiet is for how long there must have been nothing to do: longer than the longest deployment
	// of a producer. Default 10 min.
	Quiet time.Duration
	// Looked is told what was checked each time something changed. May be nil; it must not block.
	Looked func(checks []pair.Check, quiet time.Duration)
}

const quietDefault = 10 * time.Minute

// Cutover follows Redisson's producers until they are gone: it imports what they offer, and ends
// when nothing of the queue was left in Redis and no process listened for o.Quiet. It may be
// interrupted and run again.
//
// Errors: those of [Import]; that a rollback asked for the queue meanwhile.
func Cutover(ctx context.Context, r redis.UniversalClient, c *client.Client, o CutoverOptions) (ImportCounts, error) {
	if o.Quiet <= 0 {
		o.Quiet = quietDefault
	}
	o.Follow, o.Again = true, true
	i := newImporter(newLink(r, c, pair.Options{RedisQueue: o.RedisQueue, Queue: o.Queue, Share: o.Share,
		Hold: o.Hold, Notice: o.Notice}), o.ImportOptions)
	i.standing = false // a person runs this step and reads its result
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-i.listening: // before, this process is not among those that listen
			stop(watch(ctx, r, o, i.moved.Load))
		case <-ctx.Done():
		}
	}()
	counts, err := i.all(ctx)
	stop(err)
	<-watched
	if errors.Is(context.Cause(ctx), errQuiet) {
		return counts, nil
	}
	return counts, err
}

// errQuiet ends a cut-over that has come to its end.
var errQuiet = errors.New("the queue was quiet for long enough")

// watch looks at the queue until it was drained for long enough and nothing was moved meanwhile. It
// returns errQuiet, or why it cannot look.
func watch(ctx context.Context, r redis.UniversalClient, o CutoverOptions, moved func() int64) error {
	var since time.Time
	before := moved()
	for {
		checks, err := drained(ctx, r, o.RedisQueue, 1)
		switch {
		case err != nil && !pair.Passing(err):
			return err
		// what comes and goes between two looks counts as well
		case err != nil || pair.Failed(checks) != nil || moved() != before:
			since, before = time.Time{}, moved()
		case since.IsZero():
			since = time.Now()
		}
		quiet := time.Duration(0)
		if !since.IsZero() {
			quiet = time.Since(since)
		}
		if err == nil && o.Looked != nil {
			o.Looked(checks, quiet)
		}
		if quiet >= o.Quiet {
			return errQuiet
		}
		if err := pair.Sleep(ctx, min(cutoverEvery, o.Quiet-quiet)); err != nil {
			return err
		}
	}
}

// Rollback takes a migration back: what was claimed and what was set aside goes back to Redisson as
// well as all jobs of Belfry; see [Export].
func Rollback(ctx context.Context, r redis.UniversalClient, c *client.Client, o ExportOptions) (ExportCounts, error) {
	return export(ctx, r, c, o, true)
}
