package clitest

import belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"

// ShownCluster returns a cluster of two nodes that answer and one that does not.
func ShownCluster() *belfryv1.GetClusterResponse {
	return &belfryv1.GetClusterResponse{
		ClusterId: "c1", AnsweredBy: "n1", ReplicationFactor: 3, Format: 1,
		Nodes: []*belfryv1.Node{
			{
				Name: "n1", Incarnation: "0000000000000001", State: belfryv1.NodeState_NODE_STATE_LIVE, Address: "10.0.0.1:7400",
				PeerAddress: "10.0.0.1:7401", Zone: "a", Version: "v1", Format: 2, Replicas: 2, Leads: 1,
			},
			{
				Name: "n2", Incarnation: "0000000000000002", State: belfryv1.NodeState_NODE_STATE_DRAINING, Draining: true,
				Version: "v1", Replicas: 1, Leads: 1,
			},
			{
				Name: "n3", Incarnation: "0000000000000003", State: belfryv1.NodeState_NODE_STATE_SILENT, Draining: true,
				Replicas: 1,
			},
		},
		Shards: []*belfryv1.Shard{
			{
				Shard: 0, Leader: "n1", Term: 3, AppliedIndex: 1200, Digest: "00000000000000ab", Jobs: 1000,
				Replicas: []*belfryv1.Replica{{Node: "n1", Voter: true}, {Node: "n3", Voter: true, Silent: true}, {Node: "n2"}},
			},
			{Shard: 1, Digest: "0000000000000000"},
		},
		Catalog: &belfryv1.Catalog{Leader: "n2", Term: 2, Replicas: []*belfryv1.Replica{{Node: "n2", Voter: true}}},
	}
}

// ShownNodesAndShards is what `cluster status` prints of them.
const ShownNodesAndShards = `
NODE  STATE             CLIENTS        PEERS          ZONE  VERSION  FORMAT  REPLICAS  LEADS  INCARNATION
n1    live              10.0.0.1:7400  10.0.0.1:7401  a     v1       2       2         1      0000000000000001
n2    draining          -              -              -     v1       0       1         1      0000000000000002
n3    silent, draining  -              -              -     -        0       1         0      0000000000000003

SHARD    LEADER  TERM  VOTERS  OTHERS  APPLIED  DIGEST            JOBS
0        n1      3     n1 n3?  n2      1,200    00000000000000ab  1,000
1        -       -     -       -       -        -                 -
catalog  n2      2     n2      -                                  
`
