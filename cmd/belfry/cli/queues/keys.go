package queues

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

func (a verbs) keysCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:     "keys",
		Aliases: []string{"key"},
		Short:   "List, pause, resume and purge the keys of a queue",
	}, a.keysListCommand(), a.keysPauseCommand(), a.keysResumeCommand(), a.keysPurgeCommand())
}

func (a verbs) keysListCommand() *cobra.Command {
	var order, state string
	var most int
	request := &belfryv1.ListKeysRequest{}
	c := &cobra.Command{
		Use:   "list QUEUE [PREFIX]",
		Short: "List the keys that have jobs or are paused",
		Long: `
List shows the keys of a queue that have jobs or are paused, and why the ready jobs of a key are not
handed out: the key is paused, a dead job holds it, it has as many jobs reserved as it may have
(limit), its first job is delayed (order), or it has no token (rate).`,
		Example:           "  belfry keys list orders --max 20\n  belfry keys list orders customer- --state dead --sort name",
		Args:              cli.Arguments(1, 2, "QUEUE"),
		ValidArgsFunction: a.CompleteQueue,
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.VarP(cli.Choice(&state, "any", "delayed", "ready", "reserved", "dead"), flag.State, "s",
		"only keys with jobs in this state: delayed, ready, reserved or dead")
	flags.Var(cli.Choice(&order, "backlog", "name"), flag.Sort, "by what: backlog, most ready jobs first, or name")
	flags.VarP(cli.Count(&most, 0, 100), flag.Max, "n", "how many keys at most; 0 for all")
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		request.Queue, request.State = args[0], cli.StateOf(state)
		request.Order = belfryv1.KeyOrder(belfryv1.KeyOrder_value["KEY_ORDER_"+strings.ToUpper(order)])
		if len(args) == 2 {
			request.Prefix = args[1]
		}
		response, err := listKeys(ctx, conn, request, most)
		if err != nil {
			return cli.WithNearestQueue(ctx, conn, request.Queue, err)
		}
		if response.StoppedEarly {
			fmt.Fprintf(a.Err, "belfry: warning: there are too many keys: only %s were looked at\n",
				render.Grouped(response.Searched))
		}
		return a.Show(response, func(w io.Writer) { renderKeys(w, response, a.Now()) })
	})
	return a.ClientFlags(c)
}

// keysAtOnce is how many keys a page has.
const keysAtOnce = 1000

// listKeys reads pages until it has so many keys, 0 for all, and joins them.
func listKeys(ctx context.Context, conn *cli.Connection, request *belfryv1.ListKeysRequest,
	most int) (*belfryv1.ListKeysResponse, error) {
	all := &belfryv1.ListKeysResponse{}
	for {
		request.PageSize = keysAtOnce
		if most > 0 {
			request.PageSize = int32(min(keysAtOnce, most-len(all.Keys))) //nolint:gosec // at most keysAtOnce
		}
		page, err := conn.Admin.ListKeys(ctx, request)
		if err != nil {
			return nil, err
		}
		page.Keys, page.Searched = append(all.Keys, page.Keys...), max(page.Searched, all.Searched)
		page.StoppedEarly = page.StoppedEarly || all.StoppedEarly
		all = page
		if request.PageToken = page.NextPageToken; request.PageToken == "" || most > 0 && len(all.Keys) >= most {
			return all, nil
		}
	}
}

// renderKeys shows keys as a table.
func renderKeys(w io.Writer, response *belfryv1.ListKeysResponse, now time.Time) {
	var lines [][]string
	for _, k := range response.Keys {
		blocked, token, due := "", "", ""
		if b := k.Blocked; b != belfryv1.KeyBlock_KEY_BLOCK_NOT_BLOCKED && b != belfryv1.KeyBlock_KEY_BLOCK_UNSPECIFIED {
			blocked = strings.ToLower(strings.TrimPrefix(b.String(), "KEY_BLOCK_"))
		} else if k.Paused {
			blocked = "paused"
		}
		if k.NextTokenAt != nil {
			token = render.Moment(k.NextTokenAt, now)
		}
		if k.NextDueAt != nil {
			due = render.Moment(k.NextDueAt, now)
		}
		lines = append(lines, []string{
			render.Preview([]byte(k.Key), keyColumns), render.Jobs(k.Counts.GetReady()), render.Jobs(k.Counts.GetDelayed()),
			render.Jobs(k.Counts.GetReserved()), render.Jobs(k.Counts.GetDead()), blocked, due, token,
		})
	}
	render.Rows(w, []string{"KEY", "READY", "DELAYED", "RESERVED", "DEAD", "BLOCKED", "NEXT DUE", "NEXT TOKEN"}, lines)
	if response.NextPageToken != "" {
		fmt.Fprintln(w, "there are more; --max shows them")
	}
}

