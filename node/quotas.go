package node

import (
	"maps"

	"github.com/belfrydb/belfry/node/admit"
)

// SetShardQuotas sets what a shard may use of the quotas of all namespaces that have one, in a
// leadership of this node. It ignores shares of another term. It returns what is used of each quota
// at that moment: after a share was lowered, the use stays at most the larger of that figure and
// the share.
func (n *Node) SetShardQuotas(shard uint32, term uint64,
	all map[string]admit.ShardQuota) (used map[string]admit.Amounts) {
	s, err := n.replicaOf(shard)
	if err != nil {
		return nil
	}
	return s.admission.Quotas.SetShardQuotas(term, maps.Clone(all))
}

// QuotaUse returns the term in which this node leads a shard, and what the shard uses of the quotas
// of namespaces. The term is 0 if the shard is not served here.
func (n *Node) QuotaUse(shard uint32) (term uint64, all map[string]admit.NamespaceUse) {
	s, err := n.replicaOf(shard)
	if err != nil || !s.Serves() {
		return 0, nil
	}
	return s.admission.Quotas.Use()
}

// SetNamespacesLimited sets how many namespaces have a quota; a caller that does not know yet
// passes 1. While any has one, a new leader admits no request into any namespace before
// SetShardQuotas.
func (n *Node) SetNamespacesLimited(spaces int) {
	if n.namespacesLimited.Swap(spaces > 0) == (spaces > 0) {
		return
	}
	for _, s := range n.here() {
		s.admission.Quotas.WakeAll()
	}
}

// OnQuotaShort sets a function to call when a request waits for a larger share. It must return at
// once.
func (n *Node) OnQuotaShort(f func()) { n.onQuotaShort.Store(&f) }

// askForMoreQuota calls the function of OnQuotaShort.
func (n *Node) askForMoreQuota() {
	if f := n.onQuotaShort.Load(); f != nil {
		(*f)()
	}
}
