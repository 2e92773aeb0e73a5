package node

import (
	"sync"
	"sync/atomic"

	"github.com/belfrydb/belfry/fsm"
)

// limitedMax bounds the queues that are remembered as limited; beyond it all are forgotten and noted anew.
const limitedMax = 1000

// limited are the queues that refused a put lately, because they were full or took no more puts for the moment: soft state of a shard. Only puts into
// them are looked at before they are logged, so that a producer that goes on against a full queue costs no log and no sync. All others cost one atomic load.
type limited struct {
	some atomic.Bool

	mu     sync.Mutex
	queues map[string]struct{}
}

// note remembers the queues of the puts of a request that were refused by a limit.
func (l *limited) note(commands []fsm.Command, results []fsm.Result) {
	for i := range results {
		if code := results[i].Code; code != fsm.QueueFull && code != fsm.RateLimited {
			continue
		}
		put, ok := commands[i].(*fsm.Put)
		if !ok {
			continue
		}
		l.mu.Lock()
		if l.queues == nil || len(l.queues) >= limitedMax {
			l.queues = map[string]struct{}{}
		}
		l.queues[put.Queue] = struct{}{}
		l.some.Store(true)
		l.mu.Unlock()
	}
}

// all reports whether commands are nothing but puts into limited queues.
func (l *limited) all(commands []fsm.Command) bool {
	if !l.some.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range commands {
		put, ok := c.(*fsm.Put)
		if !ok {
			return false
		}
		if _, ok := l.queues[put.Queue]; !ok {
			return false
		}
	}
	return true
}

// forget forgets the queues of these puts, of which one at least seems to be limited no more.
func (l *limited) forget(commands []fsm.Command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range commands {
		delete(l.queues, c.(*fsm.Put).Queue)
	}
	l.some.Store(len(l.queues) > 0)
}

// refuses answers a request of puts that the machine would refuse by the limits of its queues, from what this leader has applied, and nothing is logged.
// What was answered before is applied here, so a caller that has made room is not refused. While an entry is in flight the machine decides, at hardly a
// cost: an earlier attempt at the same put may be in that entry, and be let in. While this leader hands over, its successor does: there may be room by then,
// or that attempt may have been let in there.
func (s *shard) refuses(req *fsm.Request) (results []fsm.Result, refused bool) {
	if !s.limited.all(req.Commands) || !s.proposer.idle() {
		return nil, false
	}
	if _, err := s.leader(); err != nil {
		return nil, false // who does not lead cannot tell
	}
	s.view(func(m *fsm.Machine, now fsm.Time) { results, refused = m.Refuses(req, now) })
	if !refused {
		s.limited.forget(req.Commands)
	}
	return results, refused
}
