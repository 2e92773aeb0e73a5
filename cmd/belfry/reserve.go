package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a *app) reserveCommand() *cobra.Command {
	var wait, ttr optionalDuration
	var jobsMax uint32
	var requestID string
	var bodyOnly bool
	c := &cobra.Command{
		Use:   "reserve QUEUE...",
		Short: "Take due jobs under a lease",
		Long: "Reserve hands out jobs that are due, from the first queue that has some. Each is yours until its lease ends; ack it\n" +
			"when the work is done. Without --wait it returns at once. If there is nothing it exits with code 10.",
		Example:           "  belfry reserve orders --wait 20s\n  lease=$(belfry reserve orders -o json | jq -r '.jobs[0].lease') && belfry ack \"$lease\"",
		Args:              arguments(1, unlimited, "QUEUE"),
		ValidArgsFunction: a.completeQueue,
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.VarP(&wait, "wait", "w", "how long to wait for a first job, up to 60s")
	flags.Uint32VarP(&jobsMax, "max", "n", 1, "how many jobs at most, up to 1000")
	flags.Var(&ttr, "ttr", "the length of the leases; each job's own if not given")
	flags.BoolVar(&bodyOnly, "body", false, "print only the bodies, byte for byte")
	flags.StringVar(&requestID, "request-id", "", "makes a repeat safe for 5 minutes; made if empty")
	extra := func() time.Duration { return wait.proto.AsDuration() }
	c.RunE = a.command(extra, func(ctx context.Context, conn *connection, queues []string) error {
		if requestID == "" {
			requestID = a.requestID()
		}
		response, err := conn.queues.Reserve(ctx, &belfryv1.ReserveRequest{
			Queues: queues, MaxJobs: jobsMax, Wait: wait.proto, Ttr: ttr.proto, RequestId: requestID,
		})
		if err != nil {
			return withRequest(requestID, err)
		}
		if bodyOnly {
			err = a.showBodies(response.Jobs)
		} else {
			err = a.show(response, func(w io.Writer) { renderReserved(w, response.Jobs, a.now()) })
		}
		if err == nil && len(response.Jobs) == 0 {
			a.warnOfUnknownQueues(ctx, conn, queues)
			return &codedError{code: codeNothing}
		}
		return err
	})
	return c
}

// showBodies writes the bodies of jobs and nothing else.
func (a *app) showBodies(jobs []*belfryv1.Job) error {
	for _, job := range jobs {
		if _, err := a.out.Write(bodyOf(job)); err != nil {
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
