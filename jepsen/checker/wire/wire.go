// Package wire compares what clients sent and got with what the log says.
package wire

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"google.golang.org/protobuf/proto"
)

// This file says once more how the wire writes what the machine has; the server's own conversion is
// on trial as well.

// StateOf returns the wire's word for a state.
func StateOf(s fsm.State) belfryv1.JobState {
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

// ReasonOf returns the wire's reason for a code.
func ReasonOf(c fsm.Code) belfryv1.Reason {
	switch c {
	case fsm.OK:
		return belfryv1.Reason_REASON_UNSPECIFIED
	case fsm.Invalid, fsm.KeyRefused:
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
	case fsm.VersionChanged:
		return belfryv1.Reason_REASON_VERSION_CHANGED
	case fsm.ScheduleNotFound:
		return belfryv1.Reason_REASON_SCHEDULE_NOT_FOUND
	}
	return belfryv1.Reason_REASON_INTERNAL
}

// OnExistingOf returns what the wire says of a put whose id is taken as it is logged.
func OnExistingOf(o belfryv1.OnExisting) fsm.OnExisting {
	switch o {
	case belfryv1.OnExisting_ON_EXISTING_KEEP:
		return fsm.KeepExisting
	case belfryv1.OnExisting_ON_EXISTING_REPLACE:
		return fsm.ReplaceExisting
	case belfryv1.OnExisting_ON_EXISTING_NEXT:
		return fsm.NextExisting
	default:
		return fsm.ReturnExisting
	}
}

// TimeOf returns a time of the wire, 0 for none.
func TimeOf(t *timestamppb.Timestamp) fsm.Time {
	if t == nil {
		return 0
	}
	return fsm.Time(t.GetSeconds())*fsm.Time(time.Second) + fsm.Time(t.GetNanos())
}

// CeilTime returns a time rounded up to what the wire has: due times.
func CeilTime(t fsm.Time) fsm.Time {
	const ms = fsm.Time(time.Millisecond)
	return (t + ms - 1) / ms * ms
}

// FloorTime returns a time rounded down to what the wire has: ends.
func FloorTime(t fsm.Time) fsm.Time { return t - t%fsm.Time(time.Millisecond) }

// CeilDelay returns a delay of the wire as it is logged.
func CeilDelay(d *durationpb.Duration) time.Duration {
	return (d.AsDuration() + time.Millisecond - 1) / time.Millisecond * time.Millisecond
}

// DueOf returns a due time of the wire as it is logged.
func DueOf(t *timestamppb.Timestamp) fsm.Time {
	if t.GetSeconds() < 0 {
		return CeilTime(1)
	}
	return CeilTime(max(1, TimeOf(t)))
}

// leaseVersion is the first byte of a lease.
const leaseVersion = 1

// ParseLease reads what a lease names; false if it is none.
func ParseLease(token string) (ref fsm.Ref, ok bool) {
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

// BaseOf returns the request id that a caller sent, of one that the edge made of it for a part of
// the call.
func BaseOf(id string) string {
	if i := strings.IndexAny(id, "#~"); i >= 0 {
		return id[:i]
	}
	return id
}

// Describe names a call in a violation.
func Describe(o *history.Op) string {
	name := strings.TrimSuffix(string(o.Request.ProtoReflect().Descriptor().Name()), "Request")
	return fmt.Sprintf("%s of %s at %.3fs (to %s)", name, o.Client, o.Invoked.Seconds(), o.Node)
}

// TextOf names a witness.
func TextOf(w *belfryv1.Witness) string {
	return fmt.Sprintf("shard %d, entry %d.%d", w.GetShard(), w.GetIndex(), w.GetEntry())
}

// BodyOf returns a body of the wire.
func BodyOf(text string, data []byte) []byte {
	if text != "" {
		return []byte(text)
	}
	return data
}

// RequestIDOf returns the request id of a call, empty if it has none.
func RequestIDOf(o *history.Op) string {
	if r, ok := o.Request.(interface{ GetRequestId() string }); ok {
		return r.GetRequestId()
	}
	return ""
}

// OutcomeOf is what the caller of a whole call was told.
func OutcomeOf(o *history.Op) belfryv1.Outcome {
	if o.OK() {
		return belfryv1.Outcome_OUTCOME_APPLIED
	}
	return o.Outcome
}

// IsPartOf reports whether a logged request is the one that was sent, or a part that the edge made
// of it.
func IsPartOf(logged, sent string) bool {
	rest, ok := strings.CutPrefix(logged, sent)
	return ok && (rest == "" || sent != "" && (rest[0] == '#' || rest[0] == '~'))
}

// SameHeaders reports whether a job has the headers that were put.
func SameHeaders(got map[string]string, want []fsm.Header) bool {
	if len(got) != len(want) {
		return false
	}
	for _, h := range want {
		if value, ok := got[h.Name]; !ok || value != h.Value {
			return false
		}
	}
	return true
}

// Stale reports whether an answer may be old, and says so.
func Stale(resp proto.Message) bool {
	labelled, ok := resp.(interface{ GetStale() bool })
	return ok && labelled.GetStale()
}

// EachWitness calls f for each witness of an answer.
func EachWitness(resp proto.Message, f func(*belfryv1.Witness)) {
	switch r := resp.(type) {
	case *belfryv1.PutBatchResponse:
		for _, one := range r.GetResults() {
			f(one.GetPut().GetWitness())
			f(one.GetError().GetWitness())
		}
	case *belfryv1.AckBatchResponse:
		for _, one := range r.GetResults() {
			f(one.GetAck().GetWitness())
			f(one.GetError().GetWitness())
		}
	case *belfryv1.ReserveResponse:
		for _, job := range r.GetJobs() {
			f(job.GetWitness())
		}
		for _, w := range r.GetWitnesses() {
			f(w)
		}
	case interface{ GetWitness() *belfryv1.Witness }:
		f(r.GetWitness())
	case interface{ GetWitnesses() []*belfryv1.Witness }:
		for _, w := range r.GetWitnesses() {
			f(w)
		}
	}
}

// PartitionOf says once more where a job with an id of its client's choice belongs: FNV-1a over the
// hash's version, the id and eight zeros, finished as MurmurHash3 is. The id of a schedule's job counts
// as the name of the schedule. See node.PartitionOf.
func PartitionOf(id string, partitions uint32) uint32 {
	if partitions <= 1 {
		return 0
	}
	if rest, ok := strings.CutPrefix(id, "cron:"); ok && strings.Contains(rest, "@") {
		id = rest[:strings.LastIndex(rest, "@")]
	}
	h := fnv.New64a()
	h.Write([]byte{1})
	h.Write([]byte(id))
	h.Write(make([]byte, 8))
	sum := h.Sum64()
	for _, multiplier := range [...]uint64{0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53} {
		sum ^= sum >> 33
		sum *= multiplier
	}
	sum ^= sum >> 33
	return uint32(sum % uint64(partitions))
}

// RefOf returns the lease that a command names.
func RefOf(c fsm.Command) (fsm.Ref, bool) {
	switch c := c.(type) {
	case *fsm.Ack:
		return c.Ref, true
	case *fsm.Nack:
		return c.Ref, true
	case *fsm.Release:
		return c.Ref, true
	case *fsm.Extend:
		return c.Ref, true
	default:
		return fsm.Ref{}, false
	}
}
