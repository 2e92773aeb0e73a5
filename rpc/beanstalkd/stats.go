package beanstalkd

import (
	"context"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/beanstalkd/protocol"
	"github.com/belfrydb/belfry/rpc/fault"
)

// stateName returns a state in beanstalkd's words.
func stateName(s fsm.State) string {
	switch s {
	case fsm.Delayed:
		return "delayed"
	case fsm.Reserved:
		return "reserved"
	case fsm.Dead:
		return "buried"
	default:
		return "ready"
	}
}

// wholeSeconds returns a duration in seconds, rounded down; 0 if it is negative.
func wholeSeconds(d time.Duration) uint64 { return uint64(max(0, d/time.Second)) } //nolint:gosec // not negative

// secondsLeft returns the whole seconds until a time. Times of a shard are rounded up to a
// millisecond, so that a lease of 10 s that has just begun would have 10 s left, where beanstalkd says 9.
func secondsLeft(until, now fsm.Time) uint64 { return wholeSeconds(until.Sub(now) - time.Millisecond) }

// statsJob shows a job in figures.
func (c *conn) statsJob(ctx context.Context, id uint64) *fault.Error {
	job, f := c.find(ctx, id, tokens.Consume, tokens.Put)
	if job == nil {
		return f
	}
	now := fsm.Time(time.Now().UnixNano())
	tube, _ := protocol.TubeOf(job.Queue)
	left := uint64(0)
	switch job.State {
	case fsm.Delayed:
		left = secondsLeft(job.Due, now)
	case fsm.Reserved:
		left = secondsLeft(job.Until, now)
	default:
	}
	uses := fsm.Uses{}
	if job.Uses != nil {
		uses = *job.Uses
	}
	var s protocol.Statistics
	s.Number("id", id)
	s.Text("tube", tube)
	s.Text("state", stateName(job.State))
	s.Number("pri", uint64(max(0, job.Priority))) //nolint:gosec // not negative
	s.Number("age", wholeSeconds(now.Sub(job.Created)))
	s.Number("delay", wholeSeconds(job.FirstDue.Sub(job.Created)))
	s.Number("ttr", wholeSeconds(job.TTR))
	s.Number("time-left", left)
	s.Number("file", 0)
	s.Number("reserves", uint64(uses.Reserves))
	s.Number("timeouts", uint64(uses.Lapses))
	s.Number("releases", uint64(uses.Releases))
	s.Number("buries", uint64(uses.Buries))
	s.Number("kicks", uint64(uses.Kicks))
	c.out = s.Append(c.out)
	return nil
}

// figures are the counts of one queue or several.
type figures struct {
	urgent, ready, reserved, delayed, buried, jobs, total, deleted, lapsed uint64
	pausedUntil                                                            fsm.Time
}

func (f *figures) add(q *fsm.Queue) {
	f.urgent += q.Urgent
	f.ready += q.Counts.Ready
	f.reserved += q.Counts.Reserved
	f.delayed += q.Counts.Delayed
	f.buried += q.Counts.Dead
	f.jobs += q.Counts.Jobs()
	f.total += q.Counters.Put
	f.deleted += q.Counters.Acked + q.Counters.Cancelled
	f.lapsed += q.Counters.Lapsed
	if q.Settings.Paused {
		f.pausedUntil = q.Settings.PausedUntil
	}
}

// write adds the counts of jobs to statistics.
func (f *figures) write(s *protocol.Statistics) {
	s.Number("current-jobs-urgent", f.urgent)
	s.Number("current-jobs-ready", f.ready)
	s.Number("current-jobs-reserved", f.reserved)
	s.Number("current-jobs-delayed", f.delayed)
	s.Number("current-jobs-buried", f.buried)
}

// query asks a shard.
func (c *conn) query(ctx context.Context, shard uint32, q fsm.Query) (r fsm.Reading, f *fault.Error) {
	router := &c.door.cfg.Router
	retry(ctx, func() *fault.Error {
		reading, _, err := router.Node.Query(ctx, shard, q)
		if r, f = reading, nil; err != nil {
			f = router.FaultAt(shard, err)
		}
		return f
	})
	return r, f
}

// figuresOf returns the counts of a queue.
func (c *conn) figuresOf(ctx context.Context, queue string) (sum figures, f *fault.Error) {
	for _, shard := range c.door.cfg.Router.Shards(queue) {
		r, f := c.query(ctx, shard, &fsm.QueueQuery{Queue: queue})
		if f != nil {
			return figures{}, f
		}
		for i := range r.Queues {
			sum.add(&r.Queues[i])
		}
	}
	return sum, nil
}

// statsTube shows a tube in figures.
func (c *conn) statsTube(ctx context.Context, tube string) *fault.Error {
	queue := protocol.QueueOf(tube)
	if f := c.door.cfg.Queues.Allow(ctx, tokens.View, queue); f != nil {
		return f
	}
	sum, f := c.figuresOf(ctx, queue)
	if f != nil {
		return f
	}
	ref, known := c.door.tubes.of(tube)
	if !known && sum.jobs == 0 {
		c.answer(protocol.NotFound)
		return nil
	}
	left := uint64(0)
	if sum.pausedUntil != 0 {
		left = wholeSeconds(time.Until(time.Unix(0, int64(sum.pausedUntil))) + time.Second - 1)
	}
	var s protocol.Statistics
	s.Text("name", tube)
	sum.write(&s)
	s.Number("total-jobs", sum.total)
	s.Number("current-using", uint64(ref.using))       //nolint:gosec // a count
	s.Number("current-watching", uint64(ref.watching)) //nolint:gosec // a count
	s.Number("current-waiting", uint64(ref.waiting))   //nolint:gosec // a count
	s.Number("cmd-delete", sum.deleted)
	s.Number("cmd-pause-tube", ref.pauses)
	s.Number("pause", left)
	s.Number("pause-time-left", left)
	c.out = s.Append(c.out)
	return nil
}

