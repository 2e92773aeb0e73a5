package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
)

// BridgeOptions say what [Bridge] does. RedisQueue must be set; what else is zero has its default.
type BridgeOptions struct {
	// RedisQueue is the name that Redisson's processes give the queue, Queue that of Belfry.
	// Default: RedisQueue.
	RedisQueue, Queue string
	// Codec is how payloads are encoded, both ways. Default: bodies are payloads as they are.
	Codec redisson.Codec
	// SetAside moves entries that Belfry cannot take to a key of their own, instead of stopping at
	// them.
	SetAside bool
	// NoIn leaves what Redisson's processes offer to them; NoOut leaves jobs that fall due to the
	// consumers of Belfry.
	NoIn, NoOut bool
	// Again decides that the jobs are imported again after an export or a rollback took them back.
	// Without it the bridge then waits for such a decision, with [ErrTakenBack] as a notice.
	Again bool
	// Share is the part of Redis' time that scripts may take: above 0, up to 1, default 0.25.
	Share float64
	// Hold is for how long no other process may do the work after this one was killed: 1 s to 5
	// min, default 15 s. If Belfry cannot be reached for as long, the work ends.
	Hold time.Duration
	// Replicas is how many replicas of Redis must have what is put on the ready list before the job
	// is acked in Belfry: what Redis had answered is lost otherwise when another server takes over.
	// Default: none.
	Replicas int
	// Notice is told what it waits for. May be nil; it must not block.
	Notice func(error)
	// Progress is called after each batch. May be nil; it must not block.
	Progress func(BridgeCounts)
}

// BridgeCounts is what a bridge has done.
type BridgeCounts struct {
	// In is what came over from Redisson. The last report, after the end, has what stays claimed.
	In ImportCounts
	// Out are jobs put on the ready list, and Repeated those of a predecessor that had put them
	// there already.
	Out, Repeated int64
	// Dead are jobs that the codec cannot encode, or for which none was named: they are dead now,
	// and their last error says why.
	Dead int64
	// Lateness is how late the last of them was.
	Lateness time.Duration
}

const (
	deliverJobs = 500
	deliverWait = 20 * time.Second
)

// deliverer puts due jobs on the ready list.
type deliverer struct {
	link
	codec  redisson.Codec
	ttr    time.Duration // of the leases of jobs that are put there
	gone   []any         // tags of jobs that are acked, for Redis to forget
	counts BridgeCounts
	report func(BridgeCounts)
}

// Bridge serves Redisson's consumers and producers until ctx ends, while Belfry stores the jobs.
// Entries that producers offer move to Belfry, and due jobs move to the ready list. One process at
// a time does this for a queue and the others wait, so it may run on every node. It may be killed
// at any point. For an export or a rollback it releases the queue and waits.
//
// Bridge retries a broken connection to Redis until ctx ends. Errors: [*BadEntry] unless SetAside;
// a permanent refusal of Redis or Belfry; the error of ctx.
func Bridge(ctx context.Context, r redis.UniversalClient, c *client.Client, o BridgeOptions) error {
	l := newLink(r, c, pair.Options{
		RedisQueue: o.RedisQueue, Queue: o.Queue, Share: o.Share, Hold: o.Hold, Replicas: o.Replicas, Notice: o.Notice,
	})
	sums := &totals{tell: o.Progress}
	i := newImporter(l, ImportOptions{Codec: o.Codec, SetAside: o.SetAside, Follow: true, Again: o.Again,
		Progress: sums.in})
	check := i.check
	if o.NoIn {
		check = i.link.check
	}
	if err := i.Begin(ctx, check); err != nil {
		return err
	}
	out := &deliverer{codec: o.Codec, ttr: 2 * l.Hold, report: sums.out}
	err := i.holding(ctx, func(ctx context.Context) error {
		prepare := i.prepare
		if o.NoIn {
			// nor leave claimed entries of an import where no run would find them
			prepare = func(ctx context.Context) error { _, err := i.putClaimed(ctx, o.Codec); return err }
		}
		if err := i.Persist(ctx, prepare); err != nil { // both settle, which is for before anything is delivered
			return err
		}
		out.link = link{i.Outward(), i.keys} // from here on each direction has its own
		group, ctx := errgroup.WithContext(ctx)
		if !o.NoIn {
			group.Go(func() error { return i.run(ctx) })
		}
		if !o.NoOut {
			group.Go(func() error { return out.run(ctx) })
		}
		return group.Wait()
	})
	i.countStranded(ctx, err)
	sums.in(i.counts)
	return err
}

