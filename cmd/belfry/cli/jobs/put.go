package jobs

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// putFlags are the options of a job as the command line has them.
type putFlags struct {
	request     belfryv1.PutRequest
	delay, ttr  cli.OptionalDuration
	ttl         cli.OptionalDuration
	at          cli.MomentValue
	maxWait     cli.OptionalDuration
	onExisting  string
	retryDelays cli.DurationList
	priority    int64
	maxAttempts uint32
	headers     []string
	requestID   string
	file        fileFlags
}

// verbs are the commands of jobs.
type verbs struct{ *cli.App }

// Commands returns the commands that put, take, end and look at jobs.
func Commands(a *cli.App) []*cobra.Command {
	v := verbs{a}
	return []*cobra.Command{
		v.putCommand(), v.reserveCommand(), v.ackCommand(), v.nackCommand(), v.releaseCommand(), v.extendCommand(),
		v.cancelCommand(), v.rescheduleCommand(), v.runNowCommand(), v.getCommand(), v.listCommand(), v.redriveCommand(),
		v.tasksCommand(), v.releaseLeasesCommand(),
	}
}

func (a verbs) putCommand() *cobra.Command {
	f := &putFlags{}
	c := &cobra.Command{
		Use:   "put QUEUE [BODY | -] | put [QUEUE] --file FILE",
		Short: "Put a job, or a file of jobs",
		Long: "Put adds a job to a queue. The body is the argument, or standard input for `-`, byte for byte. Without BODY " +
			"it is empty,\n" +
			"as in JSON without text or data. Two calls are refused because they look like mistakes: `-` with an empty " +
			"standard\n" +
			"input, and a pipe or a file as standard input without `-`; '' is an empty body even so.\n\n" +
			"With --file it adds one job for each line of a file (`-` for standard input). A line is the JSON of a put " +
			"request,\n" +
			"such as {\"queue\":\"orders\",\"delay\":\"30m\",\"text\":\"…\"}; QUEUE is for lines that name none. Jobs are put " +
			"in batches,\n" +
			"in order. If it is interrupted it prints the command that goes on where it stopped; followed within 5 minutes, " +
			"it puts\n" +
			"no job twice.",
		Example: `  belfry put orders 'close order 42' --delay 30m --id order-42
  date | belfry put log -
  belfry put ticks --delay 1m
  belfry put search 'index page 7' --id page-7 --delay 30s --on-existing replace --max-wait 5m
  belfry put --file jobs.ndjson`,
		Args:              cli.Arguments(0, 2),
		ValidArgsFunction: a.CompleteQueue,
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.request.Id, flag.ID, "", "the job's id, unique in its queue; made by the server if empty")
	flags.VarP(&f.delay, flag.Delay, "d", "when it is due, from now")
	flags.Var(&f.at, flag.At, "when it is due, as a time (RFC 3339)")
	flags.Var(&f.ttr, flag.TTR, "time to run: the length of its leases")
	flags.Int64Var(&f.priority, flag.Priority, 0, "-128 to 4294967295, lower leaves first")
	flags.Uint32Var(&f.maxAttempts, flag.MaxAttempts, 0, "how many failed attempts make it dead, 0 for no limit")
	flags.Var(&f.retryDelays, flag.RetryDelays,
		"what follows the n-th failed attempt, such as 1s,10s,2m; the last repeats; 0s for at once; not given, those of "+
			"the queue")
	flags.Var(&f.ttl, flag.TTL, "how long it may wait for a consumer")
	flags.StringArrayVarP(&f.headers, flag.Header, "H", nil, "a header `name=value`; may be repeated")
	cli.SetsField(flags, flag.Header, "headers")
	flags.BoolVar(&f.request.Again, flag.Again, false, "also if an earlier job of this id ended within the dedup window")
	flags.StringVar(&f.request.Key, flag.Key, "",
		"its key: the queue's settings for keys hold for all jobs of one key together")
	flags.Var(cli.Choice(&f.onExisting, "return", "keep", "replace", "next"), flag.OnExisting,
		"if a job has the id already: return, keep, replace or next")
	flags.Var(&f.maxWait, flag.MaxWait,
		"with replace or next: the job is due at most so long after its first put")
	flags.Var(cli.Count(&f.request.IfVersion, 1, 0), flag.IfVersion,
		"with replace or next: only if the job has this version")
	flags.StringVar(&f.requestID, flag.RequestID, "", "makes a repeat safe for 5 minutes; made if empty")
	flags.StringVarP(&f.file.path, flag.File, "f", "", "put one job for each line of JSON in this file")
	flags.Uint64Var(&f.file.from, flag.From, 1, "with --file: the first line to put")
	flags.Var(&f.file.skip, flag.Skip, "with --file: lines to leave out, such as 7,9-12")
	flags.Uint64Var(&f.file.repeatTo, flag.RepeatTo, 0,
		"with --file: the last line of the batch that --request-id repeats")
	flags.IntVar(&f.file.batch, flag.Batch, 500, "with --file: how many jobs a call takes, 1 to 1000")
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.file.path != "" {
			return a.putFileCommand(c.Context(), c, f, args)
		}
		// The body comes first: a person who types it may take longer than an answer.
		request, err := a.buildPut(c, f, args)
		if err != nil {
			return err
		}
		return a.Command(nil, func(ctx context.Context, conn *cli.Connection, _ []string) error {
			return a.put(ctx, conn, request)
		})(c, args)
	}
	return a.ClientFlags(c)
}

