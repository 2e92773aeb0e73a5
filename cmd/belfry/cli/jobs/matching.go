package jobs

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// matching are the flags of a command that acts on a job by its id, or on all jobs that match.
type matching struct {
	filter
	all, dryRun, yes, noWait bool
	rate                     uint32
}

// matchingText is what the help of these commands says of it.
const matchingText = `
With --match, --id-prefix, --cause, --due-after, --due-before or --all it acts on all jobs that
'belfry list' shows with the same flags. It counts them and asks; without a terminal it needs --yes.
The servers carry it out as a task, which goes on after Ctrl-C and after the loss of a node: 'belfry
tasks' shows and stops it. If it ends early, the exit code is 14.
`

// perSecondMax bounds --rate, as the server does.
const perSecondMax = 1_000_000

// add adds the flags; which jobs are meant without a filter is said by about.
func (m *matching) add(c *cobra.Command, about string) {
	flags := c.Flags()
	flags.SortFlags = false
	m.filter.add(flags)
	flags.BoolVar(&m.all, flag.All, false, about)
	flags.Uint32Var(&m.rate, flag.Rate, 0, "with a filter or --all: at most so many jobs a second; no limit if not given")
	flags.BoolVar(&m.dryRun, flag.DryRun, false, "with a filter or --all: count the jobs, and change nothing")
	flags.BoolVar(&m.noWait, flag.NoWait, false, "with a filter or --all: do not wait for the end")
	flags.BoolVarP(&m.yes, flag.Yes, "y", false, "with a filter or --all: do not ask")
	cli.SetsField(flags, flag.Rate, "perSecond")
}

// selected reports whether flags select the jobs, instead of ids. It fails if both do, or neither.
func (m *matching) selected(c *cobra.Command, ids []string) (bool, error) {
	given := func(names ...string) string {
		for _, name := range names {
			if c.Flags().Changed(name) {
				return "--" + name
			}
		}
		return ""
	}
	by := given(filterFlags()...)
	switch {
	case m.all && by != "":
		return false, cli.Usagef("--all and %s exclude each other", by)
	case m.all:
		by = "--all"
	}
	only := given(flag.Rate, flag.DryRun, flag.NoWait, flag.Yes, flag.State)
	switch {
	case by != "" && len(ids) > 0:
		return false, cli.Usagef("%s and the id of a job exclude each other", by)
	case by != "" && given(flag.RequestID) != "":
		return false, cli.Usagef("--request-id is for jobs that are named: what %s selects is acted on by a task, "+
			"which 'belfry tasks' shows", by)
	case by != "" && given(flag.Key) != "":
		return false, cli.Usagef("--key is for a job that is named, and %s selects jobs", by)
	case by == "" && only != "":
		return false, cli.Usagef("%s goes with --all or a filter: --%s", only, strings.Join(filterFlags(), ", --"))
	case m.dryRun && m.noWait:
		return false, cli.Usagef("--dry-run and --no-wait exclude each other")
	case given(flag.Rate) != "" && (m.rate < 1 || m.rate > perSecondMax):
		return false, cli.Usagef("--rate must be 1 to %d", perSecondMax)
	}
	return by != "", nil
}

// one is the command of a job that an argument names. It says what may stand in place of the id.
func (m *matching) one(a verbs, c *cobra.Command, args []string,
	work func(context.Context, *cli.Connection, []string) error) error {
	if len(args) < 2 {
		return cli.Usagef("missing argument: ID, or --all or a filter: --%s", strings.Join(filterFlags(), ", --"))
	}
	return a.Command(nil, work)(c, args)
}

// bulkAct is what a command does to all jobs that match.
type bulkAct struct {
	// request is what is asked for. If its max is set, no more jobs are counted and acted on.
	request *belfryv1.StartTaskRequest
	// will says what it does, with a gap for the jobs: "This cancels %s."
	will string
}

// did says what a task does to a job.
func did(act belfryv1.TaskAct) string {
	switch act {
	case belfryv1.TaskAct_TASK_ACT_COUNT:
		return "counted"
	case belfryv1.TaskAct_TASK_ACT_REDRIVE:
		return "made ready"
	case belfryv1.TaskAct_TASK_ACT_CANCEL:
		return "cancelled"
	case belfryv1.TaskAct_TASK_ACT_RESCHEDULE:
		return "rescheduled"
	default:
		return render.Word(act)
	}
}

