package node

import (
	"errors"
	"maps"
	"sync"

	"github.com/belfrydb/belfry/fsm"
)

// refusedSpacesMax bounds the namespaces whose refusals a shard counts one by one. The others are counted as OtherQueues.
const refusedSpacesMax = 1000

// spaceRefusals counts the requests that were refused for the quotas of namespaces, since the start of the node.
type spaceRefusals struct {
	mu sync.Mutex
	by map[string]Amounts
}

// note counts requests that were refused so.
func (r *spaceRefusals) note(err error, requests uint64) {
	e, ok := errors.AsType[*QuotaError](err)
	if !ok || e.Limit >= Limits {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := e.Namespace
	if _, counted := r.by[name]; !counted && len(r.by) >= refusedSpacesMax {
		name = OtherQueues
	}
	if r.by == nil {
		r.by = map[string]Amounts{}
	}
	sum := r.by[name]
	sum[e.Limit] += requests
	r.by[name] = sum
}

func (r *spaceRefusals) value() map[string]Amounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.by)
}

// usage returns what is used in the shard of each quota that it has a share of: what is applied. It changes nothing, so that who measures does not take away
// what the keeper of shares is told.
func (sh *shares) usage() map[string]Amounts {
	sh.mu.Lock()
	all := make(map[string]Amounts, len(sh.spaces))
	for name, s := range sh.spaces {
		all[name] = Amounts{PutRate: s.rate}
	}
	sh.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	sh.shard.view(func(m *fsm.Machine, _ fsm.Time) {
		for name, used := range all {
			u := m.UsageOf(name)
			used[JobsLimit], used[BytesLimit], used[LeasesLimit] = u.Jobs, u.Bytes, u.InFlight
			all[name] = used
		}
	})
	return all
}
