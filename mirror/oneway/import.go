package oneway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisconn"
)

// Options are what an import from lmstfy and one from ouqiang/delay-queue have in common. What is
// zero has its default.
type Options struct {
	// Queue is the queue of Belfry. Default: the name at the source.
	Queue string
	// Stopped says that no server works on the source's queue any more, nor will: reserved jobs are
	// taken too. With a server that still runs they would be delivered by both.
	Stopped bool
	// Unnamed takes jobs that no list and no sorted set names, without the tries that they had. It
	// is heeded with Stopped only: a live server may be about to name them.
	Unnamed bool
	// SetAside moves jobs that Belfry cannot take to a key of their own, instead of refusing to
	// begin or stopping at them.
	SetAside bool
	// Follow goes on with what producers publish and consumers let go, until the context ends.
	Follow bool
	// Hold is for how long no other process may take over after this one was killed: 1 s to 5 min,
	// default 15 s.
	Hold time.Duration
	// Share is the part of Redis' time that scripts may take: above 0, up to 1, default 0.25.
	Share float64
	// Notice is told what it waits for. May be nil; it must not block.
	Notice func(error)
	// Progress is called after each batch. May be nil; it must not block.
	Progress func(Counts)
}

// Counts is how far an import from lmstfy or ouqiang/delay-queue is.
type Counts struct {
	// Total is about how many jobs there were to be taken when it began, those that nothing names
	// aside.
	Total int64 `json:"total"`
	// Claimed, Committed and Acked are jobs on their way: taken out of the servers' reach, put into
	// Belfry, and gone from Redis.
	Claimed   int64 `json:"claimed"`
	Committed int64 `json:"committed"`
	Acked     int64 `json:"acked"`
	// Repeated are those of Committed that Belfry had already: an earlier run was interrupted after
	// it had put them.
	Repeated int64 `json:"repeated"`
	// Gone are claimed jobs that were finished, cancelled or expired at the source before Belfry
	// had them for good. They were cancelled in Belfry, unless a consumer had them already.
	Gone int64 `json:"gone"`
	// SetAside are jobs that Belfry cannot take, and elements of lists that name no job.
	SetAside int64 `json:"setAside"`
	// Reserved, Dead, Unnamed and Unread were left in Redis by the last pass: jobs that consumers
	// hold, dead letters, values that nothing names, and names that cannot be read. Unnamed is
	// counted with Stopped only.
	Reserved int64 `json:"reserved"`
	Dead     int64 `json:"dead"`
	Unnamed  int64 `json:"unnamed"`
	Unread   int64 `json:"unread"`
	// Slowest is the longest that one script took, as seen from here.
	Slowest time.Duration `json:"slowestNs"`
}

// followWait is how often an import that follows looks.
const followWait = time.Second

// A Job is one in the hand-over key: the field that names it, what was written down about it at the
// claim, and its value there, nil if that is gone.
type Job struct {
	Field, Record string
	Value         []byte
}

// Service is the system that jobs are taken from.
type Service interface {
	// Survey looks at what there is, but for what nothing names. Dead letters that are taken count
	// as ready.
	Survey(ctx context.Context) (*Finding, error)
	// Load fills in the values of jobs in the hand-over key.
	Load(ctx context.Context, jobs []Job) error
	// Put makes the job of one; the error says why Belfry cannot take it.
	Put(h Job) (client.Put, error)
	// PlaceOf says where the job of one is in Belfry.
	PlaceOf(h Job) (queue, id string)
	// Steps claim and commit everything that may be taken, once, and return how many that were. The
	// last is for what the others leave, and done when they took nothing.
	Steps() []func(ctx context.Context) (int, error)
}

// A Source is a queue of another service, and what the import needs to know of the service.
type Source struct {
	// Name is that of the queue with its service, such as "lmstfy:namespace/queue". It is a part of
	// the names of the mirror's keys.
	Name string
	// Types are the keys that the service has of the queue.
	Types []redisconn.TypedKey
	// Ack and Restore move what the hand-over key has. Their KEYS begin with the state and the
	// hand-over key, those of Restore go on with RestoreKeys; their ARGV after the guard's are the
	// fields of jobs. Ack returns the positions of jobs that had ended at the service.
	Ack, Restore *redis.Script
	RestoreKeys  []string
	// Beside are queues of Belfry that jobs go to besides that of the options.
	Beside []string
	// SameID says that a job of an id that Belfry has with other content is the same job all the same.
	SameID bool
}

// An Importer is an import from another service under way. One goroutine uses it.
type Importer struct {
	pair.Link
	// Options are those of the user. Counts is how far it is.
	Options Options
	Counts  Counts
	// Handover is the key of claimed jobs, Aside that of jobs that Belfry cannot take.
	Handover, Aside string

	source Source
	from   Service
	types  []redisconn.TypedKey // of the keys that Redis may have
	batch  int                  // how many jobs the next claim takes
}

