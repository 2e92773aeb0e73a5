package rpc

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/access/tokens"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// UpdateCluster implements AdminService.
func (s *adminService) UpdateCluster(ctx context.Context, req *belfryv1.UpdateClusterRequest) (*belfryv1.UpdateClusterResponse, error) {
	c := s.checker(ctx, tokens.Admin)
	c.requestID(req.GetRequestId())
	want := ClusterSettings{Factor: int(req.GetReplicationFactor()), Grace: req.GetGracePeriod().AsDuration()}
	if req.NoAutoCreate != nil {
		want.NoAutoCreate = yesOrNo(req.GetNoAutoCreate())
	}
	if req.GetGracePeriod() != nil && want.Grace <= 0 {
		c.fail(invalid("gracePeriod", "want a duration of at least a second"))
	}
	raise, lower := int(req.GetMinVoters()), int(req.GetLowerMinVoters())
	if raise != 0 && lower != 0 {
		c.fail(invalid("lowerMinVoters", "name either minVoters or lowerMinVoters"))
	}
	if want == (ClusterSettings{}) && raise == 0 && lower == 0 {
		c.fail(invalid("replicationFactor", "nothing is to be changed: name replicationFactor, gracePeriod, minVoters, lowerMinVoters or noAutoCreate"))
	}
	if c.err != nil {
		return nil, c.err
	}
	after, err := s.cluster.Settings(), error(nil)
	if want != (ClusterSettings{}) {
		after, err = s.cluster.Configure(ctx, want)
	}
	if err == nil && (raise != 0 || lower != 0) {
		after, err = s.changeMinVoters(ctx, raise, lower)
	}
	if err != nil {
		return nil, faultOfError(err)
	}
	return &belfryv1.UpdateClusterResponse{
		ReplicationFactor: count32(uint64(after.Factor)), GracePeriod: durationpb.New(after.Grace), MinVoters: count32(uint64(after.MinVoters)),
		NoAutoCreate: after.NoAutoCreate == yesOrNo(true),
	}, nil
}

// yesOrNo is a truth as settings have it, in which nothing means that it stays as it is.
func yesOrNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