// keyColumns bounds a key that is shown.
const keyColumns = 60

func (a verbs) keysPauseCommand() *cobra.Command {
	request := &belfryv1.PauseKeyRequest{}
	c := &cobra.Command{
		Use:               "pause QUEUE KEY",
		Short:             "Hand out no jobs of a key until it is resumed",
		Example:           "  belfry keys pause orders customer-7",
		Args:              cli.Arguments(2, 2, "QUEUE", "KEY"),
		ValidArgsFunction: a.CompleteQueue,
	}
	cli.RequestIDFlag(c, &request.RequestId)
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		request.Queue, request.Key = args[0], args[1]
		a.Ensure(&request.RequestId)
		response, err := conn.Admin.PauseKey(ctx, request)
		if err != nil {
			return cli.WithRequest(request.RequestId, cli.WithNearestQueue(ctx, conn, request.Queue, err))
		}
		return a.Show(response, func(w io.Writer) { fmt.Fprintf(w, "%s is paused\n", request.Key) })
	})
	return a.ClientFlags(c)
}

func (a verbs) keysResumeCommand() *cobra.Command {
	request := &belfryv1.ResumeKeyRequest{}
	c := &cobra.Command{
		Use:               "resume QUEUE KEY",
		Short:             "End the pause of a key",
		Example:           "  belfry keys resume orders customer-7",
		Args:              cli.Arguments(2, 2, "QUEUE", "KEY"),
		ValidArgsFunction: a.CompleteQueue,
	}
	cli.RequestIDFlag(c, &request.RequestId)
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		request.Queue, request.Key = args[0], args[1]
		a.Ensure(&request.RequestId)
		response, err := conn.Admin.ResumeKey(ctx, request)
		if err != nil {
			return cli.WithRequest(request.RequestId, cli.WithNearestQueue(ctx, conn, request.Queue, err))
		}
		return a.Show(response, func(w io.Writer) { fmt.Fprintf(w, "%s is not paused\n", request.Key) })
	})
	return a.ClientFlags(c)
}

func (a verbs) keysPurgeCommand() *cobra.Command {
	var states []string
	var yes bool
	request := &belfryv1.PurgeKeyRequest{}
	c := &cobra.Command{
		Use:   "purge QUEUE KEY",
		Short: "Remove jobs of a key",
		Long: `
Purge removes the delayed, ready and dead jobs of one key of a queue, or those in the states named. It
asks; without a terminal it needs --yes.`,
		Example:           "  belfry keys purge orders customer-7\n  belfry keys purge orders customer-7 --state dead --yes",
		Args:              cli.Arguments(2, 2, "QUEUE", "KEY"),
		ValidArgsFunction: a.CompleteQueue,
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringSliceVarP(&states, flag.State, "s", []string{"delayed", "ready", "dead"},
		"which jobs: delayed, ready, reserved, dead")
	flags.Uint32VarP(&request.Max, flag.Max, "n", 0, "how many jobs at most; 0 for all")
	flags.BoolVarP(&yes, flag.Yes, "y", false, "do not ask")
	cli.RequestIDFlag(c, &request.RequestId)
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if request.States, err = purgedStates(states); err != nil {
			return err
		}
		request.Queue, request.Key = args[0], args[1]
		a.Ensure(&request.RequestId)
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Err, "This removes jobs of the key %s of %s (%s).\n", request.Key, request.Queue,
			strings.Join(states, ", "))
		if !yes {
			if err := a.Confirm("nothing was removed"); err != nil {
				return err
			}
		}
		return a.Within(c.Context(), func(ctx context.Context) error {
			response, err := conn.Admin.PurgeKey(ctx, request)
			if err != nil {
				err = cli.WithNearestQueue(ctx, conn, request.Queue, err)
				return cli.WithRequest(request.RequestId, err)
			}
			return a.Show(response, func(w io.Writer) { fmt.Fprintf(w, "%s purged\n", render.Count(response.Purged, "job")) })
		})
	}
	return a.ClientFlags(c)
}