// buildPut returns the request of the one job that the flags and the arguments describe.
func (a verbs) buildPut(c *cobra.Command, f *putFlags, args []string) (*belfryv1.PutRequest, error) {
	if len(args) == 0 {
		return nil, cli.Usagef("missing argument: QUEUE")
	}
	request, err := f.build(c, args[0])
	if err != nil {
		return nil, err
	}
	switch {
	case len(args) == 2:
		body, err := a.Body(c.Context(), args[1])
		if err != nil {
			return nil, err
		}
		request.Body = &belfryv1.PutRequest_Data{Data: body}
	case a.InPiped:
		return nil, cli.Usagef("standard input is not read without - as BODY; if the body is to be empty, write '' as BODY")
	}
	a.Ensure(&request.RequestId)
	return request, nil
}

// put adds one job.
func (a verbs) put(ctx context.Context, conn *cli.Connection, request *belfryv1.PutRequest) error {
	response, err := conn.Queues.Put(ctx, request)
	if err != nil {
		return cli.WithRequest(request.RequestId, err)
	}
	return a.Show(response, func(w io.Writer) { renderPut(w, request.Queue, response, a.Now()) })
}

// build returns the request that the flags describe, without its body. What was not given is not
// set.
func (f *putFlags) build(c *cobra.Command, queue string) (*belfryv1.PutRequest, error) {
	request := &f.request
	request.Queue, request.RequestId = queue, f.requestID
	request.Ttr, request.Ttl, request.RetryDelays = f.ttr.Proto, f.ttl.Proto, f.retryDelays.Protos
	request.MaxWait = f.maxWait.Proto
	if c.Flags().Changed(flag.OnExisting) {
		request.OnExisting = belfryv1.OnExisting(belfryv1.OnExisting_value["ON_EXISTING_"+strings.ToUpper(f.onExisting)])
	}
	if f.delay.Proto != nil && f.at.Proto != nil {
		return nil, errWhenTwice()
	}
	if f.delay.Proto != nil {
		request.When = &belfryv1.PutRequest_Delay{Delay: f.delay.Proto}
	}
	if f.at.Proto != nil {
		request.When = &belfryv1.PutRequest_DueAt{DueAt: f.at.Proto}
	}
	if c.Flags().Changed(flag.Priority) {
		request.Priority = &f.priority
	}
	if c.Flags().Changed(flag.MaxAttempts) {
		request.MaxAttempts = &f.maxAttempts
	}
	var err error
	request.Headers, err = cli.ParseHeaders(f.headers)
	return request, err
}
