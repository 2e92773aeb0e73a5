package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A Check is one thing that must be so before a step of a migration, and whether it is.
type Check struct {
	// What names it, Found says what there is.
	What  string `json:"what"`
	Found string `json:"found"`
	OK    bool   `json:"ok"`
}

// Drained looks whether everything of a Redis queue is in Belfry: nothing in Redis, nothing claimed or set aside, no process of Redisson that listens. It changes nothing.
func Drained(ctx context.Context, r redis.UniversalClient, redisQueue string) ([]Check, error) {
	return drained(ctx, r, redisQueue, 0)
}

// drained is Drained for a process that listens itself, on own connections.
func drained(ctx context.Context, r redis.UniversalClient, redisQueue string, own int64) ([]Check, error) {
	k := keysOf(redisQueue)
	var checks []Check
	var sizes []*redis.IntCmd
	wanted := []struct{ what, key, kind string }{
		{"no entry waits in Redis", k.Timer, "zset"},
		{"the list of entries is empty", k.List, "list"},
		{"no job waits on the ready list", k.Ready, "list"},
		{"every claimed entry is in Belfry", k.handover, "zset"},
		{"every claimed payload of the ready list is in Belfry", k.readyHand, "hash"},
		{"no entry is set aside", k.aside, "zset"},
		{"every job that went back is gone from Belfry", k.returned, "set"},
		{"every job put on the ready list is acked", k.rung, "set"},
	}
	_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, w := range wanted {
			switch w.kind {
			case "zset":
				sizes = append(sizes, p.ZCard(ctx, w.key))
			case "list":
				sizes = append(sizes, p.LLen(ctx, w.key))
			case "hash":
				sizes = append(sizes, p.HLen(ctx, w.key))
			default:
				sizes = append(sizes, p.SCard(ctx, w.key))
			}
		}
		return nil
	})
	if err != nil {
		return nil, explain(err)
	}
	for n, w := range wanted {
		checks = append(checks, Check{What: w.what, Found: fmt.Sprintf("%s has %d", w.key, sizes[n].Val()), OK: sizes[n].Val() == 0})
	}
	processes, err := listening(ctx, r, k.Channel)
	if err != nil {
		return nil, explain(err)
	}
	processes = max(0, processes-own)
	return append(checks, Check{What: "no process of Redisson listens", Found: fmt.Sprintf("%d listen", processes), OK: processes == 0}), nil
}

// failed returns an error that names what is not as it must be, nil if all is.
func failed(checks []Check) error {
	var texts []string
	for _, c := range checks {
		if !c.OK {
			texts = append(texts, "not so: "+c.What+" ("+c.Found+")")
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// cutoverEvery is how often a cut-over looks.
const cutoverEvery = time.Second

// CutoverOptions say what [Cutover] does.
type CutoverOptions struct {
	ImportOptions
	// Quiet is for how long there must have been nothing to do: longer than the longest deployment of a producer. Default 10 min.
	Quiet time.Duration
	// Looked is told what was checked each time something changed. May be nil; it must not block.
	Looked func(checks []Check, quiet time.Duration)
}

const quietDefault = 10 * time.Minute

// Cutover follows Redisson's producers until they are gone: it imports what they offer, and ends when nothing of the queue was left in Redis and no process listened for o.Quiet. It may be interrupted and run again.
//
// Errors: those of [Import].
func Cutover(ctx context.Context, r redis.UniversalClient, c *client.Client, o CutoverOptions) (ImportCounts, error) {
	if o.Quiet <= 0 {
		o.Quiet = quietDefault
	}
	o.Follow = true
	i := newImporter(newLink(r, c, o.RedisQueue, o.Queue, o.Share, o.Hold, o.Notice), o.ImportOptions)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-i.listening: // before, this process is not among those that listen
			stop(watch(ctx, r, o))
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

// watch looks at the queue until it was drained for long enough. It returns errQuiet, or why it cannot look.
func watch(ctx context.Context, r redis.UniversalClient, o CutoverOptions) error {
	var since time.Time
	for {
		checks, err := drained(ctx, r, o.RedisQueue, 1)
		switch {
		case err != nil && !passing(err):
			return err
		case err != nil || failed(checks) != nil:
			since = time.Time{}
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
		if err := sleep(ctx, min(cutoverEvery, o.Quiet-quiet)); err != nil {
			return err
		}
	}
}

// Rollback takes a migration back: what was claimed and what was set aside goes back to Redisson as well as all jobs of Belfry; see [Export].
func Rollback(ctx context.Context, r redis.UniversalClient, c *client.Client, o ExportOptions) (ExportCounts, error) {
	return export(ctx, r, c, o, true)
}

// ended is Drained, with an error that says what is left.
func ended(ctx context.Context, r redis.UniversalClient, redisQueue string) ([]Check, error) {
	checks, err := Drained(ctx, r, redisQueue)
	if err != nil {
		return nil, err
	}
	if err := failed(checks); err != nil {
		return checks, fmt.Errorf("the migration of %s cannot be ended yet: %w", redisQueue, err)
	}
	return checks, nil
}

// Finalize ends a migration: it removes the mirror's keys from Redis, and the queue remembers the ids of ended jobs for its dedup window again. It refuses if anything of the queue is left in Redis or a process of
// Redisson listens, and returns what it checked. Repeating it changes nothing.
func Finalize(ctx context.Context, r redis.UniversalClient, c *client.Client, redisQueue, queue string) ([]Check, error) {
	l := newLink(r, c, redisQueue, queue, 1, 0, nil)
	if err := l.check(ctx); err != nil {
		return nil, err
	}
	if owner, err := r.HMGet(ctx, l.keys.state, "cluster").Result(); err != nil {
		return nil, explain(err)
	} else if owner[0] == nil { // it was ended, or never began
		return ended(ctx, r, redisQueue)
	}
	var checks []Check
	err := l.withHold(ctx, func(ctx context.Context) (err error) {
		if _, _, err := l.script(ctx, fenceScript, []string{l.keys.state}); err != nil { // nobody else moves anything from here on
			return explain(err)
		}
		if checks, err = ended(ctx, r, redisQueue); err != nil {
			return err
		}
		for wait := (patience{}); ; {
			changed, err := c.Admin().UpdateQueue(ctx, l.queue, &belfryv1.QueueSettings{DedupForever: proto.Bool(false)})
			if err != nil && !isGone(err) {
				return fmt.Errorf("having the queue forget ids again: %w", err)
			}
			if len(changed.GetPendingShards()) == 0 {
				break
			}
			if err := wait.wait(ctx); err != nil {
				return err
			}
		}
		k := l.keys
		if _, _, err := l.script(ctx, endScript, []string{k.state, k.orphans, k.handover, k.aside, k.returned, k.rung, k.readyHand}); err != nil {
			return explain(err)
		}
		return nil
	})
	return checks, err
}
