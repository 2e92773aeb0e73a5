package node

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/outcome"
)

// QueuesError refuses a put that would create a queue: its namespace already has as many of the shard's queues as
// the shard has left for all namespaces. Nothing was logged. It is an ErrQuota.
type QueuesError struct {
	// Namespace is that of Queue, the queue that would be created. Empty stands for all queues without a namespace.
	Namespace, Queue string
	// Used is how many queues the namespace has, Free how many the shard may still create, Max how many it may hold.
	// Queues that entries in flight will create count.
	Used, Free, Max int
}

// Error names the namespace, its number of queues and the limit, and says what to do.
func (e *QueuesError) Error() string {
	if e.Free == 0 {
		return fmt.Sprintf("queue %q is not made: the shard holds as many queues as it may, %d; delete some, or ask an admin to", e.Queue, e.Max)
	}
	whose := fmt.Sprintf("namespace %q has %d queues", e.Namespace, e.Used)
	if e.Namespace == "" {
		whose = fmt.Sprintf("queues without a namespace, which count as one, are %d", e.Used)
	}
	return fmt.Sprintf("queue %q is not made: %s in this shard, and no namespace may have more than are left there for all, %d of %d; delete some, or ask an admin to",
		e.Queue, whose, e.Free, e.Max)
}

// Unwrap returns what kind of refusal it is.
func (e *QueuesError) Unwrap() error { return outcome.ErrQuota }

// NoQueueError refuses a put into a queue that does not exist, in a cluster where puts create no queues. Nothing was
// logged. It is an ErrNoQueue.
type NoQueueError struct{ Queue string }

// Error names the queue and says what to do.
func (e *NoQueueError) Error() string {
	return fmt.Sprintf("there is no queue %q, and the cluster's setting no-auto-create has puts make none; create it first: belfry queue create %s", e.Queue, e.Queue)
}

// Unwrap returns what kind of refusal it is.
func (e *NoQueueError) Unwrap() error { return outcome.ErrNoQueue }

// NoAutoCreate reports whether this node refuses puts into queues that do not exist: the last setting it was given,
// false before the first.
func (n *Node) NoAutoCreate() bool { return n.noAutoCreate.Load() }

// RefuseNewQueues makes the shards that this node leads refuse puts into queues that do not exist, with ErrNoQueue,
// until MakeNewQueues. Entries in flight are not held up. The setting is written to the data directory first, so that
// it holds at the next start. Both calls may be repeated after an error.
func (n *Node) RefuseNewQueues() error { return n.setNoAutoCreate(true) }

// MakeNewQueues undoes RefuseNewQueues.
func (n *Node) MakeNewQueues() error { return n.setNoAutoCreate(false) }

func (n *Node) setNoAutoCreate(refuse bool) error {
	if refuse == n.NoAutoCreate() {
		return nil
	}
	if err := n.record(func() error { return n.id.setNoAutoCreate(n.cfg.Dir, refuse) }); err != nil {
		return err
	}
	n.cfg.Logger.Info("whether puts into queues that do not exist are refused has changed", "no_auto_create", refuse)
	n.noAutoCreate.Store(refuse)
	return nil
}

// queueCountLimit keeps one namespace from using up the queues of a shard: a namespace may have at most as many queues
// as remain free for all. While fewer than half of the shard's queues exist, no namespace can reach that, and nothing
// is checked. It is soft state of a shard. Only the goroutine that proposes asks it, so each batch that it admits is
// counted before it checks the next.
type queueCountLimit struct {
	max          uint64
	noAutoCreate *atomic.Bool  // puts create no queues
	queues       atomic.Uint64 // as of the last entry applied here
	view         func(f func(m *fsm.Machine, now fsm.Time)) Witness

	mu       sync.Mutex
	inflight []*inflightEntry // may not be applied yet
}

// newQueueCountLimit returns the limit of a shard.
func newQueueCountLimit(s *shard, m *fsm.Machine) *queueCountLimit {
	_, most := m.QueueRoom()
	return &queueCountLimit{max: uint64(most), noAutoCreate: &s.node.noAutoCreate, view: s.view} //nolint:gosec // a maximum
}

// setQueues records the number of queues after an entry.
func (b *queueCountLimit) setQueues(m *fsm.Machine) {
	held, _ := m.QueueRoom()
	b.queues.Store(uint64(held)) //nolint:gosec // a count
}

