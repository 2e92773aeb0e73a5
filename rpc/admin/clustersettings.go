package admin

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// UpdateCluster implements AdminService.
func (s *Service) UpdateCluster(ctx context.Context,
	req *belfryv1.UpdateClusterRequest) (*belfryv1.UpdateClusterResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	c.RequestID(req.GetRequestId())
	want := backend.ClusterSettings{
		Factor: int(req.GetReplicationFactor()), Grace: req.GetGracePeriod().AsDuration(), NoAutoCreate: req.NoAutoCreate,
	}
	if req.GetGracePeriod() != nil && want.Grace <= 0 {
		c.Fail(fault.Invalid("gracePeriod", "want a duration of at least a second"))
	}
	raise, lower := int(req.GetMinVoters()), int(req.GetLowerMinVoters())
	if raise != 0 && lower != 0 {
		c.Fail(fault.Invalid("lowerMinVoters", "name either minVoters or lowerMinVoters"))
	}
	if want == (backend.ClusterSettings{}) && raise == 0 && lower == 0 {
		c.Fail(fault.Invalid("replicationFactor",
			"nothing is to be changed: name replicationFactor, gracePeriod, minVoters, lowerMinVoters or noAutoCreate"))
	}
	if c.Err != nil {
		return nil, c.Err
	}
	after, err := s.cluster.Settings(), error(nil)
	if want != (backend.ClusterSettings{}) {
		after, err = s.cluster.Configure(ctx, want)
	}
	if err == nil && (raise != 0 || lower != 0) {
		after, err = s.changeMinVoters(ctx, raise, lower)
	}
	if err != nil {
		return nil, fault.Of(err)
	}
	return &belfryv1.UpdateClusterResponse{
		ReplicationFactor: wire.Count(uint64(after.Factor)), GracePeriod: durationpb.New(after.Grace),
		MinVoters:    wire.Count(uint64(after.MinVoters)),
		NoAutoCreate: isTrue(after.NoAutoCreate),
	}, nil
}

// isTrue reports whether a setting is known, and on.
func isTrue(setting *bool) bool { return setting != nil && *setting }
