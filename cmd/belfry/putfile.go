package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	batchBytesMax   = 3 << 20 // below the server's 4 MiB, with room for the envelope
	lineBytesMax    = 4 << 20
	batchJobsMax    = 1000
	reportedMax     = 20 // how many bad lines are shown one by one
	retryPauseFirst = 100 * time.Millisecond
	retryPauseMax   = 2 * time.Second
)

// job is one line of a file, ready to be put.
type job struct {
	line    uint64
	request *belfryv1.PutRequest
}

// fileRun puts the jobs of one file.
type fileRun struct {
	app      *app
	conn     *connection
	queue    string // for lines that name none
	path     string
	base     requestID
	batch    int
	progress *progress

	tally tally
}

// tally counts what became of the lines of a file.
type tally struct {
	Put      uint64  `json:"put"`
	Repeated uint64  `json:"repeated"`
	Failed   uint64  `json:"failed"`
	Seconds  float64 `json:"seconds"`
}

// putFileCommand is `put --file`.
func (a *app) putFileCommand(ctx context.Context, c *cobra.Command, f *putFlags, args []string) error {
	for _, name := range []string{"id", "delay", "at", "ttr", "priority", "max-attempts", "retry-delays", "ttl", "header", "again"} {
		if c.Flags().Changed(name) {
			return usagef("--%s does not go with --file: each line has its own", name)
		}
	}
	if len(args) > 1 {
		return usagef("a body does not go with --file")
	}
	if f.batch < 1 || f.batch > batchJobsMax || f.from < 1 {
		return usagef("--batch must be 1 to %d and --from at least 1", batchJobsMax)
	}
	base := a.requestID()
	if f.requestID != "" {
		var err error
		if base, err = parseRequestID(f.requestID); err != nil {
			return err
		}
	}
	conn, err := a.connect()
	if err != nil {
		return err
	}
	input, size, err := a.openJobs(f.file)
	if err != nil {
		return err
	}
	defer input.Close()
	run := &fileRun{app: a, conn: conn, path: f.file, base: base, batch: f.batch, progress: newProgress(a.system, size)}
	if len(args) == 1 {
		run.queue = args[0]
	}
	return run.do(ctx, input, f.from)
}

// openJobs opens a file of jobs; its size is 0 if it cannot be known.
func (a *app) openJobs(path string) (io.ReadCloser, int64, error) {
	if path == "-" {
		return io.NopCloser(a.in), 0, nil
	}
	file, err := os.Open(path) //nolint:gosec // the person names the file
	if err != nil {
		return nil, 0, usagef("--file: %s", err)
	}
	var size int64
	if stat, err := file.Stat(); err == nil && stat.Mode().IsRegular() {
		size = stat.Size()
	}
	return file, size, nil
}

// do puts every line from the given one on, and says how it went.
func (r *fileRun) do(ctx context.Context, input io.Reader, from uint64) error {
	began := r.app.now()
	stopped, err := r.putLines(ctx, input, from)
	r.tally.Seconds = r.app.now().Sub(began).Seconds()
	r.progress.end()
	if err != nil {
		fmt.Fprintf(r.app.err, "belfry: stopped at line %d with %d jobs put; go on with:\n  %s\n", stopped, r.tally.Put, r.resumeCommand(stopped))
		return r.app.describe(ctx, err)
	}
	if err := r.app.showValue(r.tally, func(w io.Writer) { renderTally(w, r.tally) }); err != nil {
		return err
	}
	if r.tally.Failed > 0 {
		return &codedError{codeError, fmt.Sprintf("%d lines were not put", r.tally.Failed)}
	}
	return nil
}

// resumeCommand is what puts the rest and repeats nothing: the batches get the same ids.
func (r *fileRun) resumeCommand(line uint64) string {
	parts := []string{"belfry put"}
	if r.queue != "" {
		parts = append(parts, r.queue)
	}
	parts = append(parts, "--file", r.path, "--from", fmt.Sprint(line), "--request-id", r.base.String(), "--batch", fmt.Sprint(r.batch))
	return strings.Join(parts, " ")
}

