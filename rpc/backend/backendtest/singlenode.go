package backendtest

import (
	"context"
	"slices"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// SingleNode is the backend.Cluster of a node without others. A call that needs other nodes fails.
type SingleNode struct {
	Node backend.Node
	// Address is the address of the node for clients. Version is the version that it runs.
	Address, Version string

	answerAudit func(query []byte) ([]byte, error)
}

// Members implements backend.Cluster.
func (a *SingleNode) Members(context.Context) ([]backend.Member, []backend.Move) {
	st := a.Node.Status()
	return []backend.Member{{
		Name: st.Name, ServerID: st.ServerID, ClientAddr: a.Address, Answers: true, Version: a.Version,
		Format: fsm.LatestFormat, Groups: slices.Concat(st.Shards, st.Groups),
	}}, nil
}

// Settings implements backend.Cluster.
func (*SingleNode) Settings() backend.ClusterSettings {
	return backend.ClusterSettings{Factor: 1, MinVoters: 1, NoAutoCreate: new(false)}
}

// Configure implements backend.Cluster.
func (*SingleNode) Configure(context.Context, backend.ClusterSettings) (backend.ClusterSettings, error) {
	return backend.ClusterSettings{}, needsOthers()
}

// LowerMinVoters implements backend.Cluster.
func (*SingleNode) LowerMinVoters(context.Context, int) (backend.ClusterSettings, error) {
	return backend.ClusterSettings{}, needsOthers()
}

// Format implements backend.Cluster: the format that a Node of this package writes, else the first.
func (a *SingleNode) Format() fsm.Format {
	if n, ok := a.Node.(*Node); ok {
		return max(fsm.FirstFormat, n.Format)
	}
	return fsm.FirstFormat
}

// VotersWanted implements backend.Cluster.
func (*SingleNode) VotersWanted() int { return 1 }

// Drain implements backend.Cluster.
func (*SingleNode) Drain(context.Context, string, int) error { return needsOthers() }

// Undrain implements backend.Cluster.
func (*SingleNode) Undrain(context.Context, string) error { return nil }

// Remove implements backend.Cluster.
func (*SingleNode) Remove(context.Context, string) error { return needsOthers() }

// TransferLeader implements backend.Cluster.
func (*SingleNode) TransferLeader(context.Context, backend.Transfer) error { return needsOthers() }

// ResetClock implements backend.Cluster.
func (*SingleNode) ResetClock(context.Context, string, uint32) (node.ClockReset, error) {
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

// Namespaces implements backend.Cluster.
func (*SingleNode) Namespaces() []backend.Namespace { return nil }

// SetNamespace implements backend.Cluster.
func (*SingleNode) SetNamespace(context.Context, string, [node.Limits]bool, node.Amounts) (backend.Namespace, error) {
	return backend.Namespace{}, needsOthers()
}

// RestoreNamespaces implements backend.Cluster.
func (*SingleNode) RestoreNamespaces(context.Context, []backend.Namespace) error {
	return needsOthers()
}

// RemoveNamespace implements backend.Cluster.
func (*SingleNode) RemoveNamespace(context.Context, string) (bool, error) {
	return false, needsOthers()
}

// AnswerAudit implements backend.Cluster. Call it before AskAudit.
func (a *SingleNode) AnswerAudit(answer func(query []byte) ([]byte, error)) { a.answerAudit = answer }

// AskAudit implements backend.Cluster.
func (a *SingleNode) AskAudit(_ context.Context, query []byte) []backend.AuditAnswer {
	answer, err := a.answerAudit(query)
	return []backend.AuditAnswer{{Name: a.Node.Status().Name, Answer: answer, Err: err}}
}