// tubesPageMax is how many queues of a shard are read at a time.
const tubesPageMax = 1000

// eachQueue calls f for each queue that the caller may view and that has a tube.
func (c *conn) eachQueue(ctx context.Context, each func(tube string, q *fsm.Queue)) *fault.Error {
	for shard := range c.door.cfg.Router.Node.ShardCount() {
		for after, more := "", true; more; {
			r, f := c.query(ctx, uint32(shard), &fsm.QueuesQuery{After: after, Max: tubesPageMax}) //nolint:gosec // a shard
			if f != nil {
				return f
			}
			for i := range r.Queues {
				q := &r.Queues[i]
				after = q.Name
				if tube, ok := protocol.TubeOf(q.Name); ok && c.door.cfg.Queues.Allow(ctx, tokens.View, q.Name) == nil {
					each(tube, q)
				}
			}
			more = r.More && len(r.Queues) > 0
		}
	}
	return nil
}

// listTubes lists the tubes that have jobs or are referred to.
func (c *conn) listTubes(ctx context.Context) *fault.Error {
	names := c.door.tubes.names()
	if f := c.eachQueue(ctx, func(tube string, q *fsm.Queue) {
		if q.Counts.Jobs() > 0 {
			names[tube] = true
		}
	}); f != nil {
		return f
	}
	names[defaultTube] = true
	list := slices.Sorted(maps.Keys(names))
	c.out = protocol.AppendTubes(c.out, list)
	return nil
}

// stats shows the system in figures: jobs of the whole cluster, commands and connections of this node.
func (c *conn) stats(ctx context.Context) *fault.Error {
	var sum figures
	names := c.door.tubes.names()
	if f := c.eachQueue(ctx, func(tube string, q *fsm.Queue) {
		sum.add(q)
		if q.Counts.Jobs() > 0 {
			names[tube] = true
		}
	}); f != nil {
		return f
	}
	names[defaultTube] = true
	d := c.door
	var s protocol.Statistics
	sum.write(&s)
	for _, op := range statsOps {
		s.Number("cmd-"+op.String(), d.counts.commands[op].Load())
	}
	s.Number("job-timeouts", sum.lapsed)
	s.Number("total-jobs", sum.total)
	s.Number("max-job-size", uint64(d.cfg.JobBytesMax)) //nolint:gosec // above 0
	s.Number("current-tubes", uint64(len(names)))
	open := d.kinds()
	s.Number("current-connections", open.all)
	s.Number("current-producers", open.producers)
	s.Number("current-workers", open.workers)
	s.Number("current-waiting", open.waiting)
	s.Number("total-connections", d.counts.connections.Load())
	s.Number("pid", uint64(os.Getpid()))               //nolint:gosec // above 0
	s.Text("version", strconv.Quote(protocol.Version)) // libraries decide by it what they may ask for
	s.Text("belfry-version", strconv.Quote(d.cfg.Version))
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // zeros if that fails
	s.Text("rusage-utime", seconds6(used.Utime))
	s.Text("rusage-stime", seconds6(used.Stime))
	s.Number("uptime", wholeSeconds(time.Since(d.began)))
	for _, name := range []string{
		"binlog-oldest-index", "binlog-current-index", "binlog-records-migrated", "binlog-records-written", "binlog-max-size",
	} {
		s.Number(name, 0) // for programs that read them
	}
	s.Text("draining", strconv.FormatBool(d.cfg.Drain.HasStarted()))
	s.Text("id", d.requests[:16])
	host, _ := os.Hostname() // empty if that fails
	s.Text("hostname", host)
	s.Text("os", runtime.GOOS)
	s.Text("platform", runtime.GOARCH)
	c.out = s.Append(c.out)
	return nil
}

// statsOps are the commands that stats counts, in beanstalkd's order.
var statsOps = [...]protocol.Op{ //nolint:gochecknoglobals // a table that nothing changes
	protocol.Put, protocol.Peek, protocol.PeekReady, protocol.PeekDelayed, protocol.PeekBuried, protocol.Reserve,
	protocol.ReserveWithTimeout, protocol.Delete, protocol.Release, protocol.Use, protocol.Watch, protocol.Ignore,
	protocol.Bury, protocol.Kick, protocol.Touch, protocol.Stats, protocol.StatsJob, protocol.StatsTube,
	protocol.ListTubes, protocol.ListTubeUsed, protocol.ListTubesWatched, protocol.PauseTube,
}

// seconds6 formats a time that the system counted.
func seconds6(t syscall.Timeval) string {
	return strconv.FormatFloat(float64(t.Sec)+float64(t.Usec)/1e6, 'f', 6, 64)
}
