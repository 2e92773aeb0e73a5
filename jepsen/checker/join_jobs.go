package checker

import (
	"bytes"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/belfrydb/belfry/jepsen/checker/lifecycle"
	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// put joins an answered put.
func (j *joiner) put(req *belfryv1.PutRequest, requestID string, resp *belfryv1.PutResponse) {
	j.found.Look(1)
	put, one := loggedAs[*fsm.Put](j, resp.GetWitness(), requestID)
	if one == nil {
		j.violated(1, "job %q of %s was put, and the log does not have it", req.GetId(), req.GetQueue())
		return
	}
	if !j.ok(one, resp.GetWitness()) {
		return
	}
	if !samePut(req, put) {
		if j.batch {
			j.violated(7, "an entry of a batch is answered with %s, which is another put: %s %q", wire.TextOf(resp.GetWitness()),
				put.Queue, put.ID)
		}
		j.violated(2, "%s has another put than was sent: %s %q", wire.TextOf(resp.GetWitness()), put.Queue, put.ID)
	}
	if one.Job == nil {
		j.violated(1, "%s made no job that is known", wire.TextOf(resp.GetWitness()))
	}
	r := &one.Result
	told := lifecycle.Event{Kind: lifecycle.Put, OK: true, Created: resp.GetCreated(), Due: wire.TimeOf(resp.GetDueAt()),
		Put: put, Version: resp.GetVersion()}
	if resp.GetReplaced() {
		told.Kind = replacing(resp.GetState() == belfryv1.JobState_JOB_STATE_RESERVED)
	}
	j.tellAt(one, resp.GetWitness(), told)
	id := put.ID
	if id == "" {
		id = fsm.FormatID(r.Partition, r.Serial)
	}
	same(j, point{36, "the id", ""}, resp.GetId(), id)
	same(j, point{36, "created", ""}, resp.GetCreated(), r.Created)
	same(j, point{45, "replaced", ""}, resp.GetReplaced(), r.Replaced)
	version := r.Version
	if r.Created {
		version = max(1, version) // a put of an earlier format has none
	}
	same(j, point{45, "the version", ""}, resp.GetVersion(), version)
	same(j, point{36, "the state", ""}, resp.GetState(), wire.StateOf(r.State))
	same(j, point{36, "the due time", ""}, wire.TimeOf(resp.GetDueAt()), wire.CeilTime(r.Due))
}

// samePut reports whether a logged put is the one that was sent.
func samePut(req *belfryv1.PutRequest, put *fsm.Put) bool {
	if put.Queue != req.GetQueue() || put.ID != req.GetId() || put.Again != req.GetAgain() || put.Key != req.GetKey() ||
		put.OnExisting != wire.OnExistingOf(req.GetOnExisting()) || put.IfVersion != req.GetIfVersion() ||
		put.MaxWait != req.GetMaxWait().AsDuration() {
		return false
	}
	want := fsm.Put{Body: wire.BodyOf(req.GetText(), req.GetData())}
	if req.GetDelay() != nil {
		want.Given, want.Delay = want.Given|fsm.GivenDelay, wire.CeilDelay(req.GetDelay())
	} else if req.GetDueAt() != nil {
		want.Given, want.DueAt = want.Given|fsm.GivenDueAt, wire.DueOf(req.GetDueAt())
	}
	if req.GetTtr() != nil {
		want.Given, want.TTR = want.Given|fsm.GivenTTR, req.GetTtr().AsDuration()
	}
	if req.Priority != nil {
		//nolint:gosec // what is out of range was refused
		want.Given, want.Priority = want.Given|fsm.GivenPriority, int64(req.GetPriority())
	}
	if req.MaxAttempts != nil {
		want.Given, want.MaxAttempts = want.Given|fsm.GivenMaxAttempts, req.GetMaxAttempts()
	}
	if len(req.GetRetryDelays()) > 0 {
		want.Given |= fsm.GivenRetryDelays
		for _, d := range req.GetRetryDelays() {
			want.RetryDelays = append(want.RetryDelays, d.AsDuration())
		}
	}
	if req.GetTtl() != nil {
		want.Given, want.TTL = want.Given|fsm.GivenTTL, req.GetTtl().AsDuration()
	}
	for name, value := range req.GetHeaders() {
		want.Headers = append(want.Headers, fsm.Header{Name: name, Value: value})
	}
	slices.SortFunc(want.Headers, func(a, b fsm.Header) int { return strings.Compare(a.Name, b.Name) })
	return ledger.SameContent(put, &want)
}

// putBatch joins an answered batch of puts: each entry as if it had been put alone.
func (j *joiner) putBatch(req *belfryv1.PutBatchRequest, resp *belfryv1.PutBatchResponse) {
	if len(resp.GetResults()) != len(req.GetJobs()) {
		j.violated(7, "a batch of %d puts has %d results", len(req.GetJobs()), len(resp.GetResults()))
		return
	}
	j.batch = true
	defer func() { j.batch = false }()
	for i, one := range resp.GetResults() {
		j.found.Look(7)
		switch {
		case one.GetPut() != nil:
			j.put(req.GetJobs()[i], req.GetRequestId(), one.GetPut())
		case one.GetError() == nil:
			j.violated(7, "entry %d of a batch has no result", i)
		case one.GetError().GetWitness() != nil:
			j.refusal(one.GetError().GetReason(), one.GetError().GetWitness())
		}
	}
}

// reserve joins the jobs that a call was handed.
func (j *joiner) reserve(req *belfryv1.ReserveRequest, resp *belfryv1.ReserveResponse) {
	if most := max(1, req.GetMaxJobs()); len(resp.GetJobs()) > int(most) {
		j.violated(37, "%d jobs were handed out, %d were asked for", len(resp.GetJobs()), most)
	}
	for _, job := range resp.GetJobs() {
		j.found.Count("jobs handed out", 1)
		if !slices.Contains(req.GetQueues(), job.GetQueue()) {
			j.violated(37, "job %s of %s was handed out, a queue that was not asked for", job.GetId(), job.GetQueue())
		}
		if l := j.granted(req, job); l != nil {
			j.job(l, job)
			j.early(l)
		}
	}
	j.omitted(resp)
	for _, w := range resp.GetWitnesses() {
		if reserve, one := loggedAs[*fsm.Reserve](j, w, req.GetRequestId()); one != nil {
			j.asked(req, reserve)
		}
	}
}

// omitted looks for grants of a call that it was not handed. Those that were over before the call
// ended may be missing.
func (j *joiner) omitted(resp *belfryv1.ReserveResponse) {
	ws := resp.GetWitnesses()
	if jobs := resp.GetJobs(); len(jobs) > 0 {
		ws = []*belfryv1.Witness{jobs[0].GetWitness()}
	}
	for _, w := range ws {
		l := j.c.shards[w.GetShard()]
		if l == nil {
			continue
		}
		one := l.at(w.GetIndex(), w.GetEntry())
		if one == nil || one.Result.Replayed {
			continue
		}
		for i := range one.Result.Grants {
			g := l.books.Lease(one.Result.Grants[i].Fence)
			handed := slices.ContainsFunc(resp.GetJobs(), func(job *belfryv1.Job) bool {
				return job.GetFence() == g.Fence && job.GetWitness().GetShard() == w.GetShard()
			})
			returned := j.c.at(j.op.Returned)
			if handed || g.Until <= returned || g.EndedAt != 0 && g.EndedAt <= returned {
				continue
			}
			j.violated(14, "job %d of %s was granted to it with fence %d by %s, and it was not handed out", g.Job.Serial,
				g.Job.Queue.Name, g.Fence, wire.TextOf(w))
		}
	}
}

// asked holds a logged Reserve against what was sent. The edge asks each shard for those of the
// queues that are there.
func (j *joiner) asked(req *belfryv1.ReserveRequest, reserve *fsm.Reserve) {
	for _, q := range reserve.Queues {
		if !slices.Contains(req.GetQueues(), q) {
			j.violated(37, "queue %s was reserved from, which was not asked for", q)
		}
	}
	if reserve.TTR != req.GetTtr().AsDuration() {
		j.violated(18, "a lease of %v was reserved, %v was asked for", reserve.TTR, req.GetTtr().AsDuration())
	}
	same(j, point{36, "the number of jobs reserved", ""}, reserve.Max, max(1, req.GetMaxJobs()))
}

// granted finds the grant of a job that was handed out.
func (j *joiner) granted(req *belfryv1.ReserveRequest, job *belfryv1.Job) *ledger.Lease {
	w := job.GetWitness()
	ref, ok := wire.ParseLease(job.GetLease())
	if !ok {
		j.violated(36, "job %q of %s has no lease: %q", job.GetId(), job.GetQueue(), job.GetLease())
		return nil
	}
	if j.entry(w) == nil {
		return nil
	}
	log := j.c.shards[w.GetShard()]
	l := log.books.Lease(ref.Fence)
	j.found.Look(2)
	if l == nil || l.Job.Serial != ref.Serial || l.Job.Queue.Name != ref.Queue ||
		l.Job.Queue.Partition != ref.Partition {
		j.notGranted(ref, job, log.books.Job(ref.Serial))
		return nil
	}
	at := l.Command
	log.answered[at.Ordinal].Store(true)
	direct := at.Entry.Index == w.GetIndex() && at.Number == w.GetEntry()
	told := lifecycle.Event{Account: l.Job, Index: at.Entry.Index, Number: at.Number, Time: at.Entry.Clock}
	if direct {
		told.Time = wire.TimeOf(w.GetTime())
	}
	j.tellGrant(w.GetShard(), job, told)
	j.holds(&log.told[l.Ordinal], req, ref)
	if !direct && (req.GetRequestId() == "" || w.GetIndex() < at.Entry.Index) ||
		!wire.IsPartOf(at.Request.ID, req.GetRequestId()) {
		j.violated(36, "job %d of %s was handed out with %s, it was granted at entry %d.%d to request %q",
			ref.Serial, ref.Queue, wire.TextOf(w), at.Entry.Index, at.Number, at.Request.ID)
		return l
	}
	j.asked(req, at.Command.(*fsm.Reserve))
	return l
}

// holds notes that a call was given a lease; another may have been given it only if it is an
// attempt at the same request.
func (j *joiner) holds(told *atomic.Pointer[history.Op], req *belfryv1.ReserveRequest, ref fsm.Ref) {
	j.found.Look(15)
	if told.CompareAndSwap(nil, j.op) {
		return
	}
	other, same := told.Load().Request.(*belfryv1.ReserveRequest)
	if !same || req.GetRequestId() == "" || other.GetRequestId() != req.GetRequestId() {
		j.violated(15, "the lease of job %d of %s with fence %d was also given to %s", ref.Serial, ref.Queue, ref.Fence,
			wire.Describe(told.Load()))
		j.violated(20, "job %d of %s was handed out twice by one grant, also to %s", ref.Serial, ref.Queue,
			wire.Describe(told.Load()))
	}
}

// tellGrant notes that a job was handed out.
func (j *joiner) tellGrant(shard uint32, job *belfryv1.Job, e lifecycle.Event) {
	e.Kind, e.OK, e.Fence, e.Attempt = lifecycle.Grant, true, job.GetFence(), job.GetAttempt()
	e.Due, e.Until = wire.TimeOf(job.GetDueAt()), wire.TimeOf(job.GetLeaseUntil())
	e.Body = wire.BodyOf(job.GetText(), job.GetData())
	j.addTold(shard, e)
}

// notGranted judges a job that was handed out otherwise than the log gives.
func (j *joiner) notGranted(ref fsm.Ref, job *belfryv1.Job, a *ledger.Job) {
	w := job.GetWitness()
	if a == nil {
		j.violated(2, "job %d of %s was handed out with fence %d, which was never put into shard %d", ref.Serial, ref.Queue,
			ref.Fence, w.GetShard())
		return
	}
	j.violated(13, "job %d of %s was handed out with fence %d by %s, where the log does not grant it", ref.Serial,
		ref.Queue, ref.Fence, wire.TextOf(w))
	j.tellGrant(w.GetShard(), job, lifecycle.Event{
		Account: a, Index: w.GetIndex(), Number: w.GetEntry(), Time: wire.TimeOf(w.GetTime()),
	})
}

// job holds a job that was handed out against its put and its grant.
func (j *joiner) job(l *ledger.Lease, job *belfryv1.Job) {
	a, put := l.Job, l.Put
	id := a.Name()
	same(j, point{37, "the queue", ""}, job.GetQueue(), a.Queue.Name)
	same(j, point{2, "the id", ""}, job.GetId(), id)
	if !bytes.Equal(wire.BodyOf(job.GetText(), job.GetData()), put.Body) {
		j.violated(2, "the body of %s is %q, should be %q", id, wire.BodyOf(job.GetText(), job.GetData()), put.Body)
	}
	if !wire.SameHeaders(job.GetHeaders(), put.Headers) {
		j.violated(2, "the headers of %s are %v, should be %v", id, job.GetHeaders(), put.Headers)
	}
	same(j, point{36, "the fence", id}, job.GetFence(), l.Fence)
	same(j, point{21, "the attempt", id}, job.GetAttempt(), l.Attempt)
	same(j, point{36, "the due time", id}, wire.TimeOf(job.GetDueAt()), wire.CeilTime(l.Due))
	same(j, point{36, "the first due time", id}, wire.TimeOf(job.GetFirstDueAt()), wire.CeilTime(l.FirstDue))
	same(j, point{18, "the end of the lease", id}, wire.TimeOf(job.GetLeaseUntil()), wire.FloorTime(l.Until))
	same(j, point{36, "the end", id}, wire.TimeOf(job.GetExpiresAt()), wire.FloorTime(l.TTL))
	same(j, point{36, "the state", id}, job.GetState(), belfryv1.JobState_JOB_STATE_RESERVED)
	same(j, point{36, "the last error", id}, job.GetLastError(), l.LastError)
	same(j, point{36, "the priority", id}, int64(job.GetPriority()), put.Priority)
	same(j, point{2, "the key", id}, job.GetKey(), put.Key)
	same(j, point{36, "the size", id}, int(job.GetBodyBytes()), len(put.Body))
	if !a.Adopted {
		same(j, point{36, "the time of the put", id}, wire.TimeOf(job.GetCreatedAt()), wire.FloorTime(l.Created))
	}
	if put.Given.Has(fsm.GivenMaxAttempts) {
		same(j, point{36, "the attempts", id}, job.GetMaxAttempts(), put.MaxAttempts)
	}
}

// early holds the moment at which a job came to a client against its due time, by true time.
func (j *joiner) early(l *ledger.Lease) {
	j.found.Look(10)
	returned := j.c.at(j.op.Returned)
	if by, most := l.Due.Sub(returned), j.c.ahead.at(j.op.Returned); by > most {
		j.violated(10, "job %d of %s was handed out %v before it is due, %v is allowed", l.Job.Serial,
			l.Job.Queue.Name, by, most)
	}
}
