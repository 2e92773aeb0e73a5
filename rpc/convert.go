package rpc

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// wireState converts a state. That the numbers agree is no rule.
func wireState(s fsm.State) belfryv1.JobState {
	switch s {
	case fsm.StateNone:
		return belfryv1.JobState_JOB_STATE_UNSPECIFIED
	case fsm.Delayed:
		return belfryv1.JobState_JOB_STATE_DELAYED
	case fsm.Ready:
		return belfryv1.JobState_JOB_STATE_READY
	case fsm.Reserved:
		return belfryv1.JobState_JOB_STATE_RESERVED
	case fsm.Dead:
		return belfryv1.JobState_JOB_STATE_DEAD
	case fsm.Acked:
		return belfryv1.JobState_JOB_STATE_ACKED
	case fsm.Cancelled:
		return belfryv1.JobState_JOB_STATE_CANCELLED
	case fsm.Expired:
		return belfryv1.JobState_JOB_STATE_EXPIRED
	}
	return belfryv1.JobState_JOB_STATE_UNSPECIFIED
}

// machineState is the inverse of wireState for the states that a job can be in; false for others.
func machineState(s belfryv1.JobState) (fsm.State, bool) {
	for _, held := range [...]fsm.State{fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead} {
		if wireState(held) == s {
			return held, true
		}
	}
	return fsm.StateNone, false
}

// ceilTime converts a due time: whole milliseconds, rounded up, so that who waits until then is never early. 0 is nil.
func ceilTime(t fsm.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	return timestamppb.New(time.UnixMilli(t.CeilMillis()))
}

// floorTime converts a time at which something ends: whole milliseconds, rounded down, so that nobody counts on more
// than there is. 0 is nil.
func floorTime(t fsm.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, int64(t)).Truncate(time.Millisecond))
}

// exactTime converts a time to the nanosecond. 0 is nil.
func exactTime(t fsm.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, int64(t)))
}

// ceilMillis rounds a delay up to the precision of the wire.
func ceilMillis(d time.Duration) time.Duration {
	if rest := d % time.Millisecond; rest > 0 {
		d += time.Millisecond - rest
	}
	return d
}

// wireWitness converts a witness. The zero witness, which says that nothing was logged, is nil.
func wireWitness(w node.Witness) *belfryv1.Witness { return wireWitnesses(w, 1)[0] }

// wireWitnesses converts the witnesses of n commands of one request. They share their time.
func wireWitnesses(w node.Witness, n int) []*belfryv1.Witness {
	out := make([]*belfryv1.Witness, n)
	if w == (node.Witness{}) {
		return out
	}
	at := exactTime(w.Time)
	all := make([]belfryv1.Witness, n)
	for i := range all {
		all[i].Shard, all[i].Term, all[i].Index, all[i].Entry, all[i].Time = w.Shard, w.Term, w.Index, w.Entry+uint32(i), at
		out[i] = &all[i]
	}
	return out
}

