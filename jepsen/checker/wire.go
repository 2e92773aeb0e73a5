package checker

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// This file says once more how the wire writes what the machine has; the server's own conversion is on trial as well.

// stateOf returns the wire's word for a state.
func stateOf(s fsm.State) belfryv1.JobState {
	switch s {
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
	default:
		return belfryv1.JobState_JOB_STATE_UNSPECIFIED
	}
}

// reasonOf returns the wire's reason for a code.
func reasonOf(c fsm.Code) belfryv1.Reason {
	switch c {
	case fsm.OK:
		return belfryv1.Reason_REASON_UNSPECIFIED
	case fsm.Invalid:
		return belfryv1.Reason_REASON_INVALID
	case fsm.JobExists:
		return belfryv1.Reason_REASON_JOB_EXISTS
	case fsm.JobNotFound:
		return belfryv1.Reason_REASON_JOB_NOT_FOUND
	case fsm.JobReserved:
		return belfryv1.Reason_REASON_JOB_RESERVED
	case fsm.StaleLease:
		return belfryv1.Reason_REASON_STALE_LEASE
	case fsm.QueueExists:
		return belfryv1.Reason_REASON_QUEUE_EXISTS
	case fsm.QueueNotFound:
		return belfryv1.Reason_REASON_QUEUE_NOT_FOUND
	case fsm.QueueChanged:
		return belfryv1.Reason_REASON_QUEUE_CHANGED
	case fsm.QueueFull:
		return belfryv1.Reason_REASON_QUEUE_FULL
	case fsm.RateLimited:
		return belfryv1.Reason_REASON_RATE_LIMITED
	case fsm.RequestExpired:
		return belfryv1.Reason_REASON_REQUEST_EXPIRED
	case fsm.Quota:
		return belfryv1.Reason_REASON_QUOTA
	case fsm.Restoring:
		return belfryv1.Reason_REASON_OVERLOADED
	}
	return belfryv1.Reason_REASON_INTERNAL
}

// timeOf returns a time of the wire, 0 for none.
func timeOf(t *timestamppb.Timestamp) fsm.Time {
	if t == nil {
		return 0
	}
	return fsm.Time(t.GetSeconds())*fsm.Time(time.Second) + fsm.Time(t.GetNanos())
}

// ceilTime returns a time rounded up to what the wire has: due times.
func ceilTime(t fsm.Time) fsm.Time {
	const ms = fsm.Time(time.Millisecond)
	return (t + ms - 1) / ms * ms
}

// floorTime returns a time rounded down to what the wire has: ends.
func floorTime(t fsm.Time) fsm.Time { return t - t%fsm.Time(time.Millisecond) }

// ceilDelay returns a delay of the wire as it is logged.
func ceilDelay(d *durationpb.Duration) time.Duration {
	return (d.AsDuration() + time.Millisecond - 1) / time.Millisecond * time.Millisecond
}

// dueOf returns a due time of the wire as it is logged.
func dueOf(t *timestamppb.Timestamp) fsm.Time {
	if t.GetSeconds() < 0 {
		return ceilTime(1)
	}
	return ceilTime(max(1, timeOf(t)))
}

// leaseVersion is the first byte of a lease.
const leaseVersion = 1

// parseLease reads what a lease names; false if it is none.
func parseLease(token string) (ref fsm.Ref, ok bool) {
	var room [128]byte // of most leases
	b, err := base64.RawURLEncoding.AppendDecode(room[:0], []byte(token))
	if err != nil || len(b) < 1+crc32.Size || b[0] != leaseVersion {
		return fsm.Ref{}, false
	}
	body := b[:len(b)-crc32.Size]
	if crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(b[len(body):]) {
		return fsm.Ref{}, false
	}
	rest := body[1:]
	number := func() (v uint64) {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			ok = false
			return 0
		}
		rest = rest[n:]
		return v
	}
	ok = true
	n := number()
	if !ok || n > uint64(len(rest)) {
		return fsm.Ref{}, false
	}
	ref.Queue = string(rest[:n])
	rest = rest[n:]
	partition := number()
	ref.Partition, ref.Serial, ref.Fence = uint32(partition), number(), number() //nolint:gosec // held below
	return ref, ok && len(rest) == 0 && partition < 1<<32
}

// baseOf returns the request id that a caller sent, of one that the edge made of it for a part of the call.
func baseOf(id string) string {
	if i := strings.IndexAny(id, "#~"); i >= 0 {
		return id[:i]
	}
	return id
}

// describe names a call in a violation.
func describe(o *history.Op) string {
	name := strings.TrimSuffix(string(o.Request.ProtoReflect().Descriptor().Name()), "Request")
	return fmt.Sprintf("%s of %s at %.3fs (to %s)", name, o.Client, o.Invoked.Seconds(), o.Node)
}

// textOf names a witness.
func textOf(w *belfryv1.Witness) string {
	return fmt.Sprintf("shard %d, entry %d.%d", w.GetShard(), w.GetIndex(), w.GetEntry())
}

// bodyOf returns a body of the wire.
func bodyOf(text string, data []byte) []byte {
	if text != "" {
		return []byte(text)
	}
	return data
}
