package jobs

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

func (a verbs) releaseLeasesCommand() *cobra.Command {
	var dryRun, yes bool
	c := &cobra.Command{
		Use:   "release-leases CONSUMER [QUEUE...]",
		Short: "Give back the jobs of a consumer that is gone",
		Long: `
Release-leases gives back the jobs that a consumer holds, of the queues named or of all. They are
ready at once, and the attempt does not count. CONSUMER is what 'belfry get' shows of a job that is
held, such as worker-7@10.0.0.7. It counts the jobs and asks; without a terminal it needs --yes. What
the consumer reserves after the count stays with it. If it is not gone, its leases are stale, and
another consumer may work on the same jobs at the same time.

If a job may be what ended the consumer, let its lease end instead: that attempt counts.`,
		Example: "  belfry release-leases worker-7@10.0.0.7 --dry-run\n" +
			"  belfry release-leases worker-7@10.0.0.7 orders --yes",
		Args: cli.Arguments(1, cli.Unlimited, "CONSUMER"),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.BoolVar(&dryRun, flag.DryRun, false, "count the jobs, and change nothing")
	flags.BoolVarP(&yes, flag.Yes, "y", false, "do not ask")
	c.RunE = func(c *cobra.Command, args []string) error {
		if args[0] == "" {
			return cli.Usagef("CONSUMER is empty: jobs of which it is not known who holds them may be of several; their " +
				"leases end by themselves")
		}
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		held, err := a.heldBy(c.Context(), conn, args[0], args[1:])
		if err != nil {
			return err
		}
		total := &belfryv1.ReleaseLeasesResponse{}
		say := func(text string) error { return a.Show(total, func(w io.Writer) { fmt.Fprintln(w, text) }) }
		switch {
		case held.jobs == 0:
			text := fmt.Sprintf("%q holds no jobs", args[0])
			if held.unknown > 0 {
				text += "; of " + render.Count(held.unknown, "held job") + " it is not known who holds them: their leases end by " +
					"themselves"
			}
			return say(text)
		case dryRun:
			return say(held.text() + " would be released")
		}
		fmt.Fprintf(a.Err, "This releases %s that %q holds.\n", held.text(), args[0])
		if !yes {
			if err := a.Confirm("nothing was released"); err != nil {
				return err
			}
		}
		if err := a.releaseHeld(c.Context(), conn, held, total); err != nil {
			return err
		}
		text := render.Count(total.Released, "job") + " released"
		if left := held.jobs - min(held.jobs, int(total.Released)); left > 0 {
			text += "; no longer held when it was their turn: " + render.Grouped(uint64(left))
		}
		return say(text)
	}
	return a.ClientFlags(c)
}

// holding is what a consumer holds.
type holding struct {
	consumer string
	// queues are those in which it holds jobs, in order of their names, with how many.
	queues []heldIn
	jobs   int
	// unknown is how many jobs are held of which it is not known by whom.
	unknown int
	// latest is when it reserved a job last.
	latest time.Time
}

type heldIn struct {
	queue string
	jobs  int
}

func (h *holding) text() string {
	if len(h.queues) == 1 {
		return render.Count(h.jobs, "job") + " of " + h.queues[0].queue
	}
	return render.Count(h.jobs, "job") + " of " + render.Count(len(h.queues), "queue")
}

// heldBy counts what a consumer holds in queues; in all that the caller may see if none is named.
func (a verbs) heldBy(ctx context.Context, conn *cli.Connection, consumer string, queues []string) (*holding, error) {
	held := &holding{consumer: consumer}
	if len(queues) == 0 {
		var err error
		if queues, err = a.queuesWithHeld(ctx, conn); err != nil {
			return nil, err
		}
	}
	for _, queue := range queues {
		if err := held.count(ctx, a, conn, queue); err != nil {
			return nil, err
		}
	}
	return held, nil
}

// count adds what the consumer holds of a queue.
func (h *holding) count(ctx context.Context, a verbs, conn *cli.Connection, queue string) error {
	const pageMax = 1000
	request := &belfryv1.ListRequest{Queue: queue, State: belfryv1.JobState_JOB_STATE_RESERVED, PageSize: pageMax}
	in, read := heldIn{queue: queue}, 0
	for more := true; more; more = request.PageToken != "" {
		err := a.Within(ctx, func(ctx context.Context) error {
			page, err := conn.Queues.List(ctx, request)
			for _, job := range page.GetJobs() {
				if read++; job.Client == h.consumer {
					in.jobs++
					h.latest = later(h.latest, job.ReservedAt.AsTime())
				} else if job.Client == "" {
					h.unknown++
				}
			}
			request.PageToken = page.GetNextPageToken()
			return err
		})
		if err != nil {
			return err
		}
	}
	if in.jobs > 0 {
		h.queues, h.jobs = append(h.queues, in), h.jobs+in.jobs
	}
	if read > 0 {
		return nil
	}
	return a.Within(ctx, func(ctx context.Context) error { return cli.CheckQueue(ctx, conn, queue) })
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// queuesWithHeld returns the names of all queues of which jobs are held.
func (a verbs) queuesWithHeld(ctx context.Context, conn *cli.Connection) (names []string, err error) {
	const pageMax = 1000
	for request := (&belfryv1.ListQueuesRequest{PageSize: pageMax}); ; {
		var page *belfryv1.ListQueuesResponse
		if err := a.Within(ctx, func(ctx context.Context) (err error) {
			page, err = conn.Admin.ListQueues(ctx, request)
			return err
		}); err != nil {
			return nil, err
		}
		for _, queue := range page.Queues {
			if queue.GetCounts().GetReserved() > 0 {
				names = append(names, queue.Name)
			}
		}
		if request.PageToken = page.NextPageToken; request.PageToken == "" {
			return names, nil
		}
	}
}

// releaseHeld releases what was counted, and adds up in total. An error says how many jobs were
// released before it.
func (a verbs) releaseHeld(ctx context.Context, conn *cli.Connection, held *holding,
	total *belfryv1.ReleaseLeasesResponse) error {
	const callMax = 1000
	before := timestamppb.New(held.latest.Add(time.Millisecond)) // times of jobs are rounded down
	for _, in := range held.queues {
		request := &belfryv1.ReleaseLeasesRequest{Queue: in.queue, Client: held.consumer, ReservedBefore: before}
		for left := in.jobs; left > 0; {
			request.Max, request.RequestId = uint32(min(left, callMax)), a.RequestID() //nolint:gosec // at most 1,000
			var response *belfryv1.ReleaseLeasesResponse
			err := a.Within(ctx, func(ctx context.Context) (err error) {
				response, err = conn.Admin.ReleaseLeases(ctx, request)
				return err
			})
			if err != nil {
				return releaseError(ctx, err, total.Released)
			}
			total.Released, total.Skipped = total.Released+response.Released, total.Skipped+response.Skipped
			left -= int(response.Released + response.Skipped)
			if request.PageToken = response.NextPageToken; request.PageToken == "" {
				break
			}
		}
	}
	return nil
}

// releaseError says how many jobs were released before an error. A repeat of the command is safe.
func releaseError(ctx context.Context, err error, done uint32) error {
	before := uint64(done)
	if f, ok := fault.FromConnect(err); ok && f.Count != nil {
		before += *f.Count
	}
	if before == 0 {
		return err
	}
	return cli.ExitWith(cli.ExitCode(ctx, err), fmt.Sprintf("%s released; this command may be repeated for the rest: %s",
		render.Count(before, "job"), cli.Explain(err)))
}
