package jobs

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a verbs) tasksCommand() *cobra.Command {
	request := &belfryv1.ListTasksRequest{}
	c := cli.Parent(&cobra.Command{
		Use:   "tasks",
		Short: "Show and stop acts on many jobs",
		Long: `
Tasks shows the acts on all jobs that match, newest first: those under way, and the last 200 that
ended. Redrive, cancel, reschedule and run-now start them.`,
		Example: "  belfry tasks --queue orders",
	}, a.tasksGetCommand(), a.tasksStopCommand())
	c.Flags().StringVarP(&request.Queue, flag.Queue, "q", "", "only those of this queue")
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, _ []string) error {
		response, err := conn.Admin.ListTasks(ctx, request)
		if err == nil && len(response.Tasks) == 0 && request.Queue != "" {
			err = cli.CheckQueue(ctx, conn, request.Queue)
		}
		if err != nil {
			return err
		}
		return a.Show(response, func(w io.Writer) { renderTasks(w, response.Tasks, a.Now()) })
	})
	return a.ClientFlags(c)
}

func (a verbs) tasksGetCommand() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use:   "get ID",
		Short: "Show a task",
		Long: `
Get shows how far a task is. With --follow it shows its progress until it ends, and exits with code
14 if it ended early.`,
		Example:           "  belfry tasks get 4GXJ5N2K7RZQ3D6TQWPVH2M5YA --follow",
		Args:              cli.Arguments(1, 1, "ID"),
		ValidArgsFunction: a.completeTask,
	}
	c.Flags().BoolVar(&follow, flag.Follow, false, "show the progress until the task ends")
	c.RunE = func(c *cobra.Command, args []string) error {
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		response := &belfryv1.GetTaskResponse{}
		if err := a.Within(c.Context(), func(ctx context.Context) (err error) {
			response, err = conn.Admin.GetTask(ctx, &belfryv1.GetTaskRequest{Id: args[0]})
			return err
		}); err != nil {
			return err
		}
		if follow {
			return a.followTask(c.Context(), conn, response.Task)
		}
		return a.Show(response, func(w io.Writer) { renderTask(w, response.Task, a.Now()) })
	}
	return a.ClientFlags(c)
}

func (a verbs) tasksStopCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "stop ID",
		Short: "End a task where it is",
		Long: `
Stop ends a task, and shows how far it came. What was done stays done. It may be repeated, also
after the end.`,
		Example:           "  belfry tasks stop 4GXJ5N2K7RZQ3D6TQWPVH2M5YA",
		Args:              cli.Arguments(1, 1, "ID"),
		ValidArgsFunction: a.completeTask,
	}
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		response, err := conn.Admin.StopTask(ctx, &belfryv1.StopTaskRequest{Id: args[0]})
		if err != nil {
			return err
		}
		task, err := a.awaitTask(ctx, conn, response.Task)
		if err != nil && ctx.Err() == nil {
			return err
		}
		response.Task = task // it was asked to end, however long that takes
		return a.Show(response, func(w io.Writer) { fmt.Fprintln(w, taskResult(task)) })
	})
	return a.ClientFlags(c)
}

// completeTask offers the ids of tasks to the shell.
func (a verbs) completeTask(c *cobra.Command, args []string,
	_ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.Complete(c, args, func(ctx context.Context, conn *cli.Connection) (ids []cobra.Completion, err error) {
		response, err := conn.Admin.ListTasks(ctx, &belfryv1.ListTasksRequest{})
		if err != nil {
			return nil, err
		}
		for _, t := range response.Tasks {
			ids = append(ids, cobra.CompletionWithDesc(t.Id, taskTitle(t)))
		}
		return ids, nil
	})
}

// followTask shows the progress of a task until it ends, and what came of it. Ctrl-C ends only the
// watching.
func (a verbs) followTask(ctx context.Context, conn *cli.Connection, task *belfryv1.Task) error {
	task, err := a.awaitTask(ctx, conn, task)
	if ctx.Err() != nil {
		fmt.Fprintf(a.Err, "belfry: interrupted, but the task goes on: %s\n"+
			"'belfry tasks get %s' shows how far it is, 'belfry tasks stop %s' stops it\n", taskResult(task), task.Id, task.Id)
		return err
	}
	if err != nil {
		return err
	}
	if err := a.Show(&belfryv1.GetTaskResponse{Task: task}, func(w io.Writer) {
		fmt.Fprintln(w, taskResult(task))
	}); err != nil {
		return err
	}
	if endedEarly(task) {
		return cli.ExitWith(cli.CodePartly, "task "+task.Id+" ended early; "+taskTrouble(task))
	}
	return nil
}

// A task is asked for soon at first, because most end soon, and then at longer intervals.
const (
	taskWaitFirst = 20 * time.Millisecond
	taskWaitMost  = 500 * time.Millisecond
)

// awaitTask asks for a task until it has ended, and shows how far it is. It returns the task as it
// was seen last, also with an error. A server that does not answer, or has not heard of the task yet,
// is asked again for --timeout: another one may know of it.
func (a verbs) awaitTask(ctx context.Context, conn *cli.Connection, task *belfryv1.Task) (*belfryv1.Task, error) {
	progress := cli.NewProgress(a.System, 0)
	defer progress.End()
	trouble, heard := "", a.Now()
	for wait := taskWaitFirst; task.EndedAt == nil; wait = min(2*wait, taskWaitMost) {
		if !cli.Wait(ctx, wait) {
			return task, ctx.Err()
		}
		err := a.Within(ctx, func(ctx context.Context) error {
			response, err := conn.Admin.GetTask(ctx, &belfryv1.GetTaskRequest{Id: task.Id})
			if err == nil {
				task = response.Task
			}
			return err
		})
		switch code := cli.ExitCode(ctx, err); {
		case err == nil:
			heard = a.Now()
		case ctx.Err() != nil:
			return task, ctx.Err()
		case code != cli.CodeUnavailable && code != cli.CodeUnknown && code != cli.CodeUsage:
			return task, err
		case a.Now().Sub(heard) >= a.Timeout:
			return task, cli.ExitWith(cli.CodeUnknown, fmt.Sprintf(
				"%s; the task may go on: 'belfry tasks get %s' shows it", cli.Explain(err), task.Id))
		}
		if task.Trouble != trouble && task.Trouble != "" && task.EndedAt == nil {
			progress.Say("belfry: the task waits, and tries again by itself: " + task.Trouble)
		}
		trouble = task.Trouble
		progress.Show(func(now time.Time) string { return a.taskLine(task, now) })
	}
	return task, nil
}

// endedEarly reports whether a task ended before it was through.
func endedEarly(task *belfryv1.Task) bool {
	if task.EndedAt == nil {
		return false
	}
	return task.Trouble != "" || task.Stopping && (task.Max == 0 || task.Matched < task.Max)
}

// taskTrouble says why a task ended early.
func taskTrouble(task *belfryv1.Task) string {
	if task.Trouble != "" {
		return task.Trouble
	}
	return "it was stopped"
}