// New returns an importer that has done nothing yet, to the queue of Belfry that the options name,
// or queue if they name none. It refuses a Redis Cluster.
func New(r redis.UniversalClient, c *client.Client, source Source, queue string, o Options) (*Importer, error) {
	if _, ok := r.(*redis.ClusterClient); ok {
		return nil, errors.New("this is a Redis Cluster; the keys of the source have no hash tags, so that its servers " +
			"cannot use one and neither can the import")
	}
	l := pair.New(pair.Options{
		Redis: r, Belfry: c, RedisQueue: source.Name, Queue: cmp.Or(o.Queue, queue),
		StateKey: "belfry_mirror:" + source.Name, TrialKey: "belfry_trial:" + source.Name,
		Share: o.Share, Hold: o.Hold, Notice: o.Notice,
	})
	if o.Progress == nil {
		o.Progress = func(Counts) {}
	}
	i := &Importer{Link: l, Options: o, source: source, Handover: HandoverKey(source.Name),
		Aside: AsideKey(source.Name), batch: pair.BatchMax}
	i.types = append(slices.Clone(source.Types), redisconn.Hash(l.StateKey), redisconn.Hash(i.Handover),
		redisconn.Hash(i.Aside))
	return i, nil
}

// HandoverKey is the key of claimed jobs of a source.
func HandoverKey(source string) string { return "belfry_handover:" + source }

// AsideKey is the key of jobs of a source that Belfry cannot take.
func AsideKey(source string) string { return "belfry_aside:" + source }

// Batch returns how many jobs the next claim should take.
func (i *Importer) Batch() int { return i.batch }

// Run is the whole import. It may be called once, and returns the counts also after an error. It
// tries again what may pass. Errors: what cannot be brought over; what Redis or Belfry refuse for
// good; that of ctx.
func (i *Importer) Run(ctx context.Context, from Service) (Counts, error) {
	i.from = from
	if err := i.Begin(ctx, func(ctx context.Context) error {
		return errors.Join(i.Identify(ctx),
			i.Writes(ctx))
	}); err != nil {
		return i.Counts, err
	}
	err := i.WithHold(ctx, func(ctx context.Context) error {
		if err := i.Persist(ctx, i.prepare); err != nil {
			return err
		}
		return i.run(ctx)
	})
	i.Counts.Slowest = i.Slowest()
	return i.Counts, err
}

// prepare refuses what cannot be brought over, and has Belfry remember ids.
func (i *Importer) prepare(ctx context.Context) error {
	if err := redisconn.CheckTypes(ctx, i.Redis, i.types); err != nil {
		return err
	}
	found, err := i.from.Survey(ctx)
	if err != nil {
		return err
	}
	if found.Bad > 0 && !i.Options.SetAside {
		return fmt.Errorf("%d jobs cannot be brought over, and nothing was changed; they can be set aside; the first: "+
			"%s", found.Bad, found.FirstBad)
	}
	i.Counts.Total = found.Delayed + found.Ready + found.HandedOver
	if i.Options.Stopped {
		i.Counts.Total += found.Reserved
	}
	if err := i.RefuseEarlier(ctx); err != nil { // also refuses another owner
		return err
	}
	for _, queue := range append([]string{i.Queue}, i.source.Beside...) {
		if err := i.RememberIDs(ctx, queue); err != nil {
			return err
		}
	}
	return nil
}

// run moves jobs until a pass finds none, or for ever if it follows.
func (i *Importer) run(ctx context.Context) error {
	for retry := (pair.Backoff{}); ; {
		taken, err := i.cycle(ctx)
		switch {
		case err != nil:
			if err := i.Outlast(ctx, err, &retry); err != nil {
				return err
			}
		case taken > 0:
			retry = pair.Backoff{}
		case !i.Options.Follow:
			left, err := i.Redis.HLen(ctx, i.Handover).Result()
			if err == nil && left == 0 {
				return nil
			}
			if err != nil && !pair.Passing(err) { // else a claim's answer was lost, and the next cycle has what it took
				return pair.Explain(err)
			}
		default:
			i.report()
			if err := pair.Sleep(ctx, followWait); err != nil {
				return err
			}
		}
	}
}

