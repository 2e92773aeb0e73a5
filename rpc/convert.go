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

// wireState converts a state. The numbers of both enums need not agree.
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

// machineState is the inverse of wireState for the states of a job in a queue; false for others.
func machineState(s belfryv1.JobState) (fsm.State, bool) {
	for _, held := range [...]fsm.State{fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead} {
		if wireState(held) == s {
			return held, true
		}
	}
	return fsm.StateNone, false
}

// ceilTime converts a due time to whole milliseconds, rounded up: a caller that waits until then is
// never early. 0 becomes nil.
func ceilTime(t fsm.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	out := &timestamppb.Timestamp{}
	setCeilTime(out, t)
	return out
}

// setCeilTime is ceilTime into an existing message.
func setCeilTime(out *timestamppb.Timestamp, t fsm.Time) {
	at := time.UnixMilli(t.CeilMillis())
	out.Seconds, out.Nanos = at.Unix(), int32(at.Nanosecond())
}

// floorTime converts a time at which a term ends to whole milliseconds, rounded down: a caller
// never relies on more time than there is. 0 becomes nil.
func floorTime(t fsm.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	out := &timestamppb.Timestamp{}
	setFloorTime(out, t)
	return out
}

// setFloorTime is floorTime into an existing message.
func setFloorTime(out *timestamppb.Timestamp, t fsm.Time) {
	at := time.Unix(0, int64(t)).Truncate(time.Millisecond)
	out.Seconds, out.Nanos = at.Unix(), int32(at.Nanosecond())
}

// exactTime converts a time to the nanosecond. 0 becomes nil.
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

// wireWitness converts a witness. The zero witness, which says that no entry was logged, becomes
// nil.
func wireWitness(w node.Witness) *belfryv1.Witness {
	if w == (node.Witness{}) {
		return nil
	}
	return &belfryv1.Witness{Shard: w.Shard, Term: w.Term, Index: w.Index, Entry: w.Entry, Time: exactTime(w.Time)}
}

// count32 converts a count for people. A larger one is shown as the maximum.
func count32(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// durations converts a list of durations.
func durations(ds []time.Duration) []*durationpb.Duration {
	out := make([]*durationpb.Duration, len(ds))
	for i, d := range ds {
		out[i] = durationpb.New(d)
	}
	return out
}

// wholeMillis rounds a time up to the precision of the wire.
func wholeMillis(t fsm.Time) fsm.Time { return fsm.Time(t.CeilMillis()) * fsm.Time(time.Millisecond) }

// entry is put for a job of a batch. f is the fault of this job alone.
func (c *checker) entry(req *belfryv1.PutRequest, put *fsm.Put) (bodyBytes int, f *Fault) {
	entry := c.another()
	bodyBytes = entry.put(req, put)
	if req.GetRequestId() != "" {
		entry.fail(invalid("requestId", "in a batch only the batch itself has a requestId"))
	}
	return bodyBytes, entry.err
}

// put converts a put without its partition, into the zero put. bodyBytes is what it adds to the
// size of a batch.
func (c *checker) put(req *belfryv1.PutRequest, put *fsm.Put) (bodyBytes int) {
	put.Queue, put.ID = c.queue("queue", req.GetQueue()), c.newID("id", req.GetId())
	put.Again, put.TTR = req.GetAgain(), c.ttr("ttr", req.GetTtr())
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
	return bodyBytes
}

// when converts the two ways to give a due time; at most one of them is set. Both are rounded up to
// the precision of the wire, so that the due time that is shown is the one that applies.
func (c *checker) when(delay *durationpb.Duration, dueAt *timestamppb.Timestamp, given fsm.Given) (time.Duration, fsm.Time, fsm.Given) {
	switch {
	case delay != nil:
		d, _ := c.delay("delay", delay)
		return ceilMillis(d), 0, given | fsm.GivenDelay
	case dueAt != nil:
		return 0, wholeMillis(c.dueAt("dueAt", dueAt)), given | fsm.GivenDueAt
	default:
		return 0, 0, given
	}
}
