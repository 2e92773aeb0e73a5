package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
)

// ExportOptions say what [Export] does. RedisQueue must be set; what else is zero has its default.
type ExportOptions struct {
	// RedisQueue is the name that Redisson's processes give the queue, Queue that of Belfry.
	// Default: RedisQueue.
	RedisQueue, Queue string
	// Format is that of the fleet of Redisson: Old up to 3.21.0, New since 3.21.1. Default: that of
	// the entries that Redis has, else of those that the jobs came from.
	Format redisson.Generation
	// Codec makes payloads of the bodies of jobs that did not come from Redisson. Without one the
	// export refuses to begin if there is such a job, and ends with an error if one is put
	// meanwhile.
	Codec redisson.Codec
	// Share is the part of Redis' time that scripts may take: above 0, up to 1, default 0.25.
	Share float64
	// Hold is for how long no other process may do the work after this one was killed: 1 s to 5
	// min, default 15 s. If Belfry cannot be reached for as long, the work ends.
	Hold time.Duration
	// Replicas is how many replicas of Redis must have the entry of a job before it is removed from
	// Belfry: what Redis had answered is lost otherwise when another server takes over. Default:
	// none.
	Replicas int
	// Notice is told what it waits for. May be nil; it must not block.
	Notice func(error)
	// Progress is called after each batch. May be nil; it must not block.
	Progress func(ExportCounts)
	// Checked is told at the end what was checked, also after an error. May be nil.
	Checked func([]pair.Check)
}

// ExportCounts is how far an export is.
type ExportCounts struct {
	// Total is how many jobs were delayed or ready when it began.
	Total int64 `json:"total"`
	// Returned are jobs that are entries of Redis now and gone from Belfry. There says how many of
	// them Redis had already.
	Returned int64 `json:"returned"`
	There    int64 `json:"there"`
	// Original are those of Returned that went back as the very member that came; Repacked those
	// that came in the other format.
	Original int64 `json:"original"`
	Repacked int64 `json:"repacked"`
	// Reduced are jobs with attempts, a priority, a TTL or headers, for which Redisson has no place.
	Reduced int64 `json:"reduced"`
	// Aside are entries that an import had set aside and that are back where they were.
	Aside int64 `json:"aside"`
	// Orphans are places of the list without a due time that an import had taken away and that are
	// at its end again.
	Orphans int64 `json:"orphans"`
	// Dead are dead jobs, which stay in Belfry.
	Dead int64 `json:"dead"`
	// Slowest is the longest that one script took, as seen from here.
	Slowest time.Duration `json:"slowestNs"`
}

const (
	returnJobs  = 500
	returnBytes = 3 << 20
	// leftWait is how often an export looks whether the jobs that consumers hold are done.
	leftWait = 500 * time.Millisecond
)

// exporter is an export under way.
type exporter struct {
	link
	format   redisson.Generation
	codec    redisson.Codec
	progress func(ExportCounts)
	sequence uint64 // of random parts: grows with every job
	batch    int    // how many entries the next script takes
	counts   ExportCounts
	checks   []pair.Check
	claimed  int64 // entries that were on their way to Belfry when it began
}

// Export moves the jobs of a queue of Belfry back to Redisson's delayed queue. Jobs that came from
// there get their old form. It pauses the queue and leaves it paused, and waits for reserved jobs.
// It may be interrupted at any point and repeated; afterwards no job is lost or in both systems. A
// bridge, and an import that follows, release the queue for it and then wait. Export waits for any
// other process. No other program should change jobs of the queue meanwhile; puts are moved too.
//
// Errors: a format that disagrees with the entries in Redis; no format is given, and the entries
// and jobs show none or both; a body that the codec cannot encode; a permanent refusal of Redis or
// Belfry; the error of ctx.
func Export(ctx context.Context, r redis.UniversalClient, c *client.Client, o ExportOptions) (ExportCounts, error) {
	return export(ctx, r, c, o, false)
}

