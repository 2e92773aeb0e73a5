package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belfrydb/belfry/rpc/fault"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	retryPauseFirst = 100 * time.Millisecond
	retryPauseMax   = 2 * time.Second
)

// A stop says where a file stopped, and why.
type stop struct {
	from uint64  // the first line that may not have been put
	skip lineSet // lines after it of which it is known what became of them
	// id and to are the request id and the last line of the call of which it is not known whether it
	// was done; empty if nothing from the first line on was put.
	id   string
	to   uint64
	next uint64 // the first line after the batch
	err  error
}

// putBatch puts some jobs and waits out temporary trouble: a server that restarts, a shard without
// leader, a limit on the rate. It gives up when no answer came for --timeout. It makes its request
// id when it first sends the batch, because a server refuses an id that is older than its memory.
// id, if not empty, is the id of a call to repeat.
func (r *fileRun) putBatch(ctx context.Context, batch []job, id string) *stop {
	jobs, pause := batch, retryPauseFirst
	sent := "" // the id, once the call may have been done under it
	if id != "" {
		sent = id
	} else {
		id = r.app.RequestID()
	}
	deadline := r.app.Now().Add(r.app.Timeout)
	for {
		left, wait, err := r.try(ctx, jobs, id)
		if cli.OutcomeUnknown(err) || errors.Is(err, errUnknownEntry) {
			sent = id
		}
		switch {
		case err == nil && len(left) == 0:
			return nil
		case err == nil:
			// What was refused was not done; its repeat is another call with another id.
			jobs, id, sent, deadline = left, r.app.RequestID(), "", r.app.Now().Add(r.app.Timeout)
		case errors.Is(err, cli.ErrRequestExpired):
			return stopAt(batch, left, id, err)
		case ctx.Err() != nil || !passing(err) || !r.app.Now().Before(deadline):
			return stopAt(batch, jobs, sent, err)
		}
		if fault, ok := fault.FromConnect(err); ok {
			r.waits(fault.Reason, fault.Message)
		}
		select {
		case <-ctx.Done():
			return stopAt(batch, jobs, sent, context.Cause(ctx))
		case <-time.After(max(wait, pause)):
		}
		pause = min(2*pause, retryPauseMax)
	}
}

// stopAt describes a stop at a batch of which some jobs are left, perhaps sent under id.
func stopAt(batch, left []job, id string, err error) *stop {
	s := &stop{from: left[0].line, id: id, to: left[len(left)-1].line, next: batch[len(batch)-1].line + 1, err: err}
	open := make(map[uint64]bool, len(left))
	for _, j := range left {
		open[j.line] = true
	}
	for _, j := range batch {
		if j.line > s.from && !open[j.line] {
			s.skip.add(j.line)
		}
	}
	return s
}

// advice says how to go on after a stop.
func (r *fileRun) advice(s *stop) string {
	switch {
	case errors.Is(s.err, cli.ErrRequestExpired):
		return fmt.Sprintf("whether lines %d to %d were put is unknown, and asking again cannot tell.\n"+
			"to leave them out:\n  %s\nto put them, perhaps a second time:\n  %s",
			s.from, s.to, r.resumeCommand(&stop{from: s.next}), r.resumeCommand(&stop{from: s.from, skip: s.skip}))
	case s.id != "":
		return fmt.Sprintf("whether lines %d to %d were put is unknown. Within 5 minutes this goes on and puts no job "+
			"twice:\n  %s",
			s.from, s.to, r.resumeCommand(s))
	default:
		return "go on with:\n  " + r.resumeCommand(s)
	}
}

// resumeCommand is what puts the rest at the same server and repeats nothing: a call of unknown
// outcome is made again under its own id.
func (r *fileRun) resumeCommand(s *stop) string {
	parts := []string{"belfry put"}
	if r.queue != "" {
		parts = append(parts, shellWord(r.queue))
	}
	for i, word := range r.app.ServerArguments() {
		if i%2 == 1 {
			word = shellWord(word)
		}
		parts = append(parts, word)
	}
	parts = append(parts, "--file", shellWord(r.flags.path), "--from", fmt.Sprint(s.from), "--batch",
		fmt.Sprint(r.flags.batch))
	skip := r.flags.skip.merged(s.skip)
	if len(skip) > 0 {
		parts = append(parts, "--skip", skip.String())
	}
	if s.id != "" {
		parts = append(parts, "--request-id", shellWord(s.id), "--repeat-to", fmt.Sprint(s.to))
	}
	return strings.Join(parts, " ")
}

