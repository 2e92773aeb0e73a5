package node

import (
	"errors"
	"maps"
	"sync"

	"github.com/belfrydb/belfry/fsm"
)

// refusedNamespacesMax bounds the namespaces that are counted one by one. The others are counted as OtherQueues.
const refusedNamespacesMax = 1000

// namespaceRefusals counts the requests that quotas of namespaces refused since the start of the node.
type namespaceRefusals struct {
	mu sync.Mutex
	by map[string]Amounts
}

// note counts requests if err is a QuotaError.
func (r *namespaceRefusals) note(err error, requests uint64) {
	e, ok := errors.AsType[*QuotaError](err)
	if !ok || e.Limit >= Limits {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := e.Namespace
	if _, counted := r.by[name]; !counted && len(r.by) >= refusedNamespacesMax {
		name = OtherQueues
	}
	if r.by == nil {
		r.by = map[string]Amounts{}
	}
	sum := r.by[name]
	sum[e.Limit] += requests
	r.by[name] = sum
}

func (r *namespaceRefusals) value() map[string]Amounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.by)
}

// usage returns the applied use of each quota, for metrics. It changes nothing, unlike sharesUsed.
func (q *quotas) usage() map[string]Amounts {
	q.mu.Lock()
	all := make(map[string]Amounts, len(q.namespaces))
	for name, s := range q.namespaces {
		all[name] = Amounts{PutRate: s.putRate}
	}
	q.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	q.view(func(m *fsm.Machine, _ fsm.Time) {
		for name, used := range all {
			u := m.UsageOf(name)
			used[JobsLimit], used[BytesLimit], used[LeasesLimit] = u.Jobs, u.Bytes, u.InFlight
			all[name] = used
		}
	})
	return all
}
