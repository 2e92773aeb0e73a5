package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a verbs) auditCommand() *cobra.Command {
	request := &belfryv1.ListAuditRequest{}
	most := 0
	c := &cobra.Command{
		Use:   "audit",
		Short: "Show the last administrative calls: who did what",
		Long: `
Audit shows the last audited calls of all nodes, newest first: what changed queues, nodes, settings,
namespaces and tokens, backups, redrives, actions of the dashboard, and calls that were refused for
want of a token or a scope. Each node keeps its last 1,000 in memory; its log has all of them. Nodes
that could not be asked are named at the end, and with -o json in "nodes".`,
		Example: `  belfry audit --failed
  belfry audit --procedure PurgeQueue --by ke4h5nvsdg2fcu7a --max 0 -o json`,
		Args: cli.Arguments(0, 0),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.Var(cli.Count(&most, 0, 50), flag.Max, "how many calls to show at most, 0 for all")
	flags.StringVar(&request.Procedure, flag.Procedure, "", "only calls of this method, such as PurgeQueue")
	flags.StringVar(&request.Token, flag.By, "", "only calls with the token of this id; nobody for calls without one")
	flags.BoolVar(&request.FailedOnly, flag.Failed, false, "only calls that failed or were refused")
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, _ []string) error {
		if id, _, err := tokens.Parse(strings.TrimSpace(request.Token)); err == nil {
			request.Token = id // a token in place of its id is not sent
		}
		response, err := listAudit(ctx, conn, request, most)
		if err != nil {
			return err
		}
		return a.Show(response, func(w io.Writer) { renderAudit(w, response, a.Now().Location()) })
	})
	return a.ClientFlags(c)
}

// listAudit reads pages until there are enough calls. The nodes are those of the last page.
func listAudit(ctx context.Context, conn *cli.Connection, request *belfryv1.ListAuditRequest,
	most int) (*belfryv1.ListAuditResponse, error) {
	const pageMax = 500
	all := &belfryv1.ListAuditResponse{}
	for {
		request.PageSize = pageMax
		if most > 0 {
			request.PageSize = int32(min(pageMax, most-len(all.Records))) //nolint:gosec // at most 500
		}
		page, err := conn.Admin.ListAudit(ctx, request)
		if err != nil {
			return nil, err
		}
		all.Records = append(all.Records, page.Records...)
		all.NextPageToken, all.Nodes = page.NextPageToken, page.Nodes
		if page.NextPageToken == "" || most > 0 && len(all.Records) >= most {
			return all, nil
		}
		request.PageToken = page.NextPageToken
	}
}

// renderAudit shows calls, and which nodes could not be asked. Times are in the zone of the reader.
func renderAudit(w io.Writer, response *belfryv1.ListAuditResponse, zone *time.Location) {
	var lines [][]string
	for _, r := range response.Records {
		outcome := r.Outcome
		if r.RefusedEntries > 0 {
			outcome += fmt.Sprintf(" (%s, the first of %s)", render.Count(r.RefusedEntries, "refused job"), r.Queue)
		}
		if r.Unrecorded > 0 {
			outcome += fmt.Sprintf(" (%s before have no record)", render.Count(r.Unrecorded, "refused call"))
		}
		if r.MadeToken != "" {
			outcome += " (made " + r.MadeToken + ")"
		}
		lines = append(lines, []string{
			r.EndedAt.AsTime().In(zone).Format("2006-01-02 15:04:05.000 -07:00"), r.Node, cmp.Or(r.Token, "nobody"), r.Address,
			r.Procedure[strings.LastIndexByte(r.Procedure, '/')+1:], outcome, r.Request,
		})
	}
	if len(lines) == 0 {
		fmt.Fprintln(w, "no audited calls")
	} else {
		render.Rows(w, []string{"ENDED", "NODE", "TOKEN", "ADDRESS", "CALL", "OUTCOME", "REQUEST"}, lines)
	}
	if response.NextPageToken != "" {
		fmt.Fprintln(w, "there are older calls; --max 0 shows all")
	}
	for _, n := range response.Nodes {
		if n.Error != "" {
			fmt.Fprintf(w, "node %s could not be asked, so its calls are missing: %s\n", n.Name, n.Error)
		}
	}
}