// run puts due jobs on the ready list until ctx ends.
func (g *deliverer) run(ctx context.Context) error {
	retry := pair.Backoff{}
	for ctx.Err() == nil {
		err := g.forget(ctx) // what an earlier turn could not
		var jobs []*client.Job
		if err == nil {
			jobs, err = g.Belfry.Reserve(ctx, client.ReserveOptions{Queues: []string{g.Queue}, Max: deliverJobs,
				Wait: deliverWait, TTR: g.ttr})
		}
		if err == nil {
			err = g.finishDelivery(ctx, jobs)
		}
		if err == nil {
			retry = pair.Backoff{}
		} else if err := g.Outlast(ctx, err, &retry); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// finishDelivery delivers reserved jobs also if ctx ends meanwhile: what is on the ready list
// should be acked.
func (g *deliverer) finishDelivery(ctx context.Context, jobs []*client.Job) error {
	pushing, endPush := pair.Outliving(ctx, pair.LingerMax/2)
	defer endPush()
	// what was not put there by then is given back before its lease ends, which would count an
	// attempt
	pushing, stopPush := context.WithTimeout(pushing, g.ttr/2)
	defer stopPush()
	ctx, end := pair.Outliving(ctx, pair.LingerMax)
	defer end()
	ctx, cancel := context.WithTimeout(ctx, g.ttr)
	defer cancel()
	return g.deliver(ctx, pushing, jobs)
}

// totals adds up what both directions of a bridge report.
type totals struct {
	mu     sync.Mutex
	counts BridgeCounts
	tell   func(BridgeCounts)
}

func (t *totals) in(n ImportCounts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.In = n
	t.told()
}

func (t *totals) out(n BridgeCounts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.In = t.counts.In
	t.counts = n
	t.told()
}

func (t *totals) told() {
	if t.tell != nil {
		t.tell(t.counts)
	}
}

// deliver puts reserved jobs on the ready list, and acks them. Those that Redisson has no form for
// become dead, with the reason as their last error. What Redis does not take until pushing ends is
// given back.
func (g *deliverer) deliver(ctx, pushing context.Context, jobs []*client.Job) error {
	jobs, payloads, err := g.encode(ctx, jobs)
	if err != nil {
		return errors.Join(err, g.release(ctx, jobs))
	}
	for len(jobs) > 0 {
		n, bytes := 0, 0
		args := make([]any, 0, 2*len(jobs))
		for ; n < len(jobs) && bytes < pair.ClaimBytes; n++ {
			args, bytes = append(args, tagOf(jobs[n]), payloads[n]), bytes+len(payloads[n])
		}
		put, err := g.push(pushing, args)
		if err != nil { // some may be on the list all the same: they come again, and are known then
			return errors.Join(err, g.release(ctx, jobs))
		}
		g.counts.Out, g.counts.Repeated = g.counts.Out+put, g.counts.Repeated+int64(n)-put
		if err := g.finish(ctx, jobs[:n]); err != nil {
			return err
		}
		jobs, payloads = jobs[n:], payloads[n:]
	}
	return nil
}

// push runs the script, again if the answer does not come, until ctx ends: what is on the list
// already is not put there twice.
func (g *deliverer) push(ctx context.Context, args []any) (int64, error) {
	for retry := (pair.Backoff{}); ; {
		reply, _, err := g.Script(ctx, deliverScript, []string{g.keys.Ready, g.keys.delivered}, args...)
		if err == nil {
			return reply.Int64()
		}
		if g.Outlast(ctx, err, &retry) != nil {
			return 0, err
		}
	}
}

// encode makes the payloads of jobs, and makes those dead that have none. After an error it returns
// all jobs.
func (g *deliverer) encode(ctx context.Context, jobs []*client.Job) (fit []*client.Job, payloads [][]byte, err error) {
	for _, job := range jobs {
		payload, err := payloadOf(job, g.codec)
		if err == nil {
			fit, payloads = append(fit, job), append(payloads, payload)
			continue
		}
		g.Notice(err)
		if err := job.Nack(ctx, client.Dead(err)); err != nil && !errors.Is(err, client.ErrStaleLease) {
			return jobs, nil, fmt.Errorf("making job %s dead: %w", job.ID, err)
		}
		g.counts.Dead++
		g.report(g.counts)
	}
	return fit, payloads, nil
}

// finish acks jobs that are on the ready list, and forgets those that are gone. One whose lease
// lapsed comes again and is known.
func (g *deliverer) finish(ctx context.Context, jobs []*client.Job) error {
	leases := make([]string, len(jobs))
	for n, job := range jobs {
		leases[n] = job.Lease
	}
	errs, _ := g.Belfry.AckBatch(ctx, leases) // each has its error
	var err error
	for n, failed := range errs {
		switch {
		case failed == nil:
			g.gone = append(g.gone, tagOf(jobs[n]))
		case !errors.Is(failed, client.ErrStaleLease):
			err = failed
		}
	}
	err = errors.Join(err, g.forget(ctx))
	last := jobs[len(jobs)-1]
	g.counts.Lateness = time.Since(last.DueAt)
	g.report(g.counts)
	return err
}

// forget has Redis forget jobs that are acked.
func (g *deliverer) forget(ctx context.Context) error {
	if len(g.gone) == 0 {
		return nil
	}
	// an id that a failover brings back does no harm
	err := g.ScriptUnreplicated(ctx, forgetScript, []string{g.keys.delivered}, g.gone...)
	if err == nil {
		g.gone = nil
	}
	return err
}

// release gives jobs back that Redis did not take. No attempt counts.
func (g *deliverer) release(ctx context.Context, jobs []*client.Job) error {
	return pair.Each(ctx, jobs, func(ctx context.Context, job *client.Job) error {
		if _, _, err := g.Belfry.Release(ctx, job.Lease, 0); err != nil && !errors.Is(err, client.ErrStaleLease) {
			return fmt.Errorf("giving job %s back: %w", job.ID, err)
		}
		return nil
	})
}
