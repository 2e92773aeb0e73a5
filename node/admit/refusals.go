package admit

import (
	"errors"
	"maps"
	"sync"
)

// refusedNamespacesMax bounds the namespaces that are counted one by one. The others are counted as
// otherNamespaces.
const refusedNamespacesMax = 1000

// otherNamespaces is the name under which the others are counted.
const otherNamespaces = "_other"

// NamespaceRefusals counts the requests that quotas of namespaces refused since the start of the
// node.
type NamespaceRefusals struct {
	mu sync.Mutex
	by map[string]Amounts
}

// Note counts requests if err is a QuotaError.
func (r *NamespaceRefusals) Note(err error, requests uint64) {
	e, ok := errors.AsType[*QuotaError](err)
	if !ok || e.Limit >= Limits {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := e.Namespace
	if _, counted := r.by[name]; !counted && len(r.by) >= refusedNamespacesMax {
		name = otherNamespaces
	}
	if r.by == nil {
		r.by = map[string]Amounts{}
	}
	sum := r.by[name]
	sum[e.Limit] += requests
	r.by[name] = sum
}

// Value returns the counts by namespace.
func (r *NamespaceRefusals) Value() map[string]Amounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.by)
}