// export is Export. If aside is true, it also returns the entries that were set aside.
func export(ctx context.Context, r redis.UniversalClient, c *client.Client, o ExportOptions,
	aside bool) (ExportCounts, error) {
	e := &exporter{link: newLink(r, c, pair.Options{
		RedisQueue: o.RedisQueue, Queue: o.Queue, Share: o.Share, Hold: o.Hold, Replicas: o.Replicas, Notice: o.Notice,
	}), format: o.Format, codec: o.Codec, progress: o.Progress, batch: pair.BatchMax}
	// Above that of any earlier export.
	e.sequence = uint64(time.Now().UnixMilli()) << 20 //nolint:gosec // positive for long
	defer func() {
		if o.Checked != nil {
			o.Checked(e.checks)
		}
	}()
	if err := e.Begin(ctx, func(ctx context.Context) error {
		if aside { // a rollback has a beginning
			if err := e.Began(ctx); err != nil {
				return pair.Explain(err)
			}
		}
		return e.check(ctx)
	}); err != nil {
		return e.counts, err
	}
	err := e.WithWish(ctx, func(ctx context.Context) error {
		if err := e.Persist(ctx, e.prepare); err != nil {
			return err
		}
		if aside {
			if err := e.Persist(ctx, e.restoreAside); err != nil {
				return err
			}
			if err := e.Persist(ctx, e.restoreOrphans); err != nil {
				return err
			}
		}
		if err := e.run(ctx); err != nil {
			return err
		}
		return e.Persist(ctx, e.checkEnd)
	})
	e.counts.Slowest = e.Slowest()
	return e.counts, err
}

// prepare brings everything into Belfry that is on its way there, begins a new epoch and pauses the
// queue. The epoch comes first: it also says that the jobs are taken back, and keeps a bridge from
// bringing entries into a paused queue if this process is killed here.
func (e *exporter) prepare(ctx context.Context) error {
	if err := e.checkClaimed(ctx); err != nil {
		return err
	}
	if _, err := e.putClaimed(ctx, redisson.Opaque); err != nil {
		return err
	}
	e.checked("every claimed entry is in Belfry", fmt.Sprintf("%d were claimed", e.claimed), true)
	if err := e.BeginEpoch(ctx, e.Epoch()+1); err != nil {
		return err
	}
	if err := e.pause(ctx); err != nil {
		return err
	}
	e.checked("the note that the jobs go back is in Belfry", fmt.Sprintf("epoch %d", e.Epoch()+1), true)
	queue, err := e.Belfry.Admin().Queue(ctx, e.Queue)
	if err != nil {
		return fmt.Errorf("reading the queue: %w", err)
	}
	e.counts.Total = int64(queue.Delayed) + int64(queue.Ready)
	return nil
}

// pause has nothing handed out any more, on every shard.
func (e *exporter) pause(ctx context.Context) error {
	for wait := (pair.Backoff{}); ; {
		changed, err := e.Belfry.Admin().UpdateQueue(ctx, e.Queue, &admin.QueueSettings{Paused: new(true)})
		if err != nil {
			return fmt.Errorf("pausing the queue: %w", err)
		}
		pending := changed.PendingShards
		if len(pending) == 0 {
			return nil
		}
		e.Notice(fmt.Errorf("waiting for shards %v to pause the queue", pending))
		if err := wait.Wait(ctx); err != nil {
			return err
		}
	}
}

// sampled is how many entries or jobs are looked at to learn a format.
const sampled = 100

// chooseFormat finds out what the fleet reads, and refuses a format that disagrees with it: entries
// in another stop every process of Redisson.
func (e *exporter) chooseFormat(ctx context.Context) error {
	seen, where := map[redisson.Generation]int{}, "Redis has entries"
	for _, span := range []struct {
		key         string
		first, last int64
	}{{e.keys.Timer, 0, sampled - 1}, {e.keys.Timer, -sampled, -1}, {e.keys.handover, 0, sampled - 1}} {
		members, err := e.Redis.ZRange(ctx, span.key, span.first, span.last).Result()
		if err != nil {
			return pair.Explain(err)
		}
		for _, member := range members {
			if m, err := redisson.ParseMember([]byte(member), redisson.New); err == nil {
				seen[m.Generation]++
			}
		}
	}
	if len(seen) == 0 && e.format == redisson.Unknown {
		where = "the jobs came from Redis"
		empty, err := e.sampleJobs(ctx, seen)
		if err != nil {
			return err
		}
		if empty {
			e.checked(formatCheck, "none is needed: there is no job", true)
			return nil
		}
	}
	named := e.format != redisson.Unknown
	switch {
	case len(seen) == 0 && e.format == redisson.Unknown:
		return errNoFormat
	case len(seen) == 2 && e.format == redisson.Unknown:
		return fmt.Errorf("%s in both formats; name the one that the processes of Redisson read with --redisson-format: "+
			"old up to version 3.21.0, new since 3.21.1", where)
	case e.format == redisson.Unknown && seen[redisson.Old] > 0:
		e.format = redisson.Old
	case e.format == redisson.Unknown:
		e.format = redisson.New
	case len(seen) == 1 && seen[e.format] == 0:
		return fmt.Errorf("%s, but not in the format %s: its processes could not read what is written, and would stop",
			where, e.format)
	}
	found := e.format.String() + ", as " + where + " in it"
	if named && seen[e.format] == 0 {
		found = e.format.String() + ", as named; Redis has no entry that says it"
	}
	e.checked(formatCheck, found, true)
	return nil
}

