package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cluster"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
)

func (a verbs) recoverCommand() *cobra.Command {
	var data, sure string
	c := &cobra.Command{
		Use:   "recover",
		Short: "Let one node go on alone after the others were lost for good",
		Long: `
Recover is the last resort when most nodes of a cluster are lost for good, so that no shard has a
majority any more. It makes a stopped node, by what is in its data directory, the only voter of all
its groups, in a cluster with a new id.

Jobs that the lost nodes had acknowledged and this node had not heard of are LOST; a job that
another node handed out or ended may come back. A shard of which this node has no copy begins empty.
If more than one node is left, run the command on each without --confirm: it changes nothing then
and shows how far each group has come. Take the node with the highest terms, then the highest
indexes. Afterwards start it, and let all others join it with new, empty data directories: with
their old ones they are refused, because they belong to another cluster.

The new cluster has min-voters 1, whatever the old one had: raise it when the others have joined.

If most nodes still exist, do not use this: start them instead. A single lost disk is repaired by an
empty one.`,
		Example: `  belfry recover --data /var/lib/belfry            # look
  belfry recover --data /var/lib/belfry --confirm CLUSTER-ID`,
		Args: cli.Arguments(0, 0),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&data, flag.Data, defaultData, "the data directory of the stopped node")
	flags.StringVar(&sure, flag.Confirm, "", "the id of the cluster that ends by this, as the command shows it")
	cli.Configurable(flags, flag.Data)
	c.RunE = func(*cobra.Command, []string) (err error) {
		r, err := cluster.OpenRecovery(data, a.logger(logAuto, slog.LevelWarn))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		renderRecovery(a.Out, r)
		if err := a.confirmRecovery(r.Identity().ClusterID, sure); err != nil {
			return err
		}
		if err := r.Run(); err != nil {
			return fmt.Errorf("the recovery is not complete, and the node does not start until it is; run the command again: %w",
				err)
		}
		fmt.Fprintf(a.Out, "\nDone. The node is a cluster of its own now, %s.\nStart it as before; then let the others "+
			"join it with empty data directories.\n"+
			"Its min-voters is 1; once three nodes are there, raise it with 'belfry cluster settings --min-voters 2'.\n",
			r.NextCluster())
		return nil
	}
	return c
}

// confirmRecovery has the person type the id of the cluster that ends.
func (a verbs) confirmRecovery(id, sure string) error {
	if sure == "" && a.InTerminal {
		fmt.Fprintf(a.Err, "\nThis cannot be undone. To go on, type the id of the cluster that ends, %s: ", id)
		answer, err := bufio.NewReader(a.In).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading the answer: %w", err)
		}
		sure = strings.TrimSpace(answer)
	}
	if sure == "" {
		return cli.Usagef("nothing was changed; to go on, add --confirm %s", id)
	}
	if sure != id {
		return cli.Usagef("nothing was changed: %q is not the id of the cluster that ends, %s", sure, id)
	}
	return nil
}

// renderRecovery shows what would be kept and what may be lost.
func renderRecovery(w io.Writer, r *cluster.Recovery) {
	who := r.Identity()
	fmt.Fprintf(w, "Node %s of cluster %s\n\n", who.ServerID, who.ClusterID)
	var table [][]string
	for _, g := range r.Groups() {
		row := []string{g.Group, fmt.Sprint(g.LastTerm), fmt.Sprint(g.LastIndex), strings.Join(g.Voters, ", ")}
		if g.Done {
			row = []string{g.Group, "", "", "recovered already"}
		}
		table = append(table, row)
	}
	render.Rows(w, []string{"GROUP", "TERM", "INDEX", "VOTERS"}, table)
	fmt.Fprint(w, "\nWARNING: what the other voters acknowledged after these indexes is LOST by a recovery from here.\n")
	for _, shard := range r.Missing() {
		fmt.Fprintf(w, "WARNING: this node has NO COPY of shard %d: all its jobs are LOST, it begins empty, and ids that "+
			"it made may come again.\n", shard)
	}
}
