package jobs

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a verbs) listCommand() *cobra.Command {
	var f filter
	var most int
	c := &cobra.Command{
		Use:   "list QUEUE",
		Short: "List or search jobs of a queue in due order",
		Long: `
List shows jobs of one state in due order, without their bodies. With --match, --id-prefix,
--cause or --key it searches: it looks at one job after the other until it has found --max of them, and
says how many it has looked at. The same flags of redrive, cancel, reschedule and run-now, which have no
--key, act on what the list shows.`,
		Example:           "  belfry list orders --state dead --max 20\n  belfry list orders --state dead --match timeout",
		Args:              cli.Arguments(1, 1, "QUEUE"),
		ValidArgsFunction: a.CompleteQueue,
	}
	flags := c.Flags()
	flags.SortFlags = false
	f.addState(flags, "delayed", "ready", "reserved", "dead")
	f.add(flags)
	flags.Var(&f.key, flag.Key, "only jobs of this key")
	flags.VarP(cli.Count(&most, 0, 100), flag.Max, "n", "how many jobs at most; 0 for all")
	c.RunE = func(c *cobra.Command, args []string) error {
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		response, err := a.listJobs(c.Context(), conn, f.list(args[0]), most)
		if err == nil && len(response.Jobs) == 0 {
			err = a.Within(c.Context(), func(ctx context.Context) error { return cli.CheckQueue(ctx, conn, args[0]) })
		}
		if err != nil && c.Context().Err() == nil {
			return err
		}
		if err == nil || len(response.Jobs) > 0 {
			if shown := a.Show(response, func(w io.Writer) { renderList(w, &f, response, a.Now()) }); shown != nil {
				return shown
			}
		}
		if f.searches() {
			a.sayHowFar(response, err)
		}
		return err
	}
	return a.ClientFlags(c)
}

// listJobs reads pages until there are enough jobs. The answer is as of one page: the last page's
// token, all pages' jobs. Each page may take --timeout. If ctx ends, the answer has what was found
// until then.
func (a verbs) listJobs(ctx context.Context, conn *cli.Connection, request *belfryv1.ListRequest,
	most int) (*belfryv1.ListResponse, error) {
	const pageMax = 1000
	all := &belfryv1.ListResponse{}
	progress := cli.NewProgress(a.System, 0)
	defer progress.End()
	for {
		request.PageSize = pageMax
		if most > 0 {
			request.PageSize = int32(min(pageMax, most-len(all.Jobs))) //nolint:gosec // at most 1,000
		}
		var page *belfryv1.ListResponse
		if err := a.Within(ctx, func(ctx context.Context) (err error) {
			page, err = conn.Queues.List(ctx, request)
			return err
		}); err != nil {
			return all, err
		}
		all.Jobs = append(all.Jobs, page.Jobs...)
		all.NextPageToken, all.Witnesses, all.Searched = page.NextPageToken, page.Witnesses, page.Searched
		if page.NextPageToken == "" || most > 0 && len(all.Jobs) >= most {
			return all, nil
		}
		request.PageToken = page.NextPageToken
		if page.Searched > 0 {
			progress.Show(func(time.Time) string {
				return fmt.Sprintf("searched %s, found %s", render.Count(page.Searched, "job"),
					render.Count(len(all.Jobs), "job"))
			})
		}
	}
}

// sayHowFar says how far a search came. err is what ended it, nil if it ended by itself.
func (a verbs) sayHowFar(response *belfryv1.ListResponse, err error) {
	end := ", which are all"
	switch {
	case err != nil:
		end = ", then it was interrupted"
	case response.NextPageToken != "":
		end = "; there may be more"
	}
	fmt.Fprintf(a.Err, "searched %s%s\n", render.Count(response.Searched, "job"), end)
}

// renderList shows jobs, or that there are none.
func renderList(w io.Writer, f *filter, response *belfryv1.ListResponse, now time.Time) {
	switch {
	case len(response.Jobs) > 0:
		renderJobs(w, response, now)
	case f.searches():
		fmt.Fprintf(w, "no %s jobs found; --state searches the others\n", f.state)
	default:
		fmt.Fprintf(w, "no %s jobs; --state lists the others\n", f.state)
	}
}