// count32 converts a count for people; what is above the range is shown as its end.
func count32(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// durations converts a list of durations.
func durations(ds []time.Duration) []*durationpb.Duration {
	out := make([]*durationpb.Duration, len(ds))
	for i, d := range ds {
		out[i] = durationpb.New(d)
	}
	return out
}

// put converts a put, all but its partition. bodyBytes is what it counts against the limit of a batch.
func (c *checker) put(req *belfryv1.PutRequest) (put *fsm.Put, bodyBytes int) {
	put = &fsm.Put{
		Queue: c.queue("queue", req.GetQueue()),
		ID:    c.newID("id", req.GetId()),
		Again: req.GetAgain(),
		TTR:   c.ttr("ttr", req.GetTtr()),
	}
	if put.Again && put.ID == "" {
		c.fail(invalid("again", "it needs an id"))
	}
	if req.GetTtr() != nil {
		put.Given |= fsm.GivenTTR
	}
	put.Delay, put.DueAt, put.Given = c.when(req.GetDelay(), req.GetDueAt(), put.Given)
	if req.Priority != nil {
		put.Priority, put.Given = c.priority("priority", req.GetPriority()), put.Given|fsm.GivenPriority
	}
	if req.MaxAttempts != nil {
		put.MaxAttempts, put.Given = c.attempts("maxAttempts", req.GetMaxAttempts()), put.Given|fsm.GivenMaxAttempts
	}
	if len(req.GetRetryDelays()) > 0 {
		put.RetryDelays, put.Given = c.retryDelays("retryDelays", req.GetRetryDelays()), put.Given|fsm.GivenRetryDelays
	}
	if req.GetTtl() != nil {
		put.TTL, _ = c.span("ttl", req.GetTtl(), time.Millisecond, c.limits.DelayMax)
		put.Given |= fsm.GivenTTL
	}
	put.Headers = c.headers("headers", req.GetHeaders())
	switch body := req.GetBody().(type) {
	case *belfryv1.PutRequest_Text:
		put.Body = c.body("text", []byte(body.Text))
	case *belfryv1.PutRequest_Data:
		put.Body = c.body("data", body.Data)
	}
	bodyBytes = len(put.Body) + len(put.ID)
	for _, h := range put.Headers {
		bodyBytes += len(h.Name) + len(h.Value)
	}
	return put, bodyBytes
}

// when converts the two ways to say when a job is due; at most one of them is set. Both are rounded up to the precision
// of the wire, so that the due time that is shown is the one that counts.
func (c *checker) when(delay *durationpb.Duration, dueAt *timestamppb.Timestamp, given fsm.Given) (time.Duration, fsm.Time, fsm.Given) {
	switch {
	case delay != nil:
		d, _ := c.delay("delay", delay)
		return ceilMillis(d), 0, given | fsm.GivenDelay
	case dueAt != nil:
		at := c.dueAt("dueAt", dueAt)
		return 0, fsm.Time(at.CeilMillis()) * fsm.Time(time.Millisecond), given | fsm.GivenDueAt
	default:
		return 0, 0, given
	}
}

// effective is what counts for a job where it, or its queue, or neither says something.
type effective struct {
	ttr         time.Duration
	maxAttempts uint32
	retryDelays []time.Duration
}

// effectiveOf looks defaults up as the machine does: the job's own, else the queue's, else the product's.
func effectiveOf(job *fsm.Job, s *fsm.Settings) effective {
	e := effective{ttr: fsm.DefaultTTR, maxAttempts: fsm.DefaultMaxAttempts, retryDelays: s.RetryDelays}
	if s.TTR > 0 {
		e.ttr = s.TTR
	}
	if s.MaxAttemptsSet {
		e.maxAttempts = s.MaxAttempts
	}
	if job.Given.Has(fsm.GivenTTR) {
		e.ttr = job.TTR
	}
	if job.Given.Has(fsm.GivenMaxAttempts) {
		e.maxAttempts = job.MaxAttempts
	}
	if job.Given.Has(fsm.GivenRetryDelays) {
		e.retryDelays = job.RetryDelays
	}
	return e
}

// withBody says whether a job goes out with its body.
type withBody bool

// wireJob converts a job as an inspector sees it. Nothing of the result aliases the machine's memory.
func wireJob(job *fsm.Job, settings *fsm.Settings, body withBody) *belfryv1.Job {
	e := effectiveOf(job, settings)
	out := &belfryv1.Job{
		Queue: job.Queue, Id: job.ID, Fence: job.Fence, Attempt: job.Attempt,
		DueAt: ceilTime(job.Due), FirstDueAt: ceilTime(job.FirstDue), CreatedAt: floorTime(job.Created),
		ExpiresAt: floorTime(job.TTL), State: wireState(job.State), Priority: int32(job.Priority),
		Ttr: durationpb.New(e.ttr), MaxAttempts: e.maxAttempts, RetryDelays: durations(e.retryDelays),
		LastError: job.LastError, BodyBytes: uint32(len(job.Body)),
	}
	if job.State == fsm.Reserved {
		out.LeaseUntil = floorTime(job.Until)
	}
	if len(job.Headers) > 0 {
		out.Headers = make(map[string]string, len(job.Headers))
		for _, h := range job.Headers {
			out.Headers[h.Name] = h.Value
		}
	}
	if body {
		out.Body = &belfryv1.Job_Data{Data: append([]byte{}, job.Body...)}
	}
	return out
}

// wireGrant converts a job that is handed out.
func wireGrant(grant *fsm.Grant, job *fsm.Job, settings *fsm.Settings, w *belfryv1.Witness) *belfryv1.Job {
	out := wireJob(job, settings, true)
	out.Lease = formatLease(fsm.Ref{Queue: grant.Queue, Partition: grant.Partition, Serial: grant.Serial, Fence: grant.Fence})
	out.Fence, out.Attempt = grant.Fence, grant.Attempt
	out.DueAt, out.LeaseUntil = ceilTime(grant.Due), floorTime(grant.Until)
	out.State, out.Witness = belfryv1.JobState_JOB_STATE_RESERVED, w
	return out
}
