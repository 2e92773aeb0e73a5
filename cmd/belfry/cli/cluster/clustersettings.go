package cluster

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a verbs) clusterSettingsCommand() *cobra.Command {
	request := &belfryv1.UpdateClusterRequest{}
	grace, noAutoCreate := &cli.OptionalDuration{}, false
	c := &cobra.Command{
		Use:   "settings",
		Short: "Show or change the replication factor, the grace period, min-voters and no-auto-create",
		Long: `
Settings shows the settings of the whole cluster, and changes those that are given. Replicas follow
a new replication factor one at a time. The grace period is how long a node may be silent before its
replicas are replaced.

A shard with fewer voters than min-voters takes no puts, hands out no jobs and extends no leases,
with the reason TOO_FEW_VOTERS; acks, cancels and purges go on. So what is acknowledged is on a
majority of at least so many disks. It is 1 in a cluster that one node founded. With three nodes,
raise it to 2. A drain waits rather than leave fewer voters.

A put makes its queue if there is none of the name. With --no-auto-create it is refused with
QUEUE_NOT_FOUND, so that a mistyped name is noticed, and queues are made by 'belfry queue create'
only; --no-auto-create=false takes that back.`,
		Example: `  belfry cluster settings
  belfry cluster settings --replication-factor 5 --grace-period 5m
  belfry cluster settings --min-voters 2`,
		Args: cli.Arguments(0, 0),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.Uint32Var(&request.ReplicationFactor, flag.ReplicationFactor, 0,
		"how many voters each shard gets, as far as there are nodes: 1, 3, 5 or 7")
	flags.Var(grace, flag.GracePeriod, "how long a node may be silent, 1s to 30 days")
	flags.Uint32Var(&request.MinVoters, flag.MinVoters, 0,
		"raise how many voters a shard must have to take puts and hand out jobs, to at most what every shard has")
	flags.Uint32Var(&request.LowerMinVoters, flag.LowerMinVoters, 0,
		"lower it; jobs that are acknowledged then are on fewer disks")
	flags.BoolVar(&noAutoCreate, flag.NoAutoCreate, false,
		"refuse puts into queues that do not exist instead of making them; =false makes them again")
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, _ []string) error {
		request.GracePeriod = grace.Proto
		if flags.Changed(flag.NoAutoCreate) {
			request.NoAutoCreate = &noAutoCreate
		}
		// to the server it would mean that it stays
		if request.ReplicationFactor == 0 && flags.Changed(flag.ReplicationFactor) {
			return cli.Usagef("--replication-factor: have 0, want 1, 3, 5 or 7")
		}
		for name, least := range map[string]uint32{
			"min-voters": request.MinVoters, "lower-min-voters": request.LowerMinVoters,
		} {
			if least == 0 && flags.Changed(name) {
				return cli.Usagef("--%s: have 0, want 1 to the replication factor", name)
			}
		}
		if request.ReplicationFactor == 0 && request.GracePeriod == nil && request.MinVoters == 0 &&
			request.LowerMinVoters == 0 && request.NoAutoCreate == nil {
			response, err := conn.Admin.GetCluster(ctx, &belfryv1.GetClusterRequest{})
			if err != nil {
				return err
			}
			return a.showSettings(&belfryv1.UpdateClusterResponse{
				ReplicationFactor: response.ReplicationFactor, GracePeriod: response.GracePeriod, MinVoters: response.MinVoters,
				NoAutoCreate: response.NoAutoCreate,
			})
		}
		response, err := conn.Admin.UpdateCluster(ctx, request)
		if err != nil {
			return err
		}
		return a.showSettings(response)
	})
	return a.ClientFlags(c)
}

// showSettings shows the settings that hold.
func (a verbs) showSettings(s *belfryv1.UpdateClusterResponse) error {
	return a.Show(s, func(w io.Writer) {
		fmt.Fprintf(w, "replication factor %d, grace period %s, min-voters %d, no-auto-create %t\n",
			s.ReplicationFactor, s.GracePeriod.AsDuration(), s.MinVoters, s.NoAutoCreate)
	})
}
