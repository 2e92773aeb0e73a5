package rpc

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The fields of ReserveResponse, and those of Job that a job without anything rare has.
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
	fieldJobExpiresAt   protowire.Number = 16
	fieldJobLastError   protowire.Number = 17
	fieldJobCreatedAt   protowire.Number = 18
	fieldJobFirstDueAt  protowire.Number = 19
	fieldJobBodyBytes   protowire.Number = 20
	fieldJobWitness     protowire.Number = 21
)

// appendReserve appends an answer, as appendPutBatch does.
func appendReserve(dst []byte, res *belfryv1.ReserveResponse) ([]byte, bool) {
	if res == nil || hasUnknown(res) {
		return nil, false
	}
	var check plainCheck
	var scratch, witness []byte
	var granted *belfryv1.Witness // as witness has it; the jobs of a shard share theirs
	for _, job := range res.Jobs {
		dst = protowire.AppendTag(dst, fieldReserveJobs, protowire.BytesType)
		body, ok := job.GetBody().(*belfryv1.Job_Data)
		if !ok || body == nil || !check.job(job) {
			data, err := proto.Marshal(job)
			if err != nil {
				return nil, false
			}
			dst = protowire.AppendBytes(dst, data)
			continue
		}
		// The body goes last, so that it is copied once.
		scratch = appendJob(scratch[:0], job)
		if job.Witness != granted {
			granted, witness = job.Witness, appendWitness(witness[:0], fieldJobWitness, job.Witness)
		}
		scratch = append(scratch, witness...)
		dst = protowire.AppendVarint(dst, uint64(len(scratch)+protowire.SizeTag(fieldJobData)+protowire.SizeBytes(len(body.Data))))
		dst = append(dst, scratch...)
		dst = protowire.AppendBytes(protowire.AppendTag(dst, fieldJobData, protowire.BytesType), body.Data)
	}
	for _, w := range res.Witnesses {
		if w == nil || !check.witness(w) {
			return nil, false
		}
		dst = appendWitness(dst, fieldReserveWitnesses, w)
	}
	return dst, true
}

// job reports whether a job is plain: it has no headers and no retry delays either.
func (c *plainCheck) job(job *belfryv1.Job) bool {
	for _, m := range [...]proto.Message{job, job.DueAt, job.LeaseUntil, job.Ttr, job.ExpiresAt, job.CreatedAt, job.FirstDueAt} {
		if hasUnknown(m) {
			return false
		}
	}
	for _, text := range [...]string{job.Queue, job.Id, job.Lease, job.LastError} {
		if !utf8.ValidString(text) {
			return false
		}
	}
	return len(job.Headers) == 0 && len(job.RetryDelays) == 0 && c.witness(job.Witness)
}

// appendJob appends the fields of a plain job but its body and its witness.
func appendJob(dst []byte, job *belfryv1.Job) []byte {
	dst = appendText(dst, fieldJobQueue, job.Queue)
	dst = appendText(dst, fieldJobID, job.Id)
	dst = appendText(dst, fieldJobLease, job.Lease)
	dst = appendNumber(dst, fieldJobFence, job.Fence)
	dst = appendNumber(dst, fieldJobAttempt, uint64(job.Attempt))
	dst = appendTimestamp(dst, fieldJobDueAt, job.DueAt)
	dst = appendTimestamp(dst, fieldJobLeaseUntil, job.LeaseUntil)
	dst = appendNumber(dst, fieldJobState, uint64(job.State))
	dst = appendNumber(dst, fieldJobPriority, uint64(job.Priority))
	if job.Ttr != nil {
		dst = appendSeconds(dst, fieldJobTTR, job.Ttr.Seconds, job.Ttr.Nanos)
	}
	dst = appendNumber(dst, fieldJobMaxAttempts, uint64(job.MaxAttempts))
	dst = appendTimestamp(dst, fieldJobExpiresAt, job.ExpiresAt)
	dst = appendText(dst, fieldJobLastError, job.LastError)
	dst = appendTimestamp(dst, fieldJobCreatedAt, job.CreatedAt)
	dst = appendTimestamp(dst, fieldJobFirstDueAt, job.FirstDueAt)
	return appendNumber(dst, fieldJobBodyBytes, uint64(job.BodyBytes))
}