// putLines puts the lines in batches. If it stops early it returns the first line that may not have been put.
func (r *fileRun) putLines(ctx context.Context, input io.Reader, from uint64) (uint64, error) {
	lines := bufio.NewScanner(input)
	lines.Buffer(make([]byte, 64<<10), lineBytesMax)
	var pending []job
	var pendingBytes int
	first, read := from, int64(0)
	flush := func(next uint64) error {
		if len(pending) > 0 {
			if err := r.putBatch(ctx, pending); err != nil {
				return err
			}
		}
		pending, pendingBytes, first = pending[:0], 0, next
		r.progress.update(r.tally.Put, read)
		return nil
	}
	number := uint64(0)
	for lines.Scan() {
		number++
		read += int64(len(lines.Bytes())) + 1
		text := strings.TrimSpace(lines.Text())
		if number < from || text == "" {
			continue
		}
		request, err := r.parse(text)
		if err != nil {
			r.failed(number, err.Error())
			continue
		}
		if size := proto.Size(request); len(pending) == r.batch || pendingBytes+size > batchBytesMax {
			if err := flush(number); err != nil {
				return first, err
			}
		}
		pending = append(pending, job{number, request})
		pendingBytes += proto.Size(request)
	}
	if err := lines.Err(); err != nil {
		return number + 1, fmt.Errorf("reading %s after line %d: %w", r.path, number, err)
	}
	return first, flush(number + 1)
}

// parse reads one line.
func (r *fileRun) parse(text string) (*belfryv1.PutRequest, error) {
	request := &belfryv1.PutRequest{}
	if err := decodeJSON([]byte(text), request); err != nil {
		return nil, err
	}
	if request.Queue == "" {
		request.Queue = r.queue
	}
	if request.Queue == "" {
		return nil, errors.New("the line names no queue, and the command names none for it")
	}
	if request.RequestId != "" {
		return nil, errors.New("requestId does not go into a line: the batch has one")
	}
	return request, nil
}

// failed counts a line that was not put, and shows the first few.
func (r *fileRun) failed(line uint64, why string) {
	r.tally.Failed++
	if r.tally.Failed <= reportedMax {
		r.progress.clear()
		fmt.Fprintf(r.app.err, "%s:%d: %s\n", r.path, line, why)
	}
	if r.tally.Failed == reportedMax {
		fmt.Fprintln(r.app.err, "further bad lines are only counted")
	}
}

// putBatch puts some jobs and waits out what passes by itself: a server that restarts, a shard without leader, a limit on
// the rate. It gives up when nothing was answered for --timeout.
func (r *fileRun) putBatch(ctx context.Context, jobs []job) error {
	pause := retryPauseFirst
	var attempt uint64
	deadline := r.app.now().Add(r.app.timeout)
	for {
		refused, wait, err := r.try(ctx, jobs, r.base.plus(attempt<<40+jobs[0].line))
		switch {
		case err == nil && len(refused) == 0:
			return nil
		case err == nil:
			// What was refused was not done; its repeat is another call with another id.
			jobs, attempt, deadline = refused, attempt+1, r.app.now().Add(r.app.timeout)
		case ctx.Err() != nil || !passing(err) || !r.app.now().Before(deadline):
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(max(wait, pause)):
		}
		pause = min(2*pause, retryPauseMax)
	}
}

// try makes one call. It returns the jobs that were refused for now and how long to wait for them.
func (r *fileRun) try(ctx context.Context, jobs []job, id requestID) (refused []job, wait time.Duration, err error) {
	request := &belfryv1.PutBatchRequest{RequestId: id.String()}
	for _, j := range jobs {
		request.Jobs = append(request.Jobs, j.request)
	}
	callCtx, cancel := context.WithTimeout(ctx, r.app.timeout)
	defer cancel()
	response, err := r.conn.queues.PutBatch(callCtx, request)
	if err != nil {
		return nil, 0, err
	}
	if len(response.Results) != len(jobs) {
		return nil, 0, fmt.Errorf("the server answered %d results for %d jobs", len(response.Results), len(jobs))
	}
	for _, result := range response.Results {
		if result.GetError().GetOutcome() == belfryv1.Outcome_OUTCOME_UNKNOWN {
			return nil, 0, errUnknownEntry
		}
	}
	for i, result := range response.Results {
		failure := result.GetError()
		switch {
		case failure == nil && result.GetPut().GetCreated():
			r.tally.Put++
		case failure == nil:
			r.tally.Repeated++
		case passingReason(failure.Reason):
			refused = append(refused, jobs[i])
			wait = max(wait, failure.RetryAfter.AsDuration())
		default:
			r.failed(jobs[i].line, strings.TrimPrefix(failure.Reason.String(), "REASON_")+": "+failure.Message)
		}
	}
	return refused, wait, nil
}

// errUnknownEntry: of some jobs of a batch it is not known whether they were put; the same call asks again.
var errUnknownEntry = errors.New("the server does not know whether all jobs of the batch were put")

// passing reports whether a call is worth repeating with the same id after a while.
func passing(err error) bool {
	if errors.Is(err, errUnknownEntry) || outcomeUnknown(err) {
		return true
	}
	code := wireCode(err)
	return code == codeUnavailable || code == codeExhausted
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
