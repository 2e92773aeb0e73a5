package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func (a *app) clusterSettingsCommand() *cobra.Command {
	request := &belfryv1.UpdateClusterRequest{}
	grace := &optionalDuration{}
	c := &cobra.Command{
		Use:   "settings",
		Short: "Show or change the replication factor and the grace period",
		Long: "Settings shows the settings of the whole cluster, and changes those that are given. Replicas follow a new replication\n" +
			"factor one at a time. The grace period is how long a node may be silent before its replicas are replaced.",
		Example: "  belfry cluster settings\n  belfry cluster settings --replication-factor 5 --grace-period 5m",
		Args:    arguments(0, 0),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.Uint32Var(&request.ReplicationFactor, "replication-factor", 0, "how many voters each shard gets, as far as there are nodes: 1, 3, 5 or 7")
	flags.Var(grace, "grace-period", "how long a node may be silent, 1s to 30 days")
	c.RunE = a.command(nil, func(ctx context.Context, conn *connection, _ []string) error {
		request.GracePeriod = grace.proto
		if request.ReplicationFactor == 0 && flags.Changed("replication-factor") { // to the server it would mean that it stays
			return usagef("--replication-factor: have 0, want 1, 3, 5 or 7")
		}
		if request.ReplicationFactor == 0 && request.GracePeriod == nil {
			response, err := conn.admin.GetCluster(ctx, &belfryv1.GetClusterRequest{})
			if err != nil {
				return err
			}
			return a.showSettings(&belfryv1.UpdateClusterResponse{ReplicationFactor: response.ReplicationFactor, GracePeriod: response.GracePeriod})
		}
		response, err := conn.admin.UpdateCluster(ctx, request)
		if err != nil {
			return err
		}
		return a.showSettings(response)
	})
	return c
}

// showSettings shows the settings that hold.
func (a *app) showSettings(s *belfryv1.UpdateClusterResponse) error {
	return a.show(s, func(w io.Writer) {
		fmt.Fprintf(w, "replication factor %d, grace period %s\n", s.ReplicationFactor, s.GracePeriod.AsDuration())
	})
}
