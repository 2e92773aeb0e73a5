package client

import (
	"time"

	"github.com/belfrydb/belfry/client/internal/batchcodec"
	"github.com/belfrydb/belfry/client/internal/coalesce"
	"github.com/belfrydb/belfry/client/internal/values"
	"github.com/belfrydb/belfry/client/internal/wire"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The answers to PutBatch, AckBatch and Reserve are decoded here, directly into what callers get.
// The generated code would decode them into messages of which most are thrown away: at 100,000
// calls a second those are most of a client's garbage.

// A putBatchAnswer is the answer to PutBatch.
type putBatchAnswer struct{ replies []coalesce.Reply[PutResult] }

// DecodeWire implements [session.Answer].
func (a *putBatchAnswer) DecodeWire(data []byte) (err error) {
	var d putDecoder
	a.replies, err = batchcodec.DecodeReplies(data, d.decode)
	return err
}

// A putDecoder decodes the results of one answer.
type putDecoder struct {
	ids wire.Texts
	due wire.TimeDecoder
}

// decode decodes a PutResponse. left is how many are still to be decoded, including this one.
func (d *putDecoder) decode(r *PutResult, data []byte, left int) (err error) {
	for len(data) > 0 {
		var f wire.Field
		if f, data, err = wire.Next(data); err != nil {
			return err
		}
		switch f.Number {
		case 1:
			r.ID = d.ids.Add(f.Bytes, left)
		case 2:
			r.DueAt, err = d.due.Decode(f.Bytes)
		case 3:
			r.Created = f.Value != 0
		case 4:
			r.State = values.StateOf(belfryv1.JobState(f.Value))
		case 6:
			r.Replaced = f.Value != 0
		case 7:
			r.Version = f.Value
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// An ackBatchAnswer is the answer to AckBatch.
type ackBatchAnswer struct{ replies []coalesce.Reply[struct{}] }

// DecodeWire implements [session.Answer].
func (a *ackBatchAnswer) DecodeWire(data []byte) (err error) {
	a.replies, err = batchcodec.DecodeReplies(data, func(*struct{}, []byte, int) error { return nil })
	return err
}

// A reserveAnswer is the answer to Reserve.
type reserveAnswer struct{ jobs []*Job }

// DecodeWire implements [session.Answer].
func (a *reserveAnswer) DecodeWire(data []byte) error {
	n, err := wire.Count(data, 1)
	if err != nil {
		return err
	}
	a.jobs = make([]*Job, 0, n)
	d := jobDecoder{delays: wire.DurationsDecoder{Field: fieldRetryDelays}}
	for len(data) > 0 {
		var f wire.Field
		if f, data, err = wire.Next(data); err != nil {
			return err
		}
		if f.Number != 1 {
			continue
		}
		left := n - len(a.jobs)
		job := d.next(left, len(f.Bytes))
		a.jobs = append(a.jobs, job)
		if err := d.decode(job, f.Bytes, left); err != nil {
			return err
		}
	}
	return nil
}

// fieldRetryDelays is the field of a Job.
const fieldRetryDelays = 15

// jobBytesTogether is the largest job that shares its memory: a job that is kept also keeps its
// neighbours' data.
const jobBytesTogether = 1 << 10

// A jobDecoder decodes the jobs of one answer.
type jobDecoder struct {
	free   []Job
	bodies wire.Pieces
	queue  string // of the job before
	text   []byte // scratch
	texts  wire.Texts

	due, until, created, first wire.TimeDecoder
	delays                     wire.DurationsDecoder
	granted                    wire.WitnessDecoder
}

// next returns an empty job for a message of size bytes. left is how many are still to be decoded.
func (d *jobDecoder) next(left, size int) *Job {
	if size > jobBytesTogether {
		return &Job{}
	}
	if len(d.free) == 0 {
		d.free = make([]Job, min(max(left, 1), wire.Together))
	}
	job := &d.free[0]
	d.free = d.free[1:]
	return job
}

// decode decodes a Job. left is how many are still to be decoded, including this one.
func (d *jobDecoder) decode(job *Job, data []byte, left int) (err error) {
	var id, lease []byte
	var granted time.Time
	for len(data) > 0 {
		var f wire.Field
		all := data
		if f, data, err = wire.Next(data); err != nil {
			return err
		}
		switch f.Number {
		case 1:
			if d.queue != string(f.Bytes) {
				d.queue = string(f.Bytes)
			}
			job.Queue = d.queue
		case 2:
			id = f.Bytes
		case 3:
			lease = f.Bytes
		case 8, 9:
			job.Body = d.bodies.Copy(f.Bytes, left)
		case 10:
			err = addHeader(job, f.Bytes)
		case fieldRetryDelays:
			data, err = d.delays.Decode(&job.RetryDelays, all, left)
		case 21:
			granted, err = d.granted.Decode(f.Bytes)
		default:
			if err = d.time(job, f); err == nil {
				decodeJobNumber(job, f)
			}
		}
		if err != nil {
			return err
		}
	}
	// One piece of memory for both: they live and die together.
	d.text = append(append(d.text[:0], id...), lease...)
	text := d.texts.Add(d.text, left)
	job.ID, job.Lease = text[:len(id)], text[len(id):]
	if !granted.IsZero() && !job.LeaseUntil.IsZero() {
		job.lease = job.LeaseUntil.Sub(granted)
	}
	return nil
}

// time decodes a field that is a time, a duration or a rare text.
func (d *jobDecoder) time(job *Job, f wire.Field) (err error) {
	switch f.Number {
	case 6:
		job.DueAt, err = d.due.Decode(f.Bytes)
	case 7:
		job.LeaseUntil, err = d.until.Decode(f.Bytes)
	case 13:
		job.TTR, err = wire.Duration(f.Bytes)
	case 16:
		job.ExpiresAt, err = wire.Time(f.Bytes)
	case 17:
		job.LastError = string(f.Bytes)
	case 18:
		job.CreatedAt, err = d.created.Decode(f.Bytes)
	case 19:
		job.FirstDueAt, err = d.first.Decode(f.Bytes)
	case 29:
		job.Key = string(f.Bytes)
	}
	return err
}

// decodeJobNumber decodes a field that is a number.
func decodeJobNumber(job *Job, f wire.Field) {
	switch f.Number {
	case 4:
		job.Fence = f.Value
	case 5:
		job.Attempt = int(uint32(f.Value))
	case 11:
		job.State = values.StateOf(belfryv1.JobState(f.Value))
	case 12:
		job.Priority = int64(f.Value) //nolint:gosec // as protobuf has it
	case 14:
		job.MaxAttempts = int(uint32(f.Value))
	case 20:
		job.BodyBytes = int(uint32(f.Value))
	case 30:
		job.Version = f.Value
	}
}

// addHeader decodes an entry of the map of headers.
func addHeader(job *Job, data []byte) error {
	name, value, err := wire.Entry(data)
	if job.Headers == nil {
		job.Headers = make(map[string]string)
	}
	job.Headers[name] = value
	return err
}
