package wire

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// State converts a state. The numbers of both enums need not agree.
func State(s fsm.State) belfryv1.JobState {
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

// HeldState is the inverse of State for the states of a job in a queue; false for others.
func HeldState(s belfryv1.JobState) (fsm.State, bool) {
	for _, held := range [...]fsm.State{fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead} {
		if State(held) == s {
			return held, true
		}
	}
	return fsm.StateNone, false
}

// OnExisting converts what a put does if a job has its id. It returns false for an unknown choice.
func OnExisting(o belfryv1.OnExisting) (fsm.OnExisting, bool) {
	switch o {
	case belfryv1.OnExisting_ON_EXISTING_UNSPECIFIED, belfryv1.OnExisting_ON_EXISTING_RETURN:
		return fsm.ReturnExisting, true
	case belfryv1.OnExisting_ON_EXISTING_KEEP:
		return fsm.KeepExisting, true
	case belfryv1.OnExisting_ON_EXISTING_REPLACE:
		return fsm.ReplaceExisting, true
	case belfryv1.OnExisting_ON_EXISTING_NEXT:
		return fsm.NextExisting, true
	}
	return fsm.ReturnExisting, false
}

// PutVersion returns the version that the answer to a put shows. The machine answers none for puts of
// earlier formats; a job that such a put created has its first content.
func PutVersion(r *fsm.Result) uint64 {
	if r.Created {
		return max(1, r.Version)
	}
	return r.Version
}

// JobVersion returns the version that a job shows: none if it has ended.
func JobVersion(job *fsm.Job) uint64 {
	if job.End != nil {
		return 0
	}
	return max(1, job.Version)
}

// CeilTime converts a due time to whole milliseconds, rounded up: a caller that waits until then is
// never early. 0 becomes nil.
func CeilTime(t fsm.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	out := &timestamppb.Timestamp{}
	setCeilTime(out, t)
	return out
}

// setCeilTime is CeilTime into an existing message.
func setCeilTime(out *timestamppb.Timestamp, t fsm.Time) {
	at := time.UnixMilli(t.CeilMillis())
	out.Seconds, out.Nanos = at.Unix(), int32(at.Nanosecond())
}

// FloorTime converts a time at which a term ends to whole milliseconds, rounded down: a caller
// never relies on more time than there is. 0 becomes nil.
func FloorTime(t fsm.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	out := &timestamppb.Timestamp{}
	setFloorTime(out, t)
	return out
}

// setFloorTime is FloorTime into an existing message.
func setFloorTime(out *timestamppb.Timestamp, t fsm.Time) {
	at := time.Unix(0, int64(t)).Truncate(time.Millisecond)
	out.Seconds, out.Nanos = at.Unix(), int32(at.Nanosecond())
}

// ExactTime converts a time to the nanosecond. 0 becomes nil.
func ExactTime(t fsm.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, int64(t)))
}

// CeilMillis rounds a delay up to the precision of the wire.
func CeilMillis(d time.Duration) time.Duration {
	if rest := d % time.Millisecond; rest > 0 {
		d += time.Millisecond - rest
	}
	return d
}

// Witness converts a witness. The zero witness, which says that no entry was logged, becomes
// nil.
func Witness(w node.Witness) *belfryv1.Witness {
	if w == (node.Witness{}) {
		return nil
	}
	return &belfryv1.Witness{Shard: w.Shard, Term: w.Term, Index: w.Index, Entry: w.Entry, Time: ExactTime(w.Time)}
}

// Count converts a count for people. A larger one is shown as the maximum.
func Count(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// Durations converts a list of durations.
func Durations(ds []time.Duration) []*durationpb.Duration {
	out := make([]*durationpb.Duration, len(ds))
	for i, d := range ds {
		out[i] = durationpb.New(d)
	}
	return out
}

// WholeMillis rounds a time up to the precision of the wire.
func WholeMillis(t fsm.Time) fsm.Time { return fsm.Time(t.CeilMillis()) * fsm.Time(time.Millisecond) }
