package rpc

import (
	"context"
	"slices"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// singleNode is the Cluster of a node without others.
type singleNode struct {
	node             backend.Node
	address, version string
}

// Members implements Cluster.
func (a *singleNode) Members(context.Context) ([]backend.Member, []backend.Move) {
	st := a.node.Status()
	return []backend.Member{{
		Name: st.Name, ServerID: st.ServerID, ClientAddr: a.address, Answers: true, Version: a.version,
		Format: fsm.LatestFormat, Groups: slices.Concat(st.Shards, st.Groups),
	}}, nil
}

// Settings implements Cluster.
func (*singleNode) Settings() backend.ClusterSettings {
	return backend.ClusterSettings{Factor: 1, MinVoters: 1, NoAutoCreate: new(false)}
}

// Configure implements Cluster.
func (*singleNode) Configure(context.Context, backend.ClusterSettings) (backend.ClusterSettings, error) {
	return backend.ClusterSettings{}, needsOthers()
}

// LowerMinVoters implements Cluster.
func (*singleNode) LowerMinVoters(context.Context, int) (backend.ClusterSettings, error) {
	return backend.ClusterSettings{}, needsOthers()
}

// Format implements Cluster. A node without a catalog never gets an instruction to write another
// format.
func (*singleNode) Format() fsm.Format { return fsm.FirstFormat }

// VotersWanted implements Cluster.
func (*singleNode) VotersWanted() int { return 1 }

// Drain implements Cluster.
func (*singleNode) Drain(context.Context, string, int) error { return needsOthers() }

// Undrain implements Cluster.
func (*singleNode) Undrain(context.Context, string) error { return nil }

// Remove implements Cluster.
func (*singleNode) Remove(context.Context, string) error { return needsOthers() }

// TransferLeader implements Cluster.
func (*singleNode) TransferLeader(context.Context, backend.Transfer) error { return needsOthers() }

// ResetClock implements Cluster.
func (*singleNode) ResetClock(context.Context, string, uint32) (node.ClockReset, error) {
	f := fault.New(belfryv1.Reason_REASON_UNIMPLEMENTED)
	f.Message = "this server was made without a cluster, which alone can move time back"
	return node.ClockReset{}, f
}

// needsOthers returns the fault of a call that a node alone cannot carry out.
func needsOthers() *fault.Error {
	f := fault.New(belfryv1.Reason_REASON_UNIMPLEMENTED)
	f.Message = "this node is alone and stays so: there is no other that could take what it has"
	return f
}

// Namespaces implements Cluster.
func (*singleNode) Namespaces() []backend.Namespace { return nil }

// SetNamespace implements Cluster.
func (*singleNode) SetNamespace(context.Context, string, [node.Limits]bool, node.Amounts) (backend.Namespace, error) {
	return backend.Namespace{}, needsOthers()
}

// RestoreNamespaces implements Cluster.
func (*singleNode) RestoreNamespaces(context.Context, []backend.Namespace) error {
	return needsOthers()
}

// RemoveNamespace implements Cluster.
func (*singleNode) RemoveNamespace(context.Context, string) (bool, error) {
	return false, needsOthers()
}
