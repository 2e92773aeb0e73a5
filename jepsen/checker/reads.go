package checker

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// read is one shard's part of an answered read. It is held against the machine when the replay is
// at its index.
type read struct {
	op      *history.Op
	witness *belfryv1.Witness
	parts   *parts
}

// parts are what the shards give of one read.
type parts struct {
	mu     sync.Mutex
	queues []fsm.Queue
	// found says which of the listed jobs a shard has.
	found []bool
	left  int
}

// collectReads finds the reads of each shard, in the order of their indexes.
func (c *check) collectReads() {
	for _, o := range c.ops {
		if !o.OK() {
			continue
		}
		var p *parts
		add := func(w *belfryv1.Witness) {
			p.left++
			c.reads[w.GetShard()] = append(c.reads[w.GetShard()], &read{op: o, witness: w, parts: p})
		}
		switch resp := o.Response.(type) {
		case *belfryv1.GetResponse, *belfryv1.GetQueueResponse:
			p = &parts{}
			wire.EachWitness(o.Response, add)
		case *belfryv1.ListResponse:
			p = &parts{found: make([]bool, len(resp.GetJobs()))}
			wire.EachWitness(resp, add)
		}
		if p != nil && p.left > 0 {
			c.partial = append(c.partial, partial{o, p})
		}
	}
	c.sortReads()
}

// partial is a read with what its shards gave.
type partial struct {
	op    *history.Op
	parts *parts
}

// readUpTo judges the reads up to an index, which the machine is at, and returns the rest.
func (c *check) readUpTo(l *shardLog, m *machine.Machine, reads []*read, index uint64) []*read {
	for len(reads) > 0 && reads[0].witness.GetIndex() <= index {
		r := reads[0]
		reads = reads[1:]
		l.found.Look(34)
		if r.witness.GetIndex() != m.Index() {
			l.found.Violated(34, r.op.Returned, "%s was answered from entry %d of shard %d, which the journals lack",
				wire.Describe(r.op), r.witness.GetIndex(), l.shard)
			continue
		}
		if at := wire.TimeOf(r.witness.GetTime()); at != m.Clock() {
			l.found.Violated(34, r.op.Returned, "%s was answered from %s at shard time %d, which was at %d", wire.Describe(r.op),
				wire.TextOf(r.witness), at, m.Clock())
		}
		c.judgeRead(l, m, r)
	}
	return reads
}

// window is when a read may have been evaluated: from the shard's time to the time that the leader
// may have stamped when it was answered, or that it was for a node that answers as it is.
func (c *check) window(m *machine.Machine, o *history.Op) (from, to fsm.Time) {
	ahead := c.ahead.at(o.Returned)
	if wire.Stale(o.Response) {
		ahead = c.aheadAlone(o.Returned)
	}
	return m.Clock(), max(m.Clock(), c.at(o.Returned+ahead))
}

func (c *check) judgeRead(l *shardLog, m *machine.Machine, r *read) {
	switch resp := r.op.Response.(type) {
	case *belfryv1.GetResponse:
		if why := c.judgeJob(l, m, r.op, resp.GetJob()); why != "" {
			l.found.Violated(34, r.op.Returned, "%s was answered from %s: %s", wire.Describe(r.op), wire.TextOf(r.witness), why)
		}
	case *belfryv1.GetQueueResponse:
		if v, ok := m.Queue(resp.GetQueue().GetName(), m.Clock()); ok {
			r.parts.mu.Lock()
			r.parts.queues = append(r.parts.queues, v)
			r.parts.mu.Unlock()
		}
	case *belfryv1.ListResponse:
		c.judgeList(l, m, r, resp)
	}
}

const (
	// holdersFormat is the format from which on a job knows its holder and its failed attempts.
	holdersFormat fsm.Format = 3
	// formatWithin is how soon every node asks in a new format. Until then a reading through it may lack
	// what the format has more.
	formatWithin = 5 * time.Second
)

