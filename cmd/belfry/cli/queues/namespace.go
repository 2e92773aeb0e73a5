package queues

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a verbs) namespaceCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:     "namespace",
		Aliases: []string{"namespaces"},
		Short:   "List, show, set and remove the quotas of namespaces",
		Long: `
A namespace is the first part of names such as billing/orders. Its quota bounds what all its queues
have together, in all shards. A namespace needs none.`,
	}, a.namespaceListCommand(), a.namespaceShowCommand(), a.namespaceSetCommand(), a.namespaceRemoveCommand())
}

func (a verbs) namespaceListCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the namespaces with a quota",
		Args:    cli.Arguments(0, 0),
	}
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, _ []string) error {
		response, err := conn.Admin.ListNamespaces(ctx, &belfryv1.ListNamespacesRequest{})
		if err != nil {
			return err
		}
		return a.Show(response, func(w io.Writer) { renderNamespaces(w, response.Namespaces) })
	})
	return a.ClientFlags(c)
}

func (a verbs) namespaceShowCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "show NAMESPACE",
		Short:   "Show the quota of a namespace and what is used of it",
		Example: "  belfry namespace show billing",
		Args:    cli.Arguments(1, 1, "NAMESPACE"),
	}
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		response, err := conn.Admin.GetNamespace(ctx, &belfryv1.GetNamespaceRequest{Name: args[0]})
		if err != nil {
			return err
		}
		return a.Show(response, func(w io.Writer) {
			n := response.Namespace
			render.Fields(w,
				"namespace", n.GetName()+withoutQuota(response),
				"queues", render.Grouped(response.Queues),
				"jobs", usedOf(response.Jobs, n.GetMaxJobs(), render.Grouped),
				"size", usedOf(response.Bytes, n.GetMaxBytes(), render.Size),
				"in flight", usedOf(response.InFlight, n.GetMaxInFlight(), render.Grouped),
				"puts", rateLimit(n),
				"pending", pendingShards(n),
			)
		})
	})
	return a.ClientFlags(c)
}

// withoutQuota says that a namespace has no quota, and none is known of it if it has no queues
// either: any name can be asked for.
func withoutQuota(r *belfryv1.GetNamespaceResponse) string {
	n := r.Namespace
	switch {
	case n.GetMaxJobs() > 0 || n.GetMaxBytes() > 0 || n.GetMaxInFlight() > 0 || n.GetPutsPerSecond() > 0 ||
		len(n.GetPendingShards()) > 0:
		return ""
	case r.Queues == 0:
		return " (no quota, and no queue)"
	default:
		return " (no quota)"
	}
}

func (a verbs) namespaceSetCommand() *cobra.Command {
	var maxJobs, maxBytes, maxInFlight, putsPerSecond uint64
	request := &belfryv1.SetNamespaceRequest{}
	c := &cobra.Command{
		Use:   "set NAMESPACE",
		Short: "Give a namespace a quota, or change it",
		Long: `
Set changes the limits that are given and leaves the others. What does not fit is refused with
QUOTA, too many puts with RATE_LIMITED. What a namespace holds already stays.`,
		Example: "  belfry namespace set billing --max-jobs 1000000 --puts-per-second 500",
		Args:    cli.Arguments(1, 1, "NAMESPACE"),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.Uint64Var(&maxJobs, flag.MaxJobs, 0, "how many jobs its queues may hold together, 0 for no limit")
	flags.Uint64Var(&maxBytes, flag.MaxBytes, 0, "how many bytes they may hold, 0 for no limit")
	flags.Uint64Var(&maxInFlight, flag.MaxInFlight, 0, "how many jobs may be reserved at one time, 0 for no limit")
	flags.Uint64Var(&putsPerSecond, flag.PutsPerSecond, 0, "how many puts a second are let in, 0 for no limit")
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		request.Name = args[0]
		request.MaxJobs, request.MaxBytes = ifGiven(flags, "max-jobs", maxJobs), ifGiven(flags, "max-bytes", maxBytes)
		request.MaxInFlight, request.PutsPerSecond = ifGiven(flags, "max-in-flight", maxInFlight),
			ifGiven(flags, "puts-per-second", putsPerSecond)
		if request.MaxJobs == nil && request.MaxBytes == nil && request.MaxInFlight == nil && request.PutsPerSecond == nil {
			return cli.Usagef("nothing is to be changed: give --max-jobs, --max-bytes, --max-in-flight, --puts-per-second or " +
				"several of them")
		}
		response, err := conn.Admin.SetNamespace(ctx, request)
		if err != nil {
			return err
		}
		return a.Show(response, func(w io.Writer) { renderNamespaces(w, []*belfryv1.Namespace{response.Namespace}) })
	})
	return a.ClientFlags(c)
}

func (a verbs) namespaceRemoveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "remove NAMESPACE",
		Short:   "Remove the quota of a namespace; its queues stay",
		Example: "  belfry namespace remove billing",
		Args:    cli.Arguments(1, 1, "NAMESPACE"),
	}
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		response, err := conn.Admin.DeleteNamespace(ctx, &belfryv1.DeleteNamespaceRequest{Name: args[0]})
		if err != nil {
			return err
		}
		if !response.GetFound() {
			return cli.ExitWith(cli.CodeNotFound,
				fmt.Sprintf("namespace %q has no quota: it was removed before, or the name is wrong; 'belfry namespace list' "+
					"shows those that have one", args[0]))
		}
		return a.Show(response, func(w io.Writer) { fmt.Fprintf(w, "%s has no quota any more\n", args[0]) })
	})
	return a.ClientFlags(c)
}

// renderNamespaces shows quotas, one a line.
func renderNamespaces(w io.Writer, all []*belfryv1.Namespace) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no quotas")
		return
	}
	limit := func(n uint64, text func(uint64) string) string {
		if n == 0 {
			return "-"
		}
		return text(n)
	}
	var lines [][]string
	for _, n := range all {
		pending := ""
		if p := pendingShards(n); p != "" {
			pending = "does not hold yet in " + p
		}
		lines = append(lines, []string{
			n.GetName(), limit(n.GetMaxJobs(), render.Grouped), limit(n.GetMaxBytes(), render.Size),
			limit(n.GetMaxInFlight(), render.Grouped), limit(n.GetPutsPerSecond(), render.Grouped), pending,
		})
	}
	render.Rows(w, []string{"NAMESPACE", "JOBS", "SIZE", "IN FLIGHT", "PUTS/S", ""}, lines)
}

// usedOf says how much is used of a limit.
func usedOf(used, most uint64, text func(uint64) string) string {
	if most == 0 {
		return text(used) + ", no limit"
	}
	return fmt.Sprintf("%s of %s", text(used), text(most))
}

func rateLimit(n *belfryv1.Namespace) string {
	if n.GetPutsPerSecond() == 0 {
		return "no limit"
	}
	return render.Grouped(n.GetPutsPerSecond()) + " a second"
}

// pendingShards names the shards in which a quota does not hold yet, for people; empty if there are
// none.
func pendingShards(n *belfryv1.Namespace) string {
	var names []string
	for _, shard := range n.GetPendingShards() {
		names = append(names, fmt.Sprintf("shard %d", shard))
	}
	return strings.Join(names, ", ")
}
