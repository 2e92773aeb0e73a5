package client

import (
	"bytes"
	"time"

	"github.com/belfrydb/belfry/client/internal/wire"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A reserveAnswer is the answer to Reserve.
type reserveAnswer struct{ jobs []*Job }

// DecodeWire implements [session.Answer].
func (a *reserveAnswer) DecodeWire(data []byte) error {
	n, err := wire.Count(data, 1)
	if err != nil {
		return err
	}
	a.jobs = make([]*Job, 0, n)
	var d jobDecoder
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

// jobsTogether is how many jobs share a piece of memory. Fewer pieces cost less, but one job that
// is kept for long keeps its neighbours' memory.
const jobsTogether = 8

// jobBytesTogether is the largest job that shares its memory: a job that is kept also keeps its
// neighbours' data.
const jobBytesTogether = 1 << 10

// A jobDecoder decodes the jobs of one answer.
type jobDecoder struct {
	free   []Job
	bodies []byte // room for small ones
	queue  string // of the job before
	text   []byte // scratch
	texts  wire.Texts

	due, until, created, first wire.TimeDecoder
	delays                     delaysDecoder
	witness                    []byte // of the job before
	granted                    time.Time
}

// next returns an empty job for a message of size bytes. left is how many are still to be decoded.
func (d *jobDecoder) next(left, size int) *Job {
	if size > jobBytesTogether {
		return &Job{}
	}
	if len(d.free) == 0 {
		d.free = make([]Job, min(max(left, 1), jobsTogether))
	}
	job := &d.free[0]
	d.free = d.free[1:]
	return job
}

// bodyBytesAlone is the size from which a body has memory of its own.
const bodyBytesAlone = 256

// body copies a body. left is as in decode.
func (d *jobDecoder) body(data []byte, left int) []byte {
	if len(data) >= bodyBytesAlone || len(data) == 0 {
		return append(make([]byte, 0, len(data)), data...)
	}
	if cap(d.bodies)-len(d.bodies) < len(data) {
		d.bodies = make([]byte, 0, len(data)*min(left, jobsTogether))
	}
	start := len(d.bodies)
	d.bodies = append(d.bodies, data...)
	return d.bodies[start:len(d.bodies):len(d.bodies)]
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
			job.Body = d.body(f.Bytes, left)
		case 10:
			err = decodeHeader(job, f.Bytes)
		case fieldRetryDelays:
			data, err = d.delays.decode(job, all, left)
		case 21:
			granted, err = d.witnessTime(f.Bytes)
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

// fieldRetryDelays is the field of a Job.
const fieldRetryDelays = 15

// delaysTogether is the longest list of retry delays that shares its memory.
const delaysTogether = 16

// A delaysDecoder decodes retry delays. Those of neighbours are often equal, and often the default,
// which has seven. It keeps a reference to what it decoded last.
type delaysDecoder struct {
	data []byte          // the fields of the job before
	list []time.Duration // the decoded delays
	free []time.Duration // room for copies
}

// decode decodes the retry delays at the start of data, and removes them. left is as in
// jobDecoder.decode.
func (d *delaysDecoder) decode(job *Job, data []byte, left int) (rest []byte, err error) {
	if len(d.data) == 0 || !bytes.HasPrefix(data, d.data) {
		if err := d.read(data); err != nil {
			return nil, err
		}
	}
	n := len(d.list)
	// The job has delays from another part of its message, or too many to share memory.
	if job.RetryDelays != nil || n > delaysTogether {
		job.RetryDelays = append(job.RetryDelays, d.list...)
		return data[len(d.data):], nil
	}
	if len(d.free) < n {
		d.free = make([]time.Duration, n*min(left, jobsTogether))
	}
	job.RetryDelays, d.free = d.free[:n:n], d.free[n:]
	copy(job.RetryDelays, d.list)
	return data[len(d.data):], nil
}

// read decodes the retry delays at the start of data into the decoder.
func (d *delaysDecoder) read(data []byte) error {
	d.data, d.list = nil, d.list[:0]
	rest := data
	for len(rest) > 0 {
		f, next, err := wire.Next(rest)
		if err != nil {
			return err
		}
		if f.Number != fieldRetryDelays {
			break
		}
		delay, err := wire.Duration(f.Bytes)
		if err != nil {
			return err
		}
		d.list, rest = append(d.list, delay), next
	}
	d.data = data[:len(data)-len(rest)]
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
		job.State = stateOf(belfryv1.JobState(f.Value))
	case 12:
		job.Priority = int(int32(f.Value))
	case 14:
		job.MaxAttempts = int(uint32(f.Value))
	case 20:
		job.BodyBytes = int(uint32(f.Value))
	}
}

// decodeHeader decodes an entry of the map of headers.
func decodeHeader(job *Job, data []byte) error {
	var name, value string
	err := wire.Each(data, func(f wire.Field) error {
		switch f.Number {
		case 1:
			name = string(f.Bytes)
		case 2:
			value = string(f.Bytes)
		}
		return nil
	})
	if job.Headers == nil {
		job.Headers = make(map[string]string)
	}
	job.Headers[name] = value
	return err
}

// witnessTime decodes the time of a Witness. Witnesses of one shard are equal.
func (d *jobDecoder) witnessTime(data []byte) (t time.Time, err error) {
	if len(data) > 0 && bytes.Equal(data, d.witness) {
		return d.granted, nil
	}
	if t, err = witnessTime(data); err == nil {
		d.witness, d.granted = data, t
	}
	return t, err
}

// witnessTime decodes the time of a Witness.
func witnessTime(data []byte) (t time.Time, err error) {
	for len(data) > 0 {
		var f wire.Field
		if f, data, err = wire.Next(data); err != nil {
			return t, err
		}
		if f.Number == 5 {
			if t, err = wire.Time(f.Bytes); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}
