package jobs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	batchBytesMax = 3 << 20 // below the server's 4 MiB, with room for the envelope
	lineBytesMax  = 8 << 20 // a body of 1 MiB with every byte escaped fits
	batchJobsMax  = 1000
	reportedMax   = 20 // how many bad lines are shown one by one
	sameShown     = 2  // how many of them that follow another one and have its reason
)

// job is one line of a file, ready to be put.
type job struct {
	line    uint64
	request *belfryv1.PutRequest
}

// fileFlags are the options of `put --file`.
type fileFlags struct {
	path     string
	from     uint64
	skip     lineSet
	repeatTo uint64
	batch    int
}

// fileRun puts the jobs of one file.
type fileRun struct {
	app      *cli.App
	conn     *cli.Connection
	queue    string // for lines that name none
	flags    fileFlags
	repeatID string // of the batch that the lines up to flags.repeatTo are; "" once it has been sent
	progress *cli.Progress

	tally tally
	// limited counts the lines that a limit refused, shown those that were said why of. why is the
	// last of these reasons, and same how many lines after it have it, too.
	limited, shown, same uint64
	why                  string
	// limitedRate tells that it was said that a limit of the rate is waited for.
	limitedRate bool
}

// tally counts what became of the lines of a file.
type tally struct {
	Put      uint64  `json:"put"`
	Replaced uint64  `json:"replaced"`
	Repeated uint64  `json:"repeated"`
	Failed   uint64  `json:"failed"`
	Seconds  float64 `json:"seconds"`
}

// putFileCommand is `put --file`.
func (a verbs) putFileCommand(ctx context.Context, c *cobra.Command, f *putFlags, args []string) error {
	for _, name := range []string{"id", "delay", "at", "ttr", "priority", "max-attempts", "retry-delays", "ttl", "header",
		"again", "key", "on-existing", "max-wait", "if-version"} {
		if c.Flags().Changed(name) {
			return cli.Usagef("--%s does not go with --file: each line has its own", name)
		}
	}
	switch {
	case len(args) > 1:
		return cli.Usagef("a body does not go with --file")
	case f.file.batch < 1 || f.file.batch > batchJobsMax || f.file.from < 1:
		return cli.Usagef("--batch must be 1 to %d and --from at least 1", batchJobsMax)
	case (f.requestID == "") != (f.file.repeatTo == 0):
		return cli.Usagef("with --file, --request-id and --repeat-to go together: they name a batch to repeat")
	case f.requestID != "" && f.file.repeatTo < f.file.from:
		return cli.Usagef("--repeat-to must not be below --from")
	}
	conn, err := a.Connect()
	if err != nil {
		return err
	}
	input, size, err := a.openJobs(f.file.path)
	if err != nil {
		return err
	}
	defer input.Close()
	run := &fileRun{
		app: a.App, conn: conn, flags: f.file, repeatID: f.requestID, progress: cli.NewProgress(a.System, size),
	}
	if len(args) == 1 {
		run.queue = args[0]
	}
	return run.do(ctx, input)
}

// openJobs opens a file of jobs; its size is 0 if it cannot be known.
func (a verbs) openJobs(path string) (io.ReadCloser, int64, error) {
	if path == "-" {
		a.AnnounceTyping("jobs, one line of JSON each,")
		return io.NopCloser(a.In), 0, nil
	}
	file, err := os.Open(path) //nolint:gosec // the person names the file
	if err != nil {
		return nil, 0, cli.Usagef("--file: %s", err)
	}
	var size int64
	if stat, err := file.Stat(); err == nil && stat.Mode().IsRegular() {
		size = stat.Size()
	}
	return file, size, nil
}

