package sums

import (
	"cmp"
	"slices"
	"strings"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Namespace is a namespace with what its queues use.
type Namespace struct {
	*belfryv1.GetNamespaceResponse
	// HasQuota says that it has a limit. Then its use here is 0 unless queues have it.
	HasQuota bool
}

// Namespaces returns the namespaces that queues have, with their use, and those that have a quota. They
// are in the order of their names, those with a quota first.
func Namespaces(queues []*belfryv1.Queue, quotas []*belfryv1.Namespace) []Namespace {
	of := map[string]int{}
	var all []Namespace
	add := func(n *belfryv1.Namespace, hasQuota bool) {
		of[n.Name] = len(all)
		all = append(all, Namespace{&belfryv1.GetNamespaceResponse{Namespace: n}, hasQuota})
	}
	for _, n := range quotas {
		add(n, true)
	}
	for _, q := range queues {
		name, _, ok := strings.Cut(q.Name, "/")
		if !ok {
			continue
		}
		if _, known := of[name]; !known {
			add(&belfryv1.Namespace{Name: name}, false)
		}
		n, c := &all[of[name]], q.Counts
		n.Queues++
		n.Jobs += uint64(c.GetDelayed()) + uint64(c.GetReady()) + uint64(c.GetReserved()) + uint64(c.GetDead())
		n.Bytes += q.Bytes
		n.InFlight += uint64(c.GetReserved())
	}
	byName := func(a, b Namespace) int { return cmp.Compare(a.Namespace.Name, b.Namespace.Name) }
	slices.SortFunc(all[:len(quotas)], byName)
	slices.SortFunc(all[len(quotas):], byName)
	return all
}