const formatCheck = "the format is that which Redisson reads"

// errNoFormat says that a format must be named.
var errNoFormat = errors.New("nothing says which format the processes of Redisson read; name it with " +
	"--redisson-format: old up to version 3.21.0, new since 3.21.1")

// run moves jobs until there are none.
func (e *exporter) run(ctx context.Context) error {
	retry := pair.Backoff{}
	for {
		moved, left, err := e.pass(ctx)
		switch {
		case err != nil:
			if err := e.Outlast(ctx, err, &retry); err != nil {
				return err
			}
		case moved > 0:
			retry = pair.Backoff{}
		case left > 0:
			e.Notice(fmt.Errorf("%d jobs are left; those that consumers hold are waited for", left))
			if err := pair.Sleep(ctx, leftWait); err != nil {
				return err
			}
		default:
			return e.Persist(ctx, e.wake)
		}
	}
}

// pass moves the jobs that are there, after what an interrupted pass left, and says how many, and
// how many are left: consumers hold them or did so a moment ago, or they fell due or were put
// meanwhile.
func (e *exporter) pass(ctx context.Context) (moved, left int, err error) {
	if _, err := e.putClaimed(ctx, redisson.Opaque); err != nil {
		return 0, 0, err
	}
	for _, state := range []client.State{"READY", "DELAYED"} {
		n, err := e.returnState(ctx, state)
		moved += n
		if err != nil {
			return moved, 0, err
		}
	}
	queue, err := e.Belfry.Admin().Queue(ctx, e.Queue)
	if err != nil {
		return moved, 0, fmt.Errorf("reading the queue: %w", err)
	}
	e.counts.Dead = int64(queue.Dead)
	return moved, queue.Reserved + queue.Ready + queue.Delayed, nil
}

// restoreAside gives back what an import had set aside.
func (e *exporter) restoreAside(ctx context.Context) error {
	for {
		entries, err := e.left(ctx, e.keys.aside)
		if err != nil || len(entries) == 0 {
			return err
		}
		args := make([]any, len(entries))
		for n, entry := range entries {
			args[n] = entry.member
		}
		// The script does not mind which key they wait in.
		reply, _, err := e.Script(ctx, restoreScript, []string{e.keys.Timer, e.keys.List, e.keys.aside, e.keys.Channel},
			args...)
		if err != nil {
			return err
		}
		n, err := reply.Int64()
		e.counts.Aside += n
		if err != nil {
			return err
		}
	}
}

// restoreOrphans gives places of the list back that have no due time, to its end: they are not
// delivered there either.
func (e *exporter) restoreOrphans(ctx context.Context) error {
	for {
		reply, took, err := e.Script(ctx, orphansScript, []string{e.keys.orphans, e.keys.List}, e.batch, returnBytes)
		if err != nil {
			return err
		}
		e.batch = pair.NextBatch(e.batch, took)
		n, err := reply.Int64()
		e.counts.Orphans += n
		if err != nil || n == 0 {
			return err
		}
	}
}

// wake has the processes of Redisson look: a time in the past makes each transfer what is due and
// set its timer anew.
func (e *exporter) wake(ctx context.Context) error {
	return e.Redis.Publish(ctx, e.keys.Channel, "0").Err()
}
