package rpc

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// conflictsNamedMax bounds the conflicts of one call that are looked into, at a read each.
const conflictsNamedMax = 8

// conflictPatience bounds the wait for such a read: the answer to the put is there already.
const conflictPatience = time.Second

// nameConflicts adds to JOB_EXISTS which field of a put differs from the job that is held. The machine compares hashes
// only. A read that fails, or that finds the job gone, adds nothing.
func (s *queueService) nameConflicts(ctx context.Context, b *putBatch) {
	named := 0
	for i, put := range b.puts {
		f := b.answers[i].fault
		if put == nil || f == nil || f.Reason != belfryv1.Reason_REASON_JOB_EXISTS || f.Shard == nil || named >= conflictsNamedMax {
			continue
		}
		named++
		bounded, cancel := context.WithTimeout(ctx, conflictPatience)
		r, _, err := s.node.Query(bounded, *f.Shard, &fsm.JobQuery{Queue: put.Queue, ID: put.ID, Ended: true})
		cancel()
		if err != nil || len(r.Jobs) == 0 {
			continue
		}
		if job := &r.Jobs[0]; job.State.Held() {
			f.Message = "a job with this id exists: " + contentDifference(put, job)
		} else {
			f.Message = "a job with this id and other content ended within the dedup window: it is " + endText(job)
		}
	}
}

// contentDifference says in which field a put differs from the job that an earlier put of its id made.
func contentDifference(put *fsm.Put, job *fsm.Job) string {
	const ofTime = fsm.GivenDelay | fsm.GivenDueAt
	both := put.Given & job.Given
	switch {
	case both.Has(fsm.GivenDueAt) && put.DueAt.Ceil() != job.FirstDue:
		return "dueAt differs (" + timeText(job.FirstDue) + " at first, now " + timeText(put.DueAt) + "); with delay a repeat is the same put"
	case put.Given&ofTime != job.Given&ofTime:
		return "the first put had " + dueField(job.Given) + ", this one has " + dueField(put.Given)
	case both.Has(fsm.GivenDelay) && job.Created.After(put.Delay) != job.FirstDue:
		return "delay differs"
	case !bytes.Equal(put.Body, job.Body):
		return "the body differs"
	case !slices.Equal(contentHeaders(put.Headers), contentHeaders(job.Headers)):
		return "headers differ"
	}
	for _, option := range [...]struct {
		given fsm.Given
		name  string
		same  bool
	}{
		{fsm.GivenTTR, "ttr", put.TTR == job.TTR},
		{fsm.GivenPriority, "priority", put.Priority == job.Priority},
		{fsm.GivenMaxAttempts, "maxAttempts", put.MaxAttempts == job.MaxAttempts},
		{fsm.GivenRetryDelays, "retryDelays", slices.Equal(put.RetryDelays, job.RetryDelays)},
		{fsm.GivenTTL, "ttl", job.TTL == 0 || job.Created.After(put.TTL) == job.TTL}, // a redrive clears it
	} {
		if (put.Given ^ job.Given).Has(option.given) || both.Has(option.given) && !option.same {
			return option.name + " differs"
		}
	}
	return "its content differs"
}

// dueField names the field with which a put said when it is due.
func dueField(given fsm.Given) string {
	switch {
	case given.Has(fsm.GivenDueAt):
		return "dueAt"
	case given.Has(fsm.GivenDelay):
		return "delay"
	default:
		return "neither delay nor dueAt"
	}
}

// contentHeaders leaves out what does not count as content.
func contentHeaders(headers []fsm.Header) []fsm.Header {
	return slices.DeleteFunc(slices.Clone(headers), fsm.CarriesTrace)
}

// timeText writes a time as JSON has it.
func timeText(t fsm.Time) string { return time.Unix(0, int64(t)).UTC().Format(time.RFC3339Nano) }
