package jobs

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a verbs) reserveCommand() *cobra.Command {
	var wait, ttr cli.OptionalDuration
	var jobsMax uint32
	var requestID string
	var bodyOnly bool
	c := &cobra.Command{
		Use:   "reserve QUEUE...",
		Short: "Take due jobs under a lease",
		Long: `
Reserve hands out jobs that are due, from the first queue that has some. Each is yours until its
lease ends; ack it when the work is done. Without --wait it returns at once. If there is nothing it
exits with code 10.`,
		Example: `  belfry reserve orders --wait 20s
  lease=$(belfry reserve orders -o json | jq -r '.jobs[0].lease') && belfry ack "$lease"`,
		Args:              cli.Arguments(1, cli.Unlimited, "QUEUE"),
		ValidArgsFunction: a.CompleteQueue,
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.VarP(&wait, flag.Wait, "w", "how long to wait for a first job, up to 60s")
	flags.Uint32VarP(&jobsMax, flag.Max, "n", 1, "how many jobs at most, up to 1000")
	flags.Var(&ttr, flag.TTR, "the length of the leases; each job's own if not given")
	flags.BoolVar(&bodyOnly, flag.Body, false, "print only the bodies, byte for byte")
	flags.StringVar(&requestID, flag.RequestID, "", "makes a repeat safe for 5 minutes; made if empty")
	extra := func() time.Duration { return wait.Proto.AsDuration() }
	c.RunE = a.Command(extra, func(ctx context.Context, conn *cli.Connection, queues []string) error {
		if requestID == "" {
			requestID = a.RequestID()
		}
		stopWatch := a.watchQueues(ctx, conn, queues)
		response, err := conn.Queues.Reserve(ctx, &belfryv1.ReserveRequest{
			Queues: queues, MaxJobs: jobsMax, Wait: wait.Proto, Ttr: ttr.Proto, RequestId: requestID,
		})
		warned := stopWatch()
		if err != nil {
			return cli.WithRequest(requestID, err)
		}
		if bodyOnly {
			err = a.showBodies(response.Jobs)
		} else {
			err = a.Show(response, func(w io.Writer) { renderReserved(w, response.Jobs, a.Now()) })
		}
		if err == nil && len(response.Jobs) == 0 {
			if !warned {
				a.WarnOfUnknownQueues(ctx, conn, queues)
			}
			return cli.ExitWith(cli.CodeNothing, "")
		}
		return err
	})
	return a.ClientFlags(c)
}

// unknownQueueWait is how long a reserve waits before it looks whether its queues exist: a reserve
// that gets a job at once costs no other call.
const unknownQueueWait = 300 * time.Millisecond

// watchQueues warns of queues that do not exist if a reserve waits. stop must be called when the
// reserve has ended, and reports whether it did so.
func (a verbs) watchQueues(ctx context.Context, conn *cli.Connection, queues []string) (stop func() (warned bool)) {
	ended, warned := make(chan struct{}), make(chan bool, 1)
	go func() {
		timer := time.NewTimer(unknownQueueWait)
		defer timer.Stop()
		select {
		case <-ended:
			warned <- false
		case <-timer.C:
			a.WarnOfUnknownQueues(ctx, conn, queues)
			warned <- true
		}
	}()
	return func() bool {
		close(ended)
		return <-warned
	}
}

// showBodies writes the bodies of jobs and nothing else.
func (a verbs) showBodies(jobs []*belfryv1.Job) error {
	for _, job := range jobs {
		if _, err := a.Out.Write(bodyOf(job)); err != nil {
			return err
		}
	}
	return nil
}

// bodyOf returns a job's body, whichever way it came.
func bodyOf(job *belfryv1.Job) []byte {
	if text, ok := job.Body.(*belfryv1.Job_Text); ok {
		return []byte(text.Text)
	}
	return job.GetData()
}