// entryProposed records an entry that was handed to Raft.
func (b *queueCountLimit) entryProposed(f *inflightEntry) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inflight = append(b.inflight, f)
}

// entryDone records that an entry is applied and counted in queues, or never will be.
func (b *queueCountLimit) entryDone(f *inflightEntry) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inflight = slices.DeleteFunc(b.inflight, func(g *inflightEntry) bool { return g == f })
}

// farFromLimit reports whether a namespace would be within the limit even if it had every queue of the shard,
// including those that the entries in flight and this batch may create.
func (b *queueCountLimit) farFromLimit(batch []*proposal) bool {
	if b.noAutoCreate.Load() {
		return false
	}
	var more uint64
	for _, pr := range batch {
		more += pr.cost
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.inflight {
		more += f.cost
	}
	return 2*(b.queues.Load()+more) < b.max // read last: an entry applied meanwhile counts twice, never zero times
}

// check returns an error for each refused proposal of a batch, keyed by its position in the batch.
func (b *queueCountLimit) check(batch []*proposal) (refused map[int]error) {
	if b.noAutoCreate.Load() {
		return b.refuseCreates(batch)
	}
	b.mu.Lock()
	inflight := slices.Clone(b.inflight)
	b.mu.Unlock()
	for _, f := range inflight {
		f.readCreates()
	}
	b.view(func(m *fsm.Machine, now fsm.Time) {
		t := queueTally{machine: m, pending: map[string]bool{}, byNamespace: map[string]int{}}
		for _, f := range inflight {
			for _, queue := range f.creates {
				if !m.HasQueue(queue) && !t.pending[queue] { // not applied yet
					t.add(queue)
				}
			}
		}
		for i, pr := range batch {
			if err := t.admit(m.QueuesToCreate(pr.request, now)); err != nil {
				if refused == nil {
					refused = map[int]error{}
				}
				refused[i] = err
			}
		}
	})
	return refused
}

// refuseCreates is check while puts create no queues. Entries in flight create none either.
func (b *queueCountLimit) refuseCreates(batch []*proposal) (refused map[int]error) {
	b.view(func(m *fsm.Machine, now fsm.Time) {
		for i, pr := range batch {
			if makes := m.QueuesToCreate(pr.request, now); len(makes) > 0 {
				if refused == nil {
					refused = map[int]error{}
				}
				refused[i] = &NoQueueError{makes[0]}
			}
		}
	})
	return refused
}

// readCreates decodes which queues an entry creates if they do not exist. It reads the entry's bytes, because a caller
// that was given up may have reused its request.
func (f *inflightEntry) readCreates() {
	if f.createsRead {
		return
	}
	f.createsRead = true
	_, requests, err := fsm.DecodeEntry(f.entry)
	if err != nil {
		return // the machine will not apply it either
	}
	for i := range requests {
		for _, c := range requests[i].Commands {
			put, ok := c.(*fsm.Put)
			if ok && put.CreatesQueue() && (len(f.creates) == 0 || f.creates[len(f.creates)-1] != put.Queue) {
				f.creates = append(f.creates, put.Queue)
			}
		}
	}
}

// queueTally counts the queues that the machine will have once all entries in flight are applied.
type queueTally struct {
	machine     *fsm.Machine
	pending     map[string]bool // queues that the machine does not have yet
	byNamespace map[string]int  // the number of pending queues of each namespace
}

// add counts a queue that was not counted before.
func (t *queueTally) add(queue string) {
	t.pending[queue] = true
	t.byNamespace[fsm.NamespaceOf(queue)]++
}

// admit counts the queues that a request would create. If one of them is over the limit, it counts none and returns
// the error.
func (t *queueTally) admit(queues []string) error {
	held, most := t.machine.QueueRoom()
	for i, queue := range queues {
		if t.pending[queue] {
			queues[i] = "" // already pending, or named twice
			continue
		}
		space := fsm.NamespaceOf(queue)
		used, free := t.machine.QueuesOf(space)+t.byNamespace[space], max(0, most-held-len(t.pending))
		if used >= free {
			t.remove(queues[:i])
			return &QueuesError{Namespace: space, Queue: queue, Used: used, Free: free, Max: most}
		}
		t.add(queue)
	}
	return nil
}

// remove takes back queues that add counted, and skips empty names.
func (t *queueTally) remove(queues []string) {
	for _, queue := range queues {
		if queue != "" {
			delete(t.pending, queue)
			t.byNamespace[fsm.NamespaceOf(queue)]--
		}
	}
}