// judgeJob says what is wrong with a job that was read; empty if nothing is.
func (c *check) judgeJob(l *shardLog, m *machine.Machine, o *history.Op, job *belfryv1.Job) string {
	from, to := c.window(m, o)
	at := func(now fsm.Time) string {
		reading := m.Answer(&fsm.JobQuery{Queue: job.GetQueue(), ID: job.GetId(), Key: job.GetKey()}, now)
		if len(reading.Jobs) == 0 {
			return "there is no such job"
		}
		want := &reading.Jobs[0]
		if job.GetReservedAt() == nil && len(job.GetAttempts()) == 0 && o.Invoked < l.holdersFrom+formatWithin {
			want.Client, want.Leased, want.Attempts = "", 0, nil
		}
		return otherJob(job, want)
	}
	why := at(from)
	if why == "" {
		return ""
	}
	v, _ := m.Job(job.GetQueue(), job.GetId(), from)
	for _, now := range [...]fsm.Time{to, v.Due, v.Until, v.TTL} {
		if from < now && now <= to && at(now) == "" {
			return ""
		}
	}
	return why
}

// otherJob says what of a job that was read is not as the machine has it; empty if nothing is.
func otherJob(got *belfryv1.Job, want *fsm.Job) string {
	until := fsm.Time(0)
	if want.State == fsm.Reserved {
		until = wire.FloorTime(want.Until)
	}
	switch {
	case got.GetState() != wire.StateOf(want.State):
		return "the state is " + got.GetState().String() + ", should be " + wire.StateOf(want.State).String()
	case wire.TimeOf(got.GetDueAt()) != wire.CeilTime(want.Due):
		return "the due time is another"
	case got.GetFence() != want.Fence, got.GetAttempt() != want.Attempt:
		return "fence or attempt are others"
	case wire.TimeOf(got.GetLeaseUntil()) != until:
		return "the end of the lease is another"
	case got.GetBody() != nil && !bytes.Equal(wire.BodyOf(got.GetText(), got.GetData()), want.Body):
		return "the body is another"
	case !wire.SameHeaders(got.GetHeaders(), want.Headers):
		return "the headers are others"
	case got.GetLastError() != want.LastError:
		return "the last error is another"
	case wire.TimeOf(got.GetExpiresAt()) != wire.FloorTime(want.TTL),
		wire.TimeOf(got.GetCreatedAt()) != wire.FloorTime(want.Created):
		return "its times are others"
	case wire.TimeOf(got.GetFirstDueAt()) != wire.CeilTime(want.FirstDue), got.GetMaxAttempts() != want.MaxAttempts,
		got.GetBodyBytes() != want.BodyBytes:
		return "what it was put with is another"
	case got.GetClient() != want.Client, wire.TimeOf(got.GetReservedAt()) != wire.FloorTime(want.Leased):
		return "who holds it is another"
	case got.GetKey() != want.Key, got.GetVersion() != max(want.Version, 1):
		return "key or version are others"
	case got.GetNext().GetVersion() != nextVersion(want):
		return "what follows it is another"
	case !slices.EqualFunc(got.GetAttempts(), want.Attempts, sameAttempt):
		return "the failed attempts are others"
	case got.GetTtr().AsDuration() != want.TTR, len(got.GetRetryDelays()) != len(want.RetryDelays):
		return "its lengths are others"
	}
	return ""
}

// nextVersion is the version of what follows a job, 0 for nothing.
func nextVersion(j *fsm.Job) uint64 {
	if j.Next == nil {
		return 0
	}
	return j.Next.Version
}

// sameAttempt reports whether a failed attempt is as the machine has it.
func sameAttempt(got *belfryv1.Attempt, want fsm.Attempt) bool {
	return got.GetNumber() == want.Number && wire.TimeOf(got.GetBeganAt()) == wire.FloorTime(want.Began) &&
		wire.TimeOf(got.GetEndedAt()) == wire.FloorTime(want.Ended) && got.GetLapsed() == want.Lapsed &&
		got.GetClient() == want.Client && got.GetError() == want.Error
}