// shellWord returns a text as one word of a shell's command line.
func shellWord(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// verdict is the error of a command that stopped.
func (r *fileRun) verdict(ctx context.Context, s *stop) error {
	if _, stopped := errors.AsType[cli.Interruption](context.Cause(ctx)); s.id == "" || stopped {
		return r.app.Describe(ctx, s.err)
	}
	return cli.ExitWith(cli.CodeUnknown, cli.Explain(s.err))
}

// try makes one call. It returns what count does.
func (r *fileRun) try(ctx context.Context, jobs []job, id string) (left []job, wait time.Duration, err error) {
	request := &belfryv1.PutBatchRequest{RequestId: id}
	for _, j := range jobs {
		request.Jobs = append(request.Jobs, j.request)
	}
	callCtx, cancel := context.WithTimeout(ctx, r.app.Timeout)
	defer cancel()
	response, err := r.conn.Queues.PutBatch(callCtx, request)
	if fault, ok := fault.FromConnect(err); ok && fault.Reason == belfryv1.Reason_REASON_REQUEST_EXPIRED {
		return jobs, 0, cli.ErrRequestExpired
	}
	if err != nil {
		return nil, 0, err
	}
	if len(response.Results) != len(jobs) {
		return nil, 0, fmt.Errorf("the server answered %d results for %d jobs", len(response.Results), len(jobs))
	}
	for _, result := range response.Results {
		failure := result.GetError()
		if failure.GetOutcome() == belfryv1.Outcome_OUTCOME_UNKNOWN &&
			failure.GetReason() != belfryv1.Reason_REASON_REQUEST_EXPIRED {
			return nil, 0, errUnknownEntry
		}
	}
	return r.count(jobs, response.Results)
}

// count notes what became of the jobs of a call. It returns those that were refused for now and how
// long to wait for them; with [cli.ErrRequestExpired] if the request id was too old for some.
func (r *fileRun) count(jobs []job, results []*belfryv1.PutBatchResult) (left []job, wait time.Duration, err error) {
	for i, result := range results {
		failure := result.GetError()
		switch {
		case failure == nil && result.GetPut().GetCreated():
			r.tally.Put++
		case failure == nil && result.GetPut().GetReplaced():
			r.tally.Replaced++
		case failure == nil:
			r.tally.Repeated++
		case failure.Reason == belfryv1.Reason_REASON_REQUEST_EXPIRED:
			left, err = append(left, jobs[i]), cli.ErrRequestExpired
		case passingReason(failure.Reason):
			left = append(left, jobs[i])
			r.waits(failure.Reason, failure.Message)
			wait = max(wait, failure.RetryAfter.AsDuration())
		default:
			if limits(failure.Reason) {
				r.limited++
			}
			r.failed(jobs[i].line, strings.TrimPrefix(failure.Reason.String(), "REASON_")+": "+failure.Message)
		}
	}
	return left, wait, err
}

// errUnknownEntry: of some jobs of a batch it is not known whether they were put; the same call
// asks again.
var errUnknownEntry = errors.New("the server does not know whether all jobs of the batch were put")

// passing reports whether a call is worth repeating with the same id after a while.
func passing(err error) bool {
	if errors.Is(err, errUnknownEntry) || cli.OutcomeUnknown(err) {
		return true
	}
	code := cli.WireCode(err)
	return cli.Misdirected(err) == "" && (code == cli.CodeUnavailable || code == cli.CodeExhausted)
}

// limits reports whether a refusal is one of a limit that does not pass by itself.
func limits(reason belfryv1.Reason) bool {
	return reason == belfryv1.Reason_REASON_QUOTA || reason == belfryv1.Reason_REASON_QUEUE_FULL ||
		reason == belfryv1.Reason_REASON_DISK_FULL ||
		reason == belfryv1.Reason_REASON_MEMORY_FULL
}

// passingReason reports whether a refusal passes by itself.
func passingReason(reason belfryv1.Reason) bool {
	switch reason {
	case belfryv1.Reason_REASON_NOT_LEADER, belfryv1.Reason_REASON_NO_LEADER, belfryv1.Reason_REASON_SHUTTING_DOWN,
		belfryv1.Reason_REASON_OVERLOADED, belfryv1.Reason_REASON_RATE_LIMITED, belfryv1.Reason_REASON_QUEUE_CHANGED:
		return true
	default:
		return false
	}
}
