package queue

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// conflictsNamedMax bounds the conflicts of one call that the server explains. Each costs a read.
const conflictsNamedMax = 8

// conflictWait bounds the wait for all of these reads: the answers to the puts are already there.
// A call with less than twice that time left is answered without the reads.
const conflictWait = 200 * time.Millisecond

// nameConflicts adds to JOB_EXISTS which field of a put differs from the existing job, and to
// JOB_RESERVED what the put could do instead. The state machine only compares hashes. A read that
// fails or finds no job does not change the message.
func (s *Service) nameConflicts(ctx context.Context, b *putBatch) {
	var conflicts []int
	for i, put := range b.puts {
		f := b.answers[i].Fault
		if f != nil && f.Reason == belfryv1.Reason_REASON_JOB_RESERVED {
			f.Message = "the job is reserved: with onExisting NEXT instead of REPLACE, the put waits as its successor"
		}
		if put != nil && f != nil && f.Reason == belfryv1.Reason_REASON_JOB_EXISTS && f.Shard != nil &&
			len(conflicts) < conflictsNamedMax {
			conflicts = append(conflicts, i)
		}
	}
	if deadline, ok := ctx.Deadline(); len(conflicts) == 0 || ok && time.Until(deadline) < 2*conflictWait {
		return
	}
	consumer, refused := s.rules.Authorizer.Permissions(ctx, tokens.Consume)
	ctx, cancel := context.WithTimeout(ctx, conflictWait)
	defer cancel()
	var reads sync.WaitGroup
	for _, i := range conflicts {
		put, f := b.puts[i], b.answers[i].Fault
		reads.Go(func() {
			query := &fsm.JobQuery{Queue: put.Queue, ID: put.ID, Ended: true}
			if put.Partitions > 1 {
				query.Key = put.Key // an id is unique per key
			}
			r, _, err := s.router.Node.Query(ctx, *f.Shard, query)
			if err == nil && len(r.Jobs) > 0 && (put.Partitions == 1 || r.Jobs[0].Key == put.Key) {
				sees := refused == nil && consumer.Allows(put.Queue)
				f.Message = conflictText(put, &r.Jobs[0], sees)
			}
		})
	}
	reads.Wait()
}

// conflictText says how a put differs from the job with its id. Without the permission to read
// jobs, it only shows when the job is due, which the answer to a repeated put shows too.
func conflictText(put *fsm.Put, job *fsm.Job, reads bool) string {
	held := job.State.Held()
	due := ""
	if held && put.Key == job.Key {
		due = dueAtDifference(put, job)
	}
	switch {
	case due != "":
		return "a job with this id exists: " + due
	case !reads:
		return fault.New(belfryv1.Reason_REASON_JOB_EXISTS).Message
	case held:
		return "a job with this id exists: " + contentDifference(put, job)
	default:
		return "a job with this id and other content ended within the dedup window: it is " + endText(job)
	}
}

// dueAtDifference says how the dueAt of a put differs from the job's. It is empty if they are
// equal, or unless both have one.
func dueAtDifference(put *fsm.Put, job *fsm.Job) string {
	if !(put.Given & job.Given).Has(fsm.GivenDueAt) || put.DueAt.Ceil() == job.FirstDue {
		return ""
	}
	return "dueAt differs (" + timeText(job.FirstDue) + " at first, now " + timeText(put.DueAt) +
		"); with delay a repeat is the same put"
}

// contentDifference says which field of a put, other than dueAt, differs from the job that an
// earlier put with the same id created.
func contentDifference(put *fsm.Put, job *fsm.Job) string {
	if put.Key != job.Key {
		return "key differs"
	}
	const ofTime = fsm.GivenDelay | fsm.GivenDueAt
	both := put.Given & job.Given
	switch {
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
		{fsm.GivenPriority, "priority", fsm.RankOf(put.Priority) == fsm.RankOf(job.Priority)},
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

// dueField names the field of a put that says when the job is due.
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

// contentHeaders returns the headers without those that carry a trace, which are no content.
func contentHeaders(headers []fsm.Header) []fsm.Header {
	return slices.DeleteFunc(slices.Clone(headers), fsm.CarriesTrace)
}

// timeText returns a time as JSON writes it.
func timeText(t fsm.Time) string { return time.Unix(0, int64(t)).UTC().Format(time.RFC3339Nano) }
