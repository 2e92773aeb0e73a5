package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a *app) ackCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "ack LEASE...",
		Short:   "End jobs as done",
		Long:    "Ack ends jobs as done. Acking twice with the same lease is fine, until a minute after the lease's end.",
		Example: "  belfry ack \"$lease\"",
		Args:    arguments(1, unlimited, "LEASE"),
	}
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, leases []string) error {
		if len(leases) > 1 {
			return a.ackBatch(ctx, conn, leases)
		}
		response, err := conn.queues.Ack(ctx, &belfryv1.AckRequest{Lease: leases[0]})
		if err != nil {
			return err
		}
		return a.show(response, func(w io.Writer) { fmt.Fprintln(w, "acked") })
	})
	return c
}

// ackBatch acks several leases. Each stands alone; the exit code is that of the first that failed.
func (a *app) ackBatch(ctx context.Context, conn *connection, leases []string) error {
	response, err := conn.queues.AckBatch(ctx, &belfryv1.AckBatchRequest{Leases: leases})
	if err != nil {
		return err
	}
	if err := a.show(response, func(w io.Writer) { renderAcks(w, leases, response.Results) }); err != nil {
		return err
	}
	var failed []string
	code := codeOK
	for _, result := range response.Results {
		if failure := result.GetError(); failure != nil {
			if code == codeOK {
				code = entryCode(failure)
			}
			failed = append(failed, strings.TrimPrefix(failure.Reason.String(), "REASON_"))
		}
	}
	if code == codeOK {
		return nil
	}
	return &codedError{code, fmt.Sprintf("%d of %d leases were not acked: %s", len(failed), len(leases), strings.Join(failed, ", "))}
}

func (a *app) nackCommand() *cobra.Command {
	var delay optionalDuration
	request := &belfryv1.NackRequest{}
	c := &cobra.Command{
		Use:   "nack LEASE",
		Short: "Say that an attempt failed",
		Long: "Nack says that an attempt failed. The job is tried again after --delay, or as its retry delays say; when its attempts\n" +
			"are used up, or with --dead, it is dead.",
		Example: "  belfry nack \"$lease\" --delay 10s --error 'smtp 421'",
		Args:    arguments(1, 1, "LEASE"),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.VarP(&delay, "delay", "d", "when to try again; the job's retry delays decide if not given")
	flags.StringVarP(&request.Error, "error", "e", "", "what went wrong, kept with the job")
	flags.BoolVar(&request.Dead, "dead", false, "make the job dead at once")
	requestIDFlag(c, &request.RequestId)
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		request.Lease, request.Delay = args[0], delay.proto
		a.ensure(&request.RequestId)
		response, err := conn.queues.Nack(ctx, request)
		if err != nil {
			return withRequest(request.RequestId, err)
		}
		return a.show(response, func(w io.Writer) { renderReturned(w, response.State, response.DueAt, a.now()) })
	})
	return c
}

func (a *app) releaseCommand() *cobra.Command {
	var delay optionalDuration
	request := &belfryv1.ReleaseRequest{}
	c := &cobra.Command{
		Use:     "release LEASE",
		Short:   "Give a job back; the attempt does not count",
		Example: "  belfry release \"$lease\"",
		Args:    arguments(1, 1, "LEASE"),
	}
	c.Flags().VarP(&delay, "delay", "d", "when it is due again; at once if not given")
	requestIDFlag(c, &request.RequestId)
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		request.Lease, request.Delay = args[0], delay.proto
		a.ensure(&request.RequestId)
		response, err := conn.queues.Release(ctx, request)
		if err != nil {
			return withRequest(request.RequestId, err)
		}
		return a.show(response, func(w io.Writer) { renderReturned(w, response.State, response.DueAt, a.now()) })
	})
	return c
}

func (a *app) extendCommand() *cobra.Command {
	var ttr optionalDuration
	request := &belfryv1.ExtendRequest{}
	c := &cobra.Command{
		Use:     "extend LEASE",
		Short:   "Hold a job for longer",
		Long:    "Extend moves the end of a lease to --ttr from now. It never moves it to an earlier time.",
		Example: "  belfry extend \"$lease\" --ttr 60s",
		Args:    arguments(1, 1, "LEASE"),
	}
	c.Flags().Var(&ttr, "ttr", "how long from now; if not given, the length that the lease was granted or last extended with")
	requestIDFlag(c, &request.RequestId)
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, args []string) error {
		request.Lease, request.Ttr = args[0], ttr.proto
		a.ensure(&request.RequestId)
		response, err := conn.queues.Extend(ctx, request)
		if err != nil {
			return withRequest(request.RequestId, err)
		}
		return a.show(response, func(w io.Writer) { fmt.Fprintln(w, "held until", moments(response.LeaseUntil, a.now())) })
	})
	return c
}

// requestIDFlag adds the flag that makes a repeat of a call safe.
func requestIDFlag(c *cobra.Command, id *string) {
	c.Flags().StringVar(id, "request-id", "", "makes a repeat safe for 5 minutes; made if empty")
}

// ensure makes a request id if none was given.
func (a *app) ensure(id *string) {
	if *id == "" {
		*id = a.requestID()
	}
}

// entryCode returns the exit code for the error of one entry of a batch.
func entryCode(failure *belfryv1.EntryError) int {
	if failure.Outcome == belfryv1.Outcome_OUTCOME_UNKNOWN {
		return codeUnknown
	}
	var code connect.Code
	if err := code.UnmarshalText([]byte(failure.Code)); err != nil {
		return codeError // a code that this version does not know
	}
	return codeOf(code)
}
