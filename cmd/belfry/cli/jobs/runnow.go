package jobs

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

func (a verbs) runNowCommand() *cobra.Command {
	request := &belfryv1.RescheduleRequest{When: &belfryv1.RescheduleRequest_Delay{Delay: &durationpb.Duration{}}}
	m := matching{filter: filter{state: "delayed"}}
	c := &cobra.Command{
		Use:   "run-now QUEUE (ID | FILTER | --all)",
		Short: "Make delayed jobs ready at once",
		Long: `
Run-now gives a delayed job the present as its due time, so that the next free consumer gets it. A
job that is ready already keeps its turn. Jobs that are reserved, dead or ended are refused, with
what to do instead.
` + matchingText,
		Example: "  belfry run-now orders order-42\n" +
			"  belfry run-now orders --id-prefix order- --due-before 2030-02-01T00:00:00Z",
		Args:              cli.Arguments(1, 2, "QUEUE", "ID"),
		ValidArgsFunction: a.CompleteQueue,
	}
	keyFlag(c, &request.Key)
	cli.RequestIDFlag(c, &request.RequestId)
	m.add(c, "all delayed jobs")
	one := func(ctx context.Context, conn *cli.Connection, args []string) error {
		request.Queue, request.Id = args[0], args[1]
		a.Ensure(&request.RequestId)
		response, err := runNow(ctx, conn, request)
		if err != nil {
			return cli.WithRequest(request.RequestId, runNowError(err, request))
		}
		return a.Show(response, func(w io.Writer) { renderReturned(w, response.State, response.DueAt, a.Now()) })
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		switch selected, err := m.selected(c, args[1:]); {
		case err != nil:
			return err
		case !selected:
			return m.one(a, c, args, one)
		}
		task := m.task(args[0], belfryv1.TaskAct_TASK_ACT_RESCHEDULE)
		task.When = &belfryv1.StartTaskRequest_Delay{Delay: &durationpb.Duration{}}
		return a.actOnMatches(c.Context(), &m, bulkAct{request: task, will: "This makes %s ready at once."})
	}
	return a.ClientFlags(c)
}

// runNow reschedules a job, unless it is ready: a later due time would move it behind other ready
// jobs. An error of the look at the job is ignored, because a token may allow the one call and not
// the other.
func runNow(ctx context.Context, conn *cli.Connection,
	request *belfryv1.RescheduleRequest) (*belfryv1.RescheduleResponse, error) {
	found, err := conn.Queues.Get(ctx, &belfryv1.GetRequest{Queue: request.Queue, Id: request.Id, Key: request.Key})
	if job := found.GetJob(); err == nil && job.GetState() == belfryv1.JobState_JOB_STATE_READY {
		return &belfryv1.RescheduleResponse{State: job.State, DueAt: job.DueAt}, nil
	}
	return conn.Queues.Reschedule(ctx, request)
}

// runNowError says what to do about a job that cannot be made ready; any other error stays as it
// is.
func runNowError(err error, request *belfryv1.RescheduleRequest) error {
	fault, ok := fault.FromConnect(err)
	job := fmt.Sprintf("job %q of %s", request.Id, request.Queue)
	switch {
	case !ok:
		return err
	case fault.Reason == belfryv1.Reason_REASON_JOB_RESERVED:
		return cli.ExitWith(cli.CodeConflict,
			job+" is reserved: a consumer has it already; if that fails, it comes back by its retry delays")
	case fault.Reason != belfryv1.Reason_REASON_JOB_NOT_FOUND:
		return err
	case fault.State == fsm.Dead:
		return cli.ExitWith(cli.CodeNotFound,
			fmt.Sprintf("%s is dead: 'belfry redrive %s %s' makes it ready, with all its attempts", job, request.Queue,
				request.Id))
	case fault.State != fsm.StateNone:
		return cli.ExitWith(cli.CodeNotFound, job+" has ended: "+fault.Message)
	default:
		return cli.ExitWith(cli.CodeNotFound, job+": there is no such job")
	}
}
