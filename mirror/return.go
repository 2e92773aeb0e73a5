package mirror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
)

// returned is a job on its way back: its tag, the score and the member of its entry.
type returned struct {
	tag, score       string
	member           []byte
	original, packed bool // it has the very member that came, or that in the other format
	reduced          bool
}

// entryOf makes the entry of a job.
func (e *exporter) entryOf(job *client.Job) (returned, error) {
	due := job.DueAt.Add(time.Millisecond - 1).UnixMilli() // never earlier than the job
	if e.format == redisson.Unknown {
		return returned{}, errNoFormat // there was no job whenever it was looked for
	}
	r := returned{tag: tagOf(job), score: fmt.Sprint(max(1, due))}
	m := redisson.Member{Generation: e.format}
	headers := len(job.Headers)
	from, came, err := originOf(job)
	switch {
	case err != nil:
		return returned{}, err
	case came:
		headers--
		m.Random = from.random
		r.original, r.packed = from.generation == e.format, from.generation != e.format
	default:
		e.sequence++
		binary.BigEndian.PutUint64(m.Random[:], e.sequence)
	}
	if m.Payload, err = payloadOf(job, e.codec); err != nil {
		return returned{}, err
	}
	r.member = m.Append(nil)
	r.reduced = headers > 0 || job.Attempt > 0 || job.Priority != 0 || !job.ExpiresAt.IsZero()
	return r, nil
}

// returnState moves all jobs of one state back, and says how many there were.
func (e *exporter) returnState(ctx context.Context, state client.State) (int, error) {
	total := 0
	var ids []string
	flush := func() error {
		n, err := e.returnIDs(ctx, ids)
		total, ids = total+n, ids[:0]
		return err
	}
	for job, err := range e.Belfry.List(ctx, e.Queue, client.ListOptions{State: state, PageSize: returnJobs}) {
		if err != nil {
			return total, fmt.Errorf("listing the jobs to go back: %w", err)
		}
		if ids = append(ids, job.ID); len(ids) == returnJobs {
			if err := flush(); err != nil {
				return total, err
			}
		}
	}
	return total, flush()
}

// returnIDs moves jobs back: it reads them, writes them into Redis in pieces that keep Redis quick,
// and removes them from Belfry.
func (e *exporter) returnIDs(ctx context.Context, ids []string) (int, error) {
	jobs := make([]*client.Job, len(ids))
	places := make([]int, len(ids))
	for n := range places {
		places[n] = n
	}
	err := pair.Each(ctx, places, func(ctx context.Context, n int) error {
		job, err := e.Belfry.Get(ctx, e.Queue, ids[n])
		if errors.Is(err, client.ErrJobNotFound) {
			return nil // cancelled, or its TTL ended
		}
		jobs[n] = job
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("reading the jobs to go back: %w", err)
	}
	if len(ids) > 0 && e.format == redisson.Unknown { // there was no job when it was looked for
		if err := e.chooseFormat(ctx); err != nil {
			return 0, err
		}
	}
	var piece []returned
	bytes, total := 0, 0
	for n, job := range jobs {
		if job != nil && (job.State == "DELAYED" || job.State == "READY") {
			one, err := e.entryOf(job)
			if err != nil {
				return total, err
			}
			piece, bytes = append(piece, one), bytes+len(one.member)
		}
		if len(piece) > 0 && (bytes > returnBytes || len(piece) == e.batch || n == len(jobs)-1) {
			if err := e.write(ctx, piece); err != nil {
				return total, err
			}
			total += len(piece)
			piece, bytes = piece[:0], 0
		}
	}
	return total, nil
}

// write makes entries of jobs and removes the jobs, also if ctx ends meanwhile: a job that is in
// Redis should not stay in Belfry when the export is stopped.
func (e *exporter) write(ctx context.Context, jobs []returned) error {
	if err := e.AwaitRest(ctx); err != nil {
		return err
	}
	ctx, end := pair.Outliving(ctx, pair.LingerMax)
	defer end()
	args, tags := make([]any, 0, 3*len(jobs)), make([]string, len(jobs))
	for n, job := range jobs {
		args = append(args, job.tag, job.score, job.member)
		tags[n] = job.tag
	}
	reply, took, err := e.Script(ctx, returnScript, []string{e.keys.Timer, e.keys.List, e.keys.returned,
		e.keys.Channel}, args...)
	if err != nil {
		return err
	}
	e.batch = pair.NextBatch(e.batch, took)
	written, err := reply.Int64()
	if err != nil {
		return err
	}
	if err := e.cancel(ctx, e.keys.returned, tags); err != nil {
		return err
	}
	e.counts.Returned += int64(len(jobs))
	e.counts.There += int64(len(jobs)) - written
	for _, job := range jobs {
		e.counts.Original += one(job.original)
		e.counts.Repacked += one(job.packed)
		e.counts.Reduced += one(job.reduced)
	}
	if e.progress != nil {
		e.counts.Slowest = e.Slowest()
		e.progress(e.counts)
	}
	return nil
}

func one(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
