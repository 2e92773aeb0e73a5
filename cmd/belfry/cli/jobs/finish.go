package jobs

import (
	"context"
	"fmt"
	"io"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a verbs) ackCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "ack LEASE...",
		Short: "End jobs as done",
		Long: `
Ack ends jobs as done. Acking twice with the same lease is fine, until a minute after the lease's
end.`,
		Example: "  belfry ack \"$lease\"",
		Args:    cli.Arguments(1, cli.Unlimited, "LEASE"),
	}
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, leases []string) error {
		if len(leases) > 1 {
			return a.ackBatch(ctx, conn, leases)
		}
		response, err := conn.Queues.Ack(ctx, &belfryv1.AckRequest{Lease: leases[0]})
		if err != nil {
			return err
		}
		return a.Show(response, func(w io.Writer) { fmt.Fprintln(w, "acked") })
	})
	return a.ClientFlags(c)
}

// ackBatch acks several leases. Each stands alone; the exit code is that of the first that failed.
func (a verbs) ackBatch(ctx context.Context, conn *cli.Connection, leases []string) error {
	response, err := conn.Queues.AckBatch(ctx, &belfryv1.AckBatchRequest{Leases: leases})
	if err != nil {
		return err
	}
	if err := a.Show(response, func(w io.Writer) { renderAcks(w, leases, response.Results) }); err != nil {
		return err
	}
	var failed []string
	code := cli.CodeOK
	for _, result := range response.Results {
		if failure := result.GetError(); failure != nil {
			if code == cli.CodeOK {
				code = entryCode(failure)
			}
			failed = append(failed, strings.TrimPrefix(failure.Reason.String(), "REASON_"))
		}
	}
	if code == cli.CodeOK {
		return nil
	}
	return cli.ExitWith(code,
		fmt.Sprintf("%d of %d leases were not acked: %s", len(failed), len(leases), strings.Join(failed, ", ")))
}

func (a verbs) nackCommand() *cobra.Command {
	var delay cli.OptionalDuration
	request := &belfryv1.NackRequest{}
	c := &cobra.Command{
		Use:   "nack LEASE",
		Short: "Say that an attempt failed",
		Long: `
Nack says that an attempt failed. The job is tried again after --delay, or as its retry delays say;
when its attempts are used up, or with --dead, it is dead.`,
		Example: "  belfry nack \"$lease\" --delay 10s --error 'smtp 421'",
		Args:    cli.Arguments(1, 1, "LEASE"),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.VarP(&delay, flag.Delay, "d", "when to try again; the job's retry delays decide if not given")
	flags.StringVarP(&request.Error, flag.Error, "e", "", "what went wrong, kept with the job")
	flags.BoolVar(&request.Dead, flag.Dead, false, "make the job dead at once")
	cli.RequestIDFlag(c, &request.RequestId)
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		request.Lease, request.Delay = args[0], delay.Proto
		a.Ensure(&request.RequestId)
		response, err := conn.Queues.Nack(ctx, request)
		if err != nil {
			return cli.WithRequest(request.RequestId, err)
		}
		return a.Show(response, func(w io.Writer) { renderReturned(w, response.State, response.DueAt, a.Now()) })
	})
	return a.ClientFlags(c)
}

func (a verbs) releaseCommand() *cobra.Command {
	var delay cli.OptionalDuration
	request := &belfryv1.ReleaseRequest{}
	c := &cobra.Command{
		Use:     "release LEASE",
		Short:   "Give a job back; the attempt does not count",
		Example: "  belfry release \"$lease\"",
		Args:    cli.Arguments(1, 1, "LEASE"),
	}
	c.Flags().VarP(&delay, flag.Delay, "d", "when it is due again; at once if not given")
	cli.RequestIDFlag(c, &request.RequestId)
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		request.Lease, request.Delay = args[0], delay.Proto
		a.Ensure(&request.RequestId)
		response, err := conn.Queues.Release(ctx, request)
		if err != nil {
			return cli.WithRequest(request.RequestId, err)
		}
		return a.Show(response, func(w io.Writer) { renderReturned(w, response.State, response.DueAt, a.Now()) })
	})
	return a.ClientFlags(c)
}

func (a verbs) extendCommand() *cobra.Command {
	var ttr cli.OptionalDuration
	request := &belfryv1.ExtendRequest{}
	c := &cobra.Command{
		Use:     "extend LEASE",
		Short:   "Hold a job for longer",
		Long:    "Extend moves the end of a lease to --ttr from now. It never moves it to an earlier time.",
		Example: "  belfry extend \"$lease\" --ttr 60s",
		Args:    cli.Arguments(1, 1, "LEASE"),
	}
	c.Flags().Var(&ttr, flag.TTR,
		"how long from now; if not given, the length that the lease was granted or last extended with")
	cli.RequestIDFlag(c, &request.RequestId)
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		request.Lease, request.Ttr = args[0], ttr.Proto
		a.Ensure(&request.RequestId)
		response, err := conn.Queues.Extend(ctx, request)
		if err != nil {
			return cli.WithRequest(request.RequestId, err)
		}
		return a.Show(response, func(w io.Writer) {
			fmt.Fprintln(w, "held until", render.Moment(response.LeaseUntil, a.Now()))
		})
	})
	return a.ClientFlags(c)
}

// entryCode returns the exit code for the error of one entry of a batch.
func entryCode(failure *belfryv1.EntryError) int {
	if failure.Outcome == belfryv1.Outcome_OUTCOME_UNKNOWN {
		return cli.CodeUnknown
	}
	var code connect.Code
	if err := code.UnmarshalText([]byte(failure.Code)); err != nil {
		return cli.CodeError // a code that this version does not know
	}
	return cli.CodeOf(code)
}