// actOnMatches counts the jobs that match, asks, and starts a task that acts on as many at most. It
// follows the task to its end.
func (a verbs) actOnMatches(ctx context.Context, m *matching, act bulkAct) error {
	conn, err := a.Connect()
	if err != nil {
		return err
	}
	counted, err := a.countMatches(ctx, conn, act.request)
	if err != nil {
		return err
	}
	result := func(t *belfryv1.Task, text string) error {
		return a.Show(&belfryv1.GetTaskResponse{Task: t}, func(w io.Writer) { fmt.Fprintln(w, text) })
	}
	switch {
	case counted.Matched == 0:
		return result(counted, "no "+jobsOf(act.request))
	case m.dryRun:
		return result(counted, countOf(act.request, counted.Matched)+" would be "+did(act.request.Act))
	}
	fmt.Fprintf(a.Err, act.will+"\n", countOf(act.request, counted.Matched))
	if !m.yes {
		if err := a.Confirm("nothing was changed"); err != nil {
			return err
		}
	}
	act.request.Max, act.request.PerSecond = counted.Matched, m.rate
	task, err := a.startTask(ctx, conn, act.request)
	if err != nil {
		return err
	}
	if m.noWait {
		return result(task, "task "+task.Id+" began; 'belfry tasks get "+task.Id+"' shows how far it is")
	}
	return a.followTask(ctx, conn, task)
}

// jobsOf writes which jobs a task is about: "dead jobs of orders (with "smtp 421")".
func jobsOf(r *belfryv1.StartTaskRequest) string {
	text := render.Word(r.State) + " jobs of " + r.Queue
	if filter := filterText(r); filter != "" {
		text += " (" + filter + ")"
	}
	return text
}

// countOf is jobsOf with a number.
func countOf(r *belfryv1.StartTaskRequest, n uint64) string {
	text := jobsOf(r)
	if n == 1 {
		text = strings.Replace(text, " jobs ", " job ", 1)
	}
	return render.Grouped(n) + " " + text
}

// countMatches counts the jobs that a task would act on, in a task of its own. Ctrl-C ends it.
func (a verbs) countMatches(ctx context.Context, conn *cli.Connection,
	act *belfryv1.StartTaskRequest) (*belfryv1.Task, error) {
	request := &belfryv1.StartTaskRequest{
		Queue: act.Queue, State: act.State, DueAfter: act.DueAfter, DueBefore: act.DueBefore, IdPrefix: act.IdPrefix,
		Text: act.Text, Cause: act.Cause, Max: act.Max, Act: belfryv1.TaskAct_TASK_ACT_COUNT,
	}
	task, err := a.startTask(ctx, conn, request)
	if err != nil {
		return nil, err
	}
	task, err = a.awaitTask(ctx, conn, task)
	switch {
	case ctx.Err() != nil:
		a.endCount(ctx, conn, task.Id)
		return nil, err
	case err != nil:
		return nil, err
	case endedEarly(task):
		return nil, cli.ExitWith(cli.CodePartly, "nothing was changed: the count was ended early; "+taskTrouble(task))
	}
	return task, nil
}

// endCount has a count end that was interrupted. If it does not, it ends by itself.
func (a verbs) endCount(interrupted context.Context, conn *cli.Connection, id string) {
	const within = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(interrupted), within)
	defer cancel()
	_, _ = conn.Admin.StopTask(ctx, &belfryv1.StopTaskRequest{Id: id}) // a count does no harm
	fmt.Fprintln(a.Err, "belfry: nothing was changed: interrupted while the jobs were counted")
}

// startTask starts a task under a request id, so that a repeat begins no second one.
func (a verbs) startTask(ctx context.Context, conn *cli.Connection,
	request *belfryv1.StartTaskRequest) (task *belfryv1.Task, err error) {
	request.RequestId = a.RequestID()
	err = a.Within(ctx, func(ctx context.Context) error {
		response, err := conn.Admin.StartTask(ctx, request)
		if task = response.GetTask(); err != nil {
			return cli.WithNearestQueue(ctx, conn, request.Queue, err)
		}
		return nil
	})
	if ctx.Err() == nil && !unsure(ctx, err) || request.Act == belfryv1.TaskAct_TASK_ACT_COUNT {
		return task, err
	}
	text := fmt.Sprintf("whether a task began is unknown; 'belfry tasks --queue %s' shows it", request.Queue)
	if ctx.Err() != nil {
		fmt.Fprintln(a.Err, "belfry: interrupted:", text)
		return nil, err
	}
	return nil, cli.ExitWith(cli.CodeUnknown, cli.Explain(err)+"; "+text)
}

// unsure reports whether a call that ended with err may have been carried out.
func unsure(ctx context.Context, err error) bool {
	return err != nil && cli.ExitCode(ctx, err) == cli.CodeUnknown
}
