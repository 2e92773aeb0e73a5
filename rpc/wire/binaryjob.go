package wire

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/protofield"
)

// These are the fields of ReserveResponse and of Job.
const (
	fieldReserveJobs      protowire.Number = 1
	fieldReserveWitnesses protowire.Number = 2

	fieldJobQueue       protowire.Number = 1
	fieldJobID          protowire.Number = 2
	fieldJobLease       protowire.Number = 3
	fieldJobFence       protowire.Number = 4
	fieldJobAttempt     protowire.Number = 5
	fieldJobDueAt       protowire.Number = 6
	fieldJobLeaseUntil  protowire.Number = 7
	fieldJobData        protowire.Number = 9
	fieldJobState       protowire.Number = 11
	fieldJobPriority    protowire.Number = 12
	fieldJobTTR         protowire.Number = 13
	fieldJobMaxAttempts protowire.Number = 14
	fieldJobRetryDelays protowire.Number = 15
	fieldJobExpiresAt   protowire.Number = 16
	fieldJobLastError   protowire.Number = 17
	fieldJobCreatedAt   protowire.Number = 18
	fieldJobFirstDueAt  protowire.Number = 19
	fieldJobBodyBytes   protowire.Number = 20
	fieldJobWitness     protowire.Number = 21
	fieldJobKey         protowire.Number = 29
	fieldJobVersion     protowire.Number = 30
)

// AppendReserve appends a ReserveResponse: the jobs, or the witnesses if there are no jobs. It
// fails for a job that the generated code cannot write.
func AppendReserve(dst []byte, jobs []Grant, witnesses []*belfryv1.Witness) ([]byte, error) {
	var w jobWriter
	for i := range jobs {
		job := &jobs[i]
		dst = protowire.AppendTag(dst, fieldReserveJobs, protowire.BytesType)
		if !w.plain(job.Job) {
			data, err := proto.Marshal(Granted(jobs[i : i+1])[0])
			if err != nil {
				return nil, fmt.Errorf("writing a job: %w", err)
			}
			dst = protowire.AppendBytes(dst, data)
			continue
		}
		// The body comes last, so that it is copied once.
		w.job(job)
		if job.Body == nil {
			dst = protowire.AppendBytes(dst, w.scratch)
			continue
		}
		dst = protowire.AppendVarint(dst, uint64(len(w.scratch)+protowire.SizeTag(fieldJobData)+
			protowire.SizeBytes(len(job.Body))))
		dst = append(dst, w.scratch...)
		dst = protowire.AppendBytes(protowire.AppendTag(dst, fieldJobData, protowire.BytesType), job.Body)
	}
	if len(jobs) > 0 {
		return dst, nil
	}
	for _, witness := range witnesses {
		dst = appendWitness(dst, fieldReserveWitnesses, witness)
	}
	return dst, nil
}

// jobWriter writes jobs one after the other.
type jobWriter struct {
	scratch, lease             []byte
	leases                     leaseWriter
	queue                      string // the last one that was found to be valid UTF-8
	granted                    *belfryv1.Witness
	witness                    []byte // of granted
	due, until, created, first timeWriter
	delays                     []time.Duration // of the job before
	delayFields                []byte
}

// plain reports whether jobWriter can write a job: its texts are valid UTF-8, and it has no
// headers.
func (w *jobWriter) plain(job *fsm.Job) bool {
	if job.Queue != w.queue {
		if !utf8.ValidString(job.Queue) {
			return false
		}
		w.queue = job.Queue
	}
	return len(job.Headers) == 0 && utf8.ValidString(job.ID) && utf8.ValidString(job.LastError) &&
		utf8.ValidString(job.Key)
}

// job writes a plain job without its body to the scratch memory.
func (w *jobWriter) job(job *Grant) {
	dst := protofield.AppendText(w.scratch[:0], fieldJobQueue, job.Queue)
	dst = protofield.AppendText(dst, fieldJobID, job.ID)
	w.lease = w.leases.append(w.lease[:0], Ref(job.Job))
	dst = protowire.AppendBytes(protowire.AppendTag(dst, fieldJobLease, protowire.BytesType), w.lease)
	dst = protofield.AppendNumber(dst, fieldJobFence, job.Fence)
	dst = protofield.AppendNumber(dst, fieldJobAttempt, uint64(job.Attempt))
	dst = w.due.append(dst, fieldJobDueAt, job.Due, setCeilTime)
	if job.State == fsm.Reserved {
		dst = w.until.append(dst, fieldJobLeaseUntil, job.Until, setFloorTime)
	}
	dst = protofield.AppendNumber(dst, fieldJobState, uint64(State(job.State))) //nolint:gosec // states are above 0
	dst = protofield.AppendNumber(dst, fieldJobPriority, uint64(job.Priority))  //nolint:gosec // as protobuf has it
	dst = appendDurationField(dst, fieldJobTTR, job.TTR)
	dst = protofield.AppendNumber(dst, fieldJobMaxAttempts, uint64(job.MaxAttempts))
	if !slices.Equal(job.RetryDelays, w.delays) {
		w.delays, w.delayFields = job.RetryDelays, w.delayFields[:0]
		for _, d := range w.delays {
			w.delayFields = appendDurationField(w.delayFields, fieldJobRetryDelays, d)
		}
	}
	dst = append(dst, w.delayFields...)
	if job.TTL != 0 {
		dst = appendTimestamp(dst, fieldJobExpiresAt, FloorTime(job.TTL))
	}
	dst = protofield.AppendText(dst, fieldJobLastError, job.LastError)
	dst = w.created.append(dst, fieldJobCreatedAt, job.Created, setFloorTime)
	dst = w.first.append(dst, fieldJobFirstDueAt, job.FirstDue, setCeilTime)
	dst = protofield.AppendNumber(dst, fieldJobBodyBytes, uint64(job.BodyBytes))
	if job.Witness != w.granted {
		w.granted, w.witness = job.Witness, appendWitness(w.witness[:0], fieldJobWitness, job.Witness)
	}
	dst = protofield.AppendText(append(dst, w.witness...), fieldJobKey, job.Key)
	w.scratch = protofield.AppendNumber(dst, fieldJobVersion, JobVersion(job.Job))
}

// appendDurationField appends a Duration.
func appendDurationField(dst []byte, field protowire.Number, d time.Duration) []byte {
	seconds, nanos := int64(d/time.Second), int32(d%time.Second) //nolint:gosec // below a second
	return protofield.AppendSeconds(dst, field, seconds, nanos)
}