// judgeList holds a page of a list against one shard: what it lists of the shard is so, in order,
// and nothing is left out that was there all the time.
func (c *check) judgeList(l *shardLog, m *machine.Machine, r *read, resp *belfryv1.ListResponse) {
	req, ok := r.op.Request.(*belfryv1.ListRequest)
	if !ok {
		return
	}
	listed := map[string]bool{}
	var last fsm.Time
	for i, job := range resp.GetJobs() {
		if due := wire.TimeOf(job.GetDueAt()); due < last {
			l.found.Violated(34, r.op.Returned, "%s lists job %s, due at %d, after one that is due at %d", wire.Describe(r.op),
				job.GetId(), due, last)
		} else {
			last = due
		}
		listed[job.GetId()] = true
		if c.judgeJob(l, m, r.op, job) == "" {
			r.parts.mu.Lock()
			r.parts.found[i] = true
			r.parts.mu.Unlock()
		}
	}
	if req.GetPageToken() != "" || resp.GetNextPageToken() != "" {
		return
	}
	state := fsm.Delayed
	for _, s := range [...]fsm.State{fsm.Ready, fsm.Reserved, fsm.Dead} {
		if wire.StateOf(s) == req.GetState() {
			state = s
		}
	}
	query := &fsm.ListQuery{Queue: req.GetQueue(), State: state, DueAfter: wire.TimeOf(req.GetDueAfter()),
		DueBefore: wire.TimeOf(req.GetDueBefore()), Max: 1 << 20}
	from, to := c.window(m, r.op)
	jobs, _ := m.List(query, from)
	for i := range jobs {
		j := &jobs[i]
		if then, ok := m.Job(j.Queue, j.ID, to); !ok || then.State != j.State || then.Due != j.Due || listed[j.ID] {
			continue
		}
		l.found.Violated(34, r.op.Returned, "%s leaves out job %s, which was there", wire.Describe(r.op), j.ID)
	}
}

// judgeReads judges what only all parts of a read tell.
func (c *check) judgeReads() {
	for _, p := range c.partial {
		switch resp := p.op.Response.(type) {
		case *belfryv1.ListResponse:
			for i, ok := range p.parts.found {
				if !ok {
					c.found.Violated(34, p.op.Returned, "%s lists job %s otherwise than any shard had it", wire.Describe(p.op),
						resp.GetJobs()[i].GetId())
				}
			}
		case *belfryv1.GetQueueResponse:
			c.judgeQueue(p.op, resp, p.parts)
		}
	}
}

// judgeQueue holds the counters of a queue against what its shards had.
func (c *check) judgeQueue(o *history.Op, resp *belfryv1.GetQueueResponse, p *parts) {
	var counts fsm.Counts
	var totals fsm.Counters
	for i := range p.queues {
		q := &p.queues[i]
		counts.Delayed += q.Counts.Delayed
		counts.Ready += q.Counts.Ready
		counts.Reserved += q.Counts.Reserved
		counts.Dead += q.Counts.Dead
		counts.Bytes += q.Counts.Bytes
		totals.Put += q.Counters.Put
		totals.Granted += q.Counters.Granted
		totals.Acked += q.Counters.Acked
		totals.Nacked += q.Counters.Nacked
		totals.Lapsed += q.Counters.Lapsed
		totals.Released += q.Counters.Released
		totals.Died += q.Counters.Died
		totals.Cancelled += q.Counters.Cancelled + q.Counters.Purged
		totals.Expired += q.Counters.Expired
		totals.Redriven += q.Counters.Redriven
	}
	got, t := resp.GetQueue().GetCounts(), resp.GetQueue().GetTotals()
	c.found.Look(33)
	shown := fsm.Counts{Delayed: uint64(got.GetDelayed()), Ready: uint64(got.GetReady()),
		Reserved: uint64(got.GetReserved()), Dead: uint64(got.GetDead()), Bytes: resp.GetQueue().GetBytes()}
	if shown != counts {
		c.found.Violated(33, o.Returned, "%s shows %+v, the log gives %+v", wire.Describe(o), shown, counts)
	}
	told := fsm.Counters{
		Put: t.GetPuts(), Granted: t.GetReserves(), Acked: t.GetAcks(), Nacked: t.GetNacks(), Lapsed: t.GetLapses(),
		Released: t.GetReleases(), Died: t.GetDeaths(),
		Cancelled: t.GetCancels(), Expired: t.GetExpiries(), Redriven: t.GetRedrives(),
	}
	if told != totals {
		c.found.Violated(33, o.Returned, "%s shows totals %+v, the log gives %+v", wire.Describe(o), told, totals)
	}
}
