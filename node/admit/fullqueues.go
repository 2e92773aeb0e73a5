package admit

import (
	"sync"
	"sync/atomic"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
)

// fullQueuesMax bounds the remembered queues; beyond it, all are forgotten.
const fullQueuesMax = 1000

// fullQueues holds the queues that lately refused a put because of their limits: soft state of a
// shard. Only puts into these queues are checked before they are logged, so that a producer that
// keeps putting into a full queue costs no log entry and no sync. All other puts cost one atomic
// load.
type fullQueues struct {
	any atomic.Bool

	mu     sync.Mutex
	queues map[string]struct{}
}

// noteRefused remembers the queues of puts that a limit refused.
func (l *fullQueues) noteRefused(commands []fsm.Command, results []fsm.Result) {
	for i := range results {
		if code := results[i].Code; code != fsm.QueueFull && code != fsm.RateLimited {
			continue
		}
		put, ok := commands[i].(*fsm.Put)
		if !ok {
			continue
		}
		l.mu.Lock()
		if l.queues == nil || len(l.queues) >= fullQueuesMax {
			l.queues = map[string]struct{}{}
		}
		l.queues[put.Queue] = struct{}{}
		l.any.Store(true)
		l.mu.Unlock()
	}
}

// containsAll reports whether all commands are puts into full queues.
func (l *fullQueues) containsAll(commands []fsm.Command) bool {
	if !l.any.Load() {
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

// forget forgets the queues of these puts. At least one of them seems to have room again.
func (l *fullQueues) forget(commands []fsm.Command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range commands {
		delete(l.queues, c.(*fsm.Put).Queue)
	}
	l.any.Store(len(l.queues) > 0)
}

// refusedByQueues refuses a request of puts that the machine would refuse because of the limits of
// its queues. It decides from what this leader has applied; nothing is logged. Every answered
// request is applied, so a caller that has made room is not refused. While an entry is in flight,
// the request is logged and the machine decides: that entry may hold an earlier attempt at the same
// put. While this leader hands over, its successor decides, for the same reason.
func (a *Admission) refusedByQueues(req *fsm.Request) (results []fsm.Result) {
	if !a.fullQueues.containsAll(req.Commands) || !a.cfg.Idle() || !a.cfg.Leads() {
		return nil
	}
	refused := false
	a.cfg.View(func(m *machine.Machine, now fsm.Time) { results, refused = m.Refuses(req, now) })
	if !refused {
		a.fullQueues.forget(req.Commands)
		return nil
	}
	return results
}
