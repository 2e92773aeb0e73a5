package checker

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// recovery is how long after the last fault everything is to be as before.
	recovery = 5 * time.Second
	// lateMax is how long at most a client may wait for a job that is there, with nothing wrong: less
	// than those of the workload wait, or none could.
	lateMax = 3 * time.Second
	// slowMax is how long most clients may: a violation is more than one in slowShare, and at least
	// slowLeast of them.
	slowMax   = time.Second
	slowShare = 20
	slowLeast = 10
)

// callers looks at what calls were told of each other's jobs, by true time alone.
func (c *check) callers(found *finding.Set) {
	c.holders(found)
	c.ids(found)
}

// clients looks at how long clients waited, and at what they did not find, by what the log says was
// there.
func (c *check) clients(found *finding.Set) {
	c.missing(found)
	c.lateness(found)
	c.waits(found)
}

// jobName is a job as a client knows it.
type jobName struct {
	queue     string
	partition uint32
	serial    uint64
}

// held is one lease as a call was handed it.
type held struct {
	jobName
	fence uint64
	// told is when the client had heard of it; asked when that call was sent.
	asked, told time.Duration
	token       string
	op          *history.Op
	// acks are the calls that acked it and were answered ok.
	acks []*history.Op
}

// holders checks by true time alone that of two leases of a job the later one had the job to
// itself, and that an acked job was not handed out again. Most jobs are handed out once, so those
// that were not are found first.
func (c *check) holders(found *finding.Set) {
	seed := maphash.MakeSeed()
	var room []byte
	key := func(h *held, number uint64) uint64 {
		room = append(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(room[:0], number), h.partition),
			h.queue...)
		return maphash.Bytes(seed, room)
	}
	all := c.handed()
	times := make(map[uint64]int32, len(all))
	fences := make(map[uint64]uint64, len(all))
	for i := range all {
		h := &all[i]
		times[key(h, h.serial)]++
		k := key(h, h.fence)
		if serial, ok := fences[k]; ok && serial != h.serial {
			found.Violated(6, h.told, "%s was handed job %d of %s with fence %d, with which job %d had been handed out",
				wire.Describe(h.op), h.serial, h.queue, h.fence, serial)
		}
		fences[k] = h.serial
	}
	found.LookMany(15, int64(len(times)))
	found.LookMany(19, int64(len(times)))
	jobs := map[jobName][]*held{}
	tokens := map[string]*held{}
	for i := range all {
		if h := &all[i]; times[key(h, h.serial)] > 1 {
			jobs[h.jobName] = append(jobs[h.jobName], h)
			if tokens[h.token] == nil { // a repeat may be handed the same
				tokens[h.token] = h
			}
		}
	}
	if len(jobs) == 0 {
		return
	}
	for _, o := range c.ops {
		eachAcked(o, func(token string) {
			if h := tokens[token]; h != nil {
				h.acks = append(h.acks, o)
			}
		})
	}
	for name, leases := range jobs {
		c.judgeHolders(found, name, leases)
	}
}

// handed are all leases that calls were handed.
func (c *check) handed() (all []held) {
	for _, o := range c.ops {
		resp, _ := o.Response.(*belfryv1.ReserveResponse)
		for _, job := range resp.GetJobs() {
			if ref, ok := wire.ParseLease(job.GetLease()); ok {
				all = append(all, held{
					jobName: jobName{ref.Queue, ref.Partition, ref.Serial}, fence: ref.Fence, asked: o.Invoked, told: o.Returned,
					token: job.GetLease(), op: o,
				})
			}
		}
	}
	return all
}

// eachAcked calls f for each lease that a call acked, by its answer.
func eachAcked(o *history.Op, f func(token string)) {
	switch resp := o.Response.(type) {
	case *belfryv1.AckResponse:
		if req, ok := o.Request.(*belfryv1.AckRequest); ok {
			f(req.GetLease())
		}
	case *belfryv1.AckBatchResponse:
		req, ok := o.Request.(*belfryv1.AckBatchRequest)
		for i, one := range resp.GetResults() {
			if ok && one.GetAck() != nil && i < len(req.GetLeases()) {
				f(req.GetLeases()[i])
			}
		}
	}
}

func (c *check) judgeHolders(found *finding.Set, name jobName, leases []*held) {
	slices.SortFunc(leases, func(a, b *held) int { return cmp.Compare(a.fence, b.fence) })
	for i := range leases {
		for k := range leases {
			early, late := leases[i], leases[k]
			for _, ack := range early.acks {
				switch {
				case early.fence < late.fence && ack.Invoked > late.told:
					found.Violated(15, ack.Returned, "job %d of %s: %s was answered ok with fence %d, sent after fence %d had been "+
						"handed out to %s",
						name.serial, name.queue, wire.Describe(ack), early.fence, late.fence, wire.Describe(late.op))
				case early.fence != late.fence && late.asked > ack.Returned:
					found.Violated(19, late.told, "job %d of %s was handed out by %s, sent after %s had been answered ok", name.serial,
						name.queue, wire.Describe(late.op), wire.Describe(ack))
				}
			}
		}
	}
}

