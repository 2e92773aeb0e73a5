package adapter

import (
	"context"
	"errors"

	"github.com/belfrydb/belfry/cluster"
	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// adapter adapts a cluster.Cluster.
type adapter struct{ inner *cluster.Cluster }

var _ backend.Cluster = (*adapter)(nil)

// NewCluster returns a cluster as the API needs it.
func NewCluster(c *cluster.Cluster) backend.Cluster { return &adapter{c} }

// Members implements backend.Cluster.
func (c *adapter) Members(ctx context.Context) (all []backend.Member, moves []backend.Move) {
	inner, doing := c.inner.Members(ctx)
	for _, m := range inner {
		all = append(all, member(m))
	}
	for _, m := range doing {
		moves = append(moves, backend.Move(m))
	}
	return all, moves
}

// Settings implements backend.Cluster.
func (c *adapter) Settings() backend.ClusterSettings {
	return backend.ClusterSettings(c.inner.Settings())
}

// Configure implements backend.Cluster.
func (c *adapter) Configure(ctx context.Context, s backend.ClusterSettings) (backend.ClusterSettings, error) {
	after, err := c.inner.Configure(ctx, catalog.Settings(s))
	return backend.ClusterSettings(after), settingError(err)
}

// LowerMinVoters implements backend.Cluster.
func (c *adapter) LowerMinVoters(ctx context.Context, least int) (backend.ClusterSettings, error) {
	after, err := c.inner.LowerMinVoters(ctx, least)
	return backend.ClusterSettings(after), settingError(err)
}

// settingError turns the refusal of a setting into a fault.
func settingError(err error) error {
	bad, ok := errors.AsType[*catalog.SettingError](err)
	if !ok {
		return err
	}
	fields := map[catalog.Setting]string{
		catalog.FactorSetting: "replicationFactor", catalog.GraceSetting: "gracePeriod",
		catalog.MinVotersSetting:    "minVoters",
		catalog.NoAutoCreateSetting: "noAutoCreate",
	}
	field := fields[bad.Setting]
	return &fault.Error{Reason: belfryv1.Reason_REASON_INVALID, Field: field, Message: field + ": " + bad.Text}
}

// Namespaces implements backend.Cluster.
func (c *adapter) Namespaces() (all []backend.Namespace) {
	for _, n := range c.inner.Namespaces() {
		all = append(all, backend.Namespace{Name: n.Name, Quota: n.Quota, Pending: n.Pending})
	}
	return all
}

// SetNamespace implements backend.Cluster.
func (c *adapter) SetNamespace(ctx context.Context, name string, set [node.Limits]bool,
	quota node.Amounts) (backend.Namespace, error) {
	n, err := c.inner.SetNamespace(ctx, name, set, quota)
	return backend.Namespace{Name: n.Name, Quota: n.Quota, Pending: n.Pending}, err
}

// RestoreNamespaces implements backend.Cluster.
func (c *adapter) RestoreNamespaces(ctx context.Context, all []backend.Namespace) error {
	configs := make([]catalog.NamespaceConfig, 0, len(all))
	for _, n := range all {
		configs = append(configs, catalog.NamespaceConfig{Name: n.Name, Quota: n.Quota})
	}
	return c.inner.RestoreNamespaces(ctx, configs)
}

// RemoveNamespace implements backend.Cluster.
func (c *adapter) RemoveNamespace(ctx context.Context, name string) (found bool, err error) {
	return c.inner.RemoveNamespace(ctx, name)
}

// AnswerAudit implements backend.Cluster.
func (c *adapter) AnswerAudit(answer func(query []byte) ([]byte, error)) { c.inner.AnswerAudit(answer) }

// AskAudit implements backend.Cluster.
func (c *adapter) AskAudit(ctx context.Context, query []byte) (all []backend.AuditAnswer) {
	for _, n := range c.inner.AskAudit(ctx, query) {
		all = append(all, backend.AuditAnswer{Name: n.Name, Answer: n.Answer, Err: n.Err})
	}
	return all
}

func member(m cluster.MemberStatus) backend.Member {
	out := backend.Member{
		Name: m.Name, ServerID: m.ServerID, ClientAddr: m.ClientAddr, PeerAddr: m.PeerAddr, Zone: m.Zone,
		Format: max(fsm.FirstFormat, m.Format), Draining: m.Draining,
		Answers: m.Report != nil, SilentSince: m.SilentSince,
	}
	for _, b := range m.Behind {
		out.Behind = append(out.Behind, backend.BehindReplica{Group: b.Group, Applied: b.Applied, Commit: b.Commit,
			Since: b.Since})
	}
	if m.Report == nil {
		return out
	}
	for _, u := range m.Report.Unreached {
		out.Unreached = append(out.Unreached, backend.UnreachedNode{ServerID: u.ServerID, Address: u.Address, Calls: u.Calls})
	}
	out.Version, out.Quarantined, out.Conditions = m.Report.Version, m.Report.Quarantined, m.Report.Conditions
	out.DiskFree, out.DiskLow, out.ClockOffset = m.Report.DiskFree, m.Report.DiskLow, m.Report.ClockOffset
	out.BackupAt, out.ZoneData = m.Report.BackupAt, m.Report.ZoneData
	for _, q := range m.Report.Mirrored {
		out.Mirrored = append(out.Mirrored, backend.MirroredQueue(q))
	}
	for i := range m.Report.Groups {
		g := &m.Report.Groups[i]
		out.Groups = append(out.Groups, node.GroupStatus{
			RaftStatus: node.RaftStatus{
				Group: g.Group, Serving: g.Serving, Voters: g.Voters, Nonvoters: g.Nonvoters, Term: g.Term,
				CommitIndex: g.Commit, AppliedIndex: g.Applied, Digest: g.Digest, DigestIndex: g.DigestIndex,
				SnapshotAt: g.SnapshotAt,
			},
			Clock: g.Clock, Jobs: int(g.Jobs), Restoring: g.Restoring,
			ClockAhead: g.ClockAhead > 0, ClockAheadBy: g.ClockAhead,
		})
	}
	return out
}

// VotersWanted implements backend.Cluster.
func (c *adapter) VotersWanted() int { return c.inner.VotersWanted() }

// Format implements backend.Cluster.
func (c *adapter) Format() fsm.Format { return c.inner.Format() }

// Drain implements backend.Cluster.
func (c *adapter) Drain(ctx context.Context, serverID string, keep int) error {
	return faultOf(c.inner.Drain(ctx, serverID, keep))
}

// Undrain implements backend.Cluster.
func (c *adapter) Undrain(ctx context.Context, serverID string) error {
	return faultOf(c.inner.Undrain(ctx, serverID))
}

// Remove implements backend.Cluster.
func (c *adapter) Remove(ctx context.Context, serverID string) error {
	if err := c.inner.Remove(ctx, serverID); !errors.Is(err, catalog.ErrUnknownNode) {
		return faultOf(err)
	}
	return nil
}

// TransferLeader implements backend.Cluster.
func (c *adapter) TransferLeader(ctx context.Context, t backend.Transfer) error {
	return c.inner.TransferLeader(ctx, cluster.Transfer(t))
}

// ResetClock implements backend.Cluster.
func (c *adapter) ResetClock(ctx context.Context, leader string, shard uint32) (node.ClockReset, error) {
	return c.inner.ResetClock(ctx, leader, shard)
}

// faultOf returns a fault for errors of cluster that are the caller's: the node was removed
// meanwhile, another one drains, or another node still hears it.
func faultOf(err error) error {
	if errors.Is(err, catalog.ErrUnknownNode) || errors.Is(err, catalog.ErrNodeNeeded) ||
		errors.Is(err, cluster.ErrNodeAnswers) {
		return &fault.Error{Reason: belfryv1.Reason_REASON_INVALID, Field: "name", Message: "name: " + err.Error()}
	}
	return err
}