// do puts every line from the given one on, and says how it went.
func (r *fileRun) do(ctx context.Context, input io.Reader) error {
	began := r.app.Now()
	stopped := r.putLines(ctx, input)
	r.tally.Seconds = r.app.Now().Sub(began).Seconds()
	r.sameAgain()
	r.progress.End()
	if stopped != nil {
		fmt.Fprintf(r.app.Err, "belfry: stopped at line %d with %s put; %s\n", stopped.from, render.Count(r.tally.Put, "job"),
			r.advice(stopped))
		return r.verdict(ctx, stopped)
	}
	if err := r.app.ShowValue(r.tally, func(w io.Writer) { renderTally(w, r.tally) }); err != nil {
		return err
	}
	switch r.tally.Failed {
	case 0:
		return nil
	case r.limited:
		return cli.ExitWith(cli.CodeExhausted, fmt.Sprintf("%s not put, refused by a limit", were(r.tally.Failed)))
	default:
		return cli.ExitWith(cli.CodeError, fmt.Sprintf("%s not put", were(r.tally.Failed)))
	}
}

// were begins a sentence about a number of lines.
func were(lines uint64) string {
	if lines == 1 {
		return "1 line was"
	}
	return fmt.Sprintf("%d lines were", lines)
}

// putLines puts the lines in batches. It returns nil, or where it stopped.
func (r *fileRun) putLines(ctx context.Context, input io.Reader) *stop {
	lines := lineReader{input: bufio.NewReaderSize(input, 64<<10)}
	var pending []job
	var pendingBytes int
	number, read := uint64(0), int64(0)
	flush := func() *stop {
		if len(pending) > 0 {
			if stopped := r.putBatch(ctx, pending, r.repeatID); stopped != nil {
				return stopped
			}
		}
		pending, pendingBytes, r.repeatID = pending[:0], 0, ""
		r.progress.Update(r.tally.Put, read)
		return nil
	}
	for lines.next() {
		number++
		read += lines.size
		text := strings.TrimSpace(string(lines.text))
		if number < r.flags.from || text == "" && !lines.long() || r.flags.skip.has(number) {
			continue
		}
		request, err := r.parse(text)
		if lines.long() {
			err = fmt.Errorf("the line has %d bytes; the limit is %d", lines.size, lineBytesMax)
		}
		if err != nil {
			r.failed(number, err.Error())
			continue
		}
		size := proto.Size(request)
		full := len(pending) == r.flags.batch || pendingBytes+size > batchBytesMax
		if r.repeatID != "" {
			full = number > r.flags.repeatTo // a repeat is the same call, or it is refused
		}
		if full {
			if stopped := flush(); stopped != nil {
				return stopped
			}
		}
		pending = append(pending, job{number, request})
		pendingBytes += size
	}
	if stopped := flush(); stopped != nil {
		return stopped
	}
	if lines.err != nil {
		return &stop{
			from: number + 1, next: number + 1,
			err: fmt.Errorf("reading %s after line %d: %w", r.flags.path, number, lines.err),
		}
	}
	return nil
}

// parse reads one line.
func (r *fileRun) parse(text string) (*belfryv1.PutRequest, error) {
	request := &belfryv1.PutRequest{}
	if err := cli.DecodeJSON([]byte(text), request); err != nil {
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

// failed counts a line that was not put, and says why of the first few. What is the same of many
// lines in a row is said once.
func (r *fileRun) failed(line uint64, why string) {
	r.tally.Failed++
	if why != r.why {
		r.sameAgain()
		r.why = why
	} else if r.same++; r.same > sameShown {
		return
	}
	r.progress.Clear()
	switch r.shown++; {
	case r.shown <= reportedMax:
		fmt.Fprintf(r.app.Err, "%s:%d: %s\n", r.flags.path, line, why)
	case r.shown == reportedMax+1:
		fmt.Fprintln(r.app.Err, "further bad lines are only counted")
	}
}

// sameAgain says of how many lines more the last reason was true.
func (r *fileRun) sameAgain() {
	if r.same > sameShown && r.shown <= reportedMax {
		r.progress.Clear()
		fmt.Fprintf(r.app.Err, "%s: the same of %s after it\n", r.flags.path, render.Count(r.same-sameShown, "line"))
	}
	r.same = 0
}

// waits says once that a limit of the rate is waited for.
func (r *fileRun) waits(reason belfryv1.Reason, message string) {
	if reason == belfryv1.Reason_REASON_RATE_LIMITED && !r.limitedRate {
		r.limitedRate = true
		r.progress.Clear()
		fmt.Fprintf(r.app.Err, "belfry: slowed down by the server: RATE_LIMITED: %s\n", message)
	}
}