// ids checks that no two puts got the same id of the server's making. A repeat gets that of its
// first.
func (c *check) ids(found *finding.Set) {
	type made struct {
		requestID string
		entry     int
		op        *history.Op
	}
	jobs := map[idName]made{}
	one := func(o *history.Op, req *belfryv1.PutRequest, requestID string, entry int, resp *belfryv1.PutResponse) {
		if req.GetId() != "" || !resp.GetCreated() {
			return
		}
		found.Look(6)
		n := idName{req.GetQueue(), resp.GetId()}
		if first, ok := jobs[n]; ok && (requestID == "" || first.requestID != requestID || first.entry != entry) {
			found.Violated(6, o.Returned, "%s was given the id %s of %s, which %s had been given", wire.Describe(o), n.id,
				n.queue,
				wire.Describe(first.op))
		}
		jobs[n] = made{requestID, entry, o}
	}
	for _, o := range c.ops {
		switch resp := o.Response.(type) {
		case *belfryv1.PutResponse:
			if req, ok := o.Request.(*belfryv1.PutRequest); ok {
				one(o, req, req.GetRequestId(), 0, resp)
			}
		case *belfryv1.PutBatchResponse:
			req, ok := o.Request.(*belfryv1.PutBatchRequest)
			for i, r := range resp.GetResults() {
				if ok && r.GetPut() != nil && i < len(req.GetJobs()) {
					one(o, req.GetJobs()[i], req.GetRequestId(), i, r.GetPut())
				}
			}
		}
	}
}

// missing checks that no job was said not to be there which was there from before a read was sent
// until after it was answered. Such an answer has no witness.
func (c *check) missing(found *finding.Set) {
	asked := map[idName][]*history.Op{}
	for _, o := range c.ops {
		req, ok := o.Request.(*belfryv1.GetRequest)
		if ok && !o.OK() && o.Reason == belfryv1.Reason_REASON_JOB_NOT_FOUND && !req.GetStale() {
			n := idName{req.GetQueue(), req.GetId()}
			asked[n] = append(asked[n], o)
		}
	}
	if len(asked) == 0 {
		return
	}
	for _, shard := range c.order_ {
		for _, a := range c.shards[shard].books.Jobs() {
			for _, o := range asked[idName{a.Queue.Name, a.Name()}] {
				found.Look(34)
				if key := keyOf(o); key != "" && key != a.Put.Key {
					continue
				}
				there := a.PutAt != 0 && a.PutAt < c.at(o.Invoked) && (a.EndedAt == 0 || a.EndedAt > c.at(o.Returned))
				if there && !a.Put.Given.Has(fsm.GivenTTL) && a.Queue.Settings.Overdue != fsm.DropOverdue {
					found.Violated(34, o.Returned, "%s found no job, and it was there", wire.Describe(o))
				}
			}
		}
	}
}

// keyOf is the key that a read named.
func keyOf(o *history.Op) string {
	req, _ := o.Request.(*belfryv1.GetRequest)
	return req.GetKey()
}

// span is a time in which a job was there for anybody, by the log.
type span struct {
	from, to time.Duration
	serial   uint64
}