// cycle commits what an earlier one left in the hand-over key, and then makes a pass.
func (i *Importer) cycle(ctx context.Context) (int, error) {
	for cursor := uint64(0); ; {
		page, next, err := i.Redis.HScan(ctx, i.Handover, cursor, "", redisconn.ScanPage).Result()
		if err != nil {
			return 0, fmt.Errorf("reading the hand-over key: %w", err)
		}
		jobs := make([]Job, 0, len(page)/2)
		for n := 0; n+1 < len(page); n += 2 {
			jobs = append(jobs, Job{Field: page[n], Record: page[n+1]})
		}
		for part := range slices.Chunk(jobs, pair.BatchMin) { // their values may be long
			if err := i.from.Load(ctx, part); err != nil {
				return 0, fmt.Errorf("reading values of claimed jobs: %w", err)
			}
			if err := i.commit(ctx, part); err != nil {
				return 0, err
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	i.Counts.Reserved, i.Counts.Dead, i.Counts.Unnamed, i.Counts.Unread = 0, 0, 0, 0
	taken, steps := 0, i.from.Steps()
	for n, step := range steps {
		if n == len(steps)-1 && (taken > 0 || !i.Options.Stopped) { // a live server may be about to name what nothing names
			break
		}
		more, err := step(ctx)
		if taken += more; err != nil {
			return taken, err
		}
	}
	return taken, nil
}

// Claimed commits jobs that a claim took, whose Value is filled in unless it is gone: it puts them
// into Belfry and has Redis forget them. Steps of a service call it after each claim.
func (i *Importer) Claimed(ctx context.Context, jobs []Job) error {
	i.Counts.Claimed += int64(len(jobs))
	return i.commit(ctx, jobs)
}

// commit puts jobs of the hand-over key into Belfry and then has Redis forget them. What Belfry
// cannot take is set aside, or given back and the first of it returned.
func (i *Importer) commit(ctx context.Context, jobs []Job) error {
	var bad []refusal
	var acks []Job
	puts, of := make([]client.Put, 0, len(jobs)), make([]Job, 0, len(jobs))
	for _, h := range jobs {
		if h.Value == nil {
			acks = append(acks, h) // its ack says that it is gone
			continue
		}
		put, err := i.from.Put(h)
		if err != nil {
			bad = append(bad, refusal{h, err})
			continue
		}
		puts, of = append(puts, put), append(of, h)
	}
	err := i.PutAll(ctx, puts, func(n int, r client.PutResult) {
		if r.Err != nil && !i.source.SameID {
			bad = append(bad, refusal{of[n], fmt.Errorf("the queue has had another job of its id: %w", r.Err)})
			return
		}
		i.Counts.Committed++
		if r.Err != nil || !r.Created {
			i.Counts.Repeated++
		}
		acks = append(acks, of[n])
	}, func(n int, why error) { bad = append(bad, refusal{of[n], why}) })
	if err != nil {
		return err
	}
	if err := i.ack(ctx, acks); err != nil {
		return err
	}
	return i.refused(ctx, bad)
}

// refusal is a job that Belfry cannot take, and why.
type refusal struct {
	job Job
	why error
}

func fieldsOf(jobs []Job) []any {
	fields := make([]any, len(jobs))
	for n, h := range jobs {
		fields[n] = h.Field
	}
	return fields
}

// ack has Redis forget jobs that Belfry has. Those that were finished or cancelled at the source
// meanwhile are cancelled in Belfry first.
func (i *Importer) ack(ctx context.Context, jobs []Job) error {
	if len(jobs) == 0 {
		return nil
	}
	reply, err := i.Script(ctx, i.source.Ack, []string{i.Handover}, fieldsOf(jobs)...)
	if err != nil {
		return err
	}
	places, err := reply.Int64Slice()
	if err != nil {
		return err
	}
	gone := make([]Job, 0, len(places))
	for _, place := range places {
		if place < 0 || place >= int64(len(jobs)) {
			return fmt.Errorf("the ack of %d jobs was answered with place %d", len(jobs), place)
		}
		gone = append(gone, jobs[place])
	}
	i.Counts.Acked += int64(len(jobs) - len(gone))
	i.report()
	if len(gone) == 0 {
		return nil
	}
	if err := pair.Each(ctx, gone, func(ctx context.Context, h Job) error {
		queue, id := i.from.PlaceOf(h)
		_, err := i.Belfry.Cancel(ctx, queue, id)
		if err != nil && !pair.IsGone(err) && !errors.Is(err, client.ErrJobReserved) {
			return fmt.Errorf("cancelling job %s, which ended at the source: %w", id, err)
		}
		return nil
	}); err != nil {
		return err
	}
	i.Counts.Gone += int64(len(gone))
	_, err = i.Script(ctx, pair.DropScript, []string{i.Handover}, fieldsOf(gone)...)
	return err
}

// refused gives back what Belfry cannot take and returns the first of it, or sets all aside.
func (i *Importer) refused(ctx context.Context, bad []refusal) error {
	if len(bad) == 0 {
		return nil
	}
	jobs := make([]Job, len(bad))
	for n, b := range bad {
		jobs[n] = b.job
	}
	if i.Options.SetAside {
		reply, err := i.Script(ctx, asideScript, []string{i.Handover, i.Aside}, fieldsOf(jobs)...)
		if err != nil {
			return err
		}
		moved, err := reply.Int64()
		i.Counts.SetAside += moved
		i.report()
		return err
	}
	slices.Reverse(jobs) // the first claimed is the first again
	_, err := i.Script(ctx, i.source.Restore, append([]string{i.Handover}, i.source.RestoreKeys...), fieldsOf(jobs)...)
	return errors.Join(fmt.Errorf("job %s cannot be brought over and was given back: %w", bad[0].job.Field,
		bad[0].why), err)
}

// Script is [pair.Link.Script]. After a slow one [Importer.Batch] is smaller.
func (i *Importer) Script(ctx context.Context, s *redis.Script, keys []string, args ...any) (*redis.Cmd, error) {
	reply, took, err := i.Link.Script(ctx, s, keys, args...)
	i.batch = pair.NextBatch(i.batch, took)
	return reply, err
}

// report tells how far the import is.
func (i *Importer) report() {
	i.Counts.Slowest = i.Slowest()
	i.Options.Progress(i.Counts)
}