// calm are the spans in which nothing had been wrong for a while: between the faults, and after the
// last.
func (c *check) calm() (spans []Span) {
	faults := slices.Clone(c.run.Faults)
	slices.SortFunc(faults, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	from, until := time.Duration(recovery), time.Duration(0)
	if faults == nil {
		from += c.run.Healed
	}
	for _, o := range c.ops {
		until = max(until, o.Returned)
	}
	for _, f := range faults {
		if f.From > from {
			spans = append(spans, Span{from, f.From})
		}
		from = max(from, f.To+recovery)
	}
	if until > from {
		spans = append(spans, Span{from, until})
	}
	return spans
}

// tally counts what was quick enough and what was not. A busy machine makes some things slow, a
// mistake makes many of them slow.
type tally struct {
	which      finding.Invariant
	seen, slow int64
	last       time.Duration
	example    string
}

// add counts one thing, of which text says what it was if it took long; what took longer than
// lateMax is a violation by itself.
func (t *tally) add(found *finding.Set, at, took time.Duration, text func() string) {
	t.seen++
	found.Look(t.which)
	if took > lateMax {
		found.Violated(t.which, at, "%s, for %v", text(), took)
	}
	if took > slowMax {
		t.slow++
		t.last, t.example = at, text()
	}
}

// judge says whether too many were slow.
func (t *tally) judge(found *finding.Set) {
	if t.slow >= slowLeast && t.slow*slowShare > t.seen {
		found.Violated(t.which, t.last, "%d of %d took longer than %v with nothing wrong, the last of them: %s", t.slow,
			t.seen, slowMax, t.example)
	}
}

// waits checks that no client waits in vain for a due job while nothing is wrong.
func (c *check) waits(found *finding.Set) {
	lost, late := tally{which: 12}, tally{which: 11}
	all := c.idle()
	waiting := slices.DeleteFunc(slices.Clone(c.ops), func(o *history.Op) bool {
		req, ok := o.Request.(*belfryv1.ReserveRequest)
		return !ok || req.GetWait() == nil
	})
	for _, calm := range c.calm() {
		idle := within(calm, all)
		for _, o := range waiting {
			req, _ := o.Request.(*belfryv1.ReserveRequest)
			resp, answered := o.Response.(*belfryv1.ReserveResponse)
			if !answered || o.Returned < calm.From || o.Invoked > calm.To {
				continue
			}
			from, to := max(o.Invoked, calm.From), min(o.Returned, calm.To)
			if to-from > slowMax { // none of the others can have waited in vain for too long
				took, serial := missed(idle, req, Span{from, to})
				lost.add(found, o.Returned, took, func() string {
					return fmt.Sprintf("%s waited while job %d was there for anybody", wire.Describe(o), serial)
				})
			}
			for _, job := range resp.GetJobs() {
				if l := c.leaseOf(job); l != nil && o.Returned <= calm.To {
					since := max(c.since(l.Since), from)
					late.add(found, o.Returned, o.Returned-since, func() string {
						return fmt.Sprintf("%s had waited for job %s of %s, which was there", wire.Describe(o), job.GetId(),
							job.GetQueue())
					})
				}
			}
		}
	}
	lost.judge(found)
	late.judge(found)
}

// missed is for how long a job was there for anybody while a call waited, and which.
func missed(idle map[string][]span, req *belfryv1.ReserveRequest, waited Span) (took time.Duration, serial uint64) {
	for _, q := range req.GetQueues() {
		for _, s := range idle[q] {
			if over := min(waited.To, s.to) - max(waited.From, s.from); over > took {
				took, serial = over, s.serial
			}
		}
	}
	return took, serial
}

// leaseOf is what the books have of the lease of a job that was handed out; nil if it is not known,
// or if its queue held jobs back.
func (c *check) leaseOf(job *belfryv1.Job) *ledger.Lease {
	ref, _ := wire.ParseLease(job.GetLease())
	l := c.shards[job.GetWitness().GetShard()]
	if l == nil {
		return nil
	}
	held := l.books.Lease(ref.Fence)
	if held == nil || held.Job.Queue.Withheld {
		return nil
	}
	return held
}

// idle returns for each queue the times in which a job was there for longer than anybody should
// wait for it.
func (c *check) idle() map[string][]span {
	idle := map[string][]span{}
	for _, shard := range c.order_ {
		l := c.shards[shard]
		add := func(q *ledger.Queue, from fsm.Time, to time.Duration, serial uint64) {
			if s := (span{c.since(from), to, serial}); s.to-s.from > slowMax && !q.Withheld {
				idle[q.Name] = append(idle[q.Name], s)
			}
		}
		for _, g := range l.books.Leases() {
			add(g.Job.Queue, g.Since, c.since(g.Command.Entry.At), g.Job.Serial)
		}
		for _, a := range l.books.Jobs() {
			if a.State == fsm.Ready || a.State == fsm.Delayed {
				add(a.Queue, a.AvailableSince(), 1<<62, a.Serial)
			}
		}
	}
	return idle
}

// within returns the spans that overlap with a calm one for longer than anybody should wait.
func within(calm Span, idle map[string][]span) map[string][]span {
	part := make(map[string][]span, len(idle))
	for q, spans := range idle {
		for _, s := range spans {
			if min(calm.To, s.to)-max(calm.From, s.from) > slowMax {
				part[q] = append(part[q], s)
			}
		}
	}
	return part
}

// lateness reports how late first attempts were, in thousandths of a second of shard time.
func (c *check) lateness(found *finding.Set) {
	var late []int64
	for _, shard := range c.order_ {
		for _, g := range c.shards[shard].books.Leases() {
			if g.Attempt == 1 {
				late = append(late, g.Command.Entry.Clock.Sub(g.Since).Milliseconds())
			}
		}
	}
	if len(late) == 0 {
		return
	}
	slices.Sort(late)
	found.Count("lateness p50 (ms)", late[len(late)/2])
	found.Count("lateness p99.9 (ms)", late[len(late)*999/1000])
	found.Count("lateness max (ms)", late[len(late)-1])
}
