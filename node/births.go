package node

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/belfrydb/belfry/fsm"
)

// QueuesError says that a put was refused because it would make a queue while its namespace has as many of the shard's queues as the shard has left for all.
// Nothing was logged. It is an ErrQuota.
type QueuesError struct {
	// Namespace is that of Queue, which would be made; empty stands for all queues without one together.
	Namespace, Queue string
	// Used are the queues of the namespace, Free those that the shard may make, Max those that it may hold. What is about to be logged counts.
	Used, Free, Max int
}

// Error tells the namespace, what it has, the limit, and what to do.
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
func (e *QueuesError) Unwrap() error { return ErrQuota }

// NoQueueError says that a put was refused because its queue does not exist, in a cluster where puts make none. Nothing was logged. It is an ErrNoQueue.
type NoQueueError struct{ Queue string }

// Error tells the queue, and what to do.
func (e *NoQueueError) Error() string {
	return fmt.Sprintf("there is no queue %q, and the cluster's setting no-auto-create has puts make none; create it first: belfry queue create %s", e.Queue, e.Queue)
}

// Unwrap returns what kind of refusal it is.
func (e *NoQueueError) Unwrap() error { return ErrNoQueue }

// NoAutoCreate reports whether puts into queues that do not exist are refused here: what the node was told last, false before.
func (n *Node) NoAutoCreate() bool { return n.noAutoCreate.Load() }

// RefuseNewQueues has puts into queues that do not exist refused with ErrNoQueue, in the shards that this node leads, until MakeNewQueues. What is being
// logged is not held up. The data directory knows it first, so that the next start does. Both may be called again after an error.
func (n *Node) RefuseNewQueues() error { return n.setNoAutoCreate(true) }

// MakeNewQueues takes RefuseNewQueues back.
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

// births keeps a namespace from making queues until none is left for the others: it has no more than it leaves free for all. While fewer than half of all
// that there may be are there nobody can have as many, and nothing is looked at. It is soft state of a shard, asked by the one goroutine that proposes, so
// that what it lets in is counted before it looks at the next.
type births struct {
	max    uint64
	none   *atomic.Bool  // no put makes a queue
	queues atomic.Uint64 // as of the last entry applied here
	view   func(f func(m *fsm.Machine, now fsm.Time)) Witness

	mu      sync.Mutex
	flights []*flight // whose entries may be not applied yet
}

// newBirths returns the births of a shard.
func newBirths(s *shard, m *fsm.Machine) *births {
	_, most := m.QueueRoom()
	return &births{max: uint64(most), none: &s.node.noAutoCreate, view: s.view} //nolint:gosec // a maximum
}

// follow takes over how many queues there are after an entry.
func (b *births) follow(m *fsm.Machine) {
	held, _ := m.QueueRoom()
	b.queues.Store(uint64(held)) //nolint:gosec // a count
}

// depart notes an entry that was handed to Raft.
func (b *births) depart(f *flight) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flights = append(b.flights, f)
}

// arrive notes that an entry is applied and counted in queues, or never will be.
func (b *births) arrive(f *flight) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flights = slices.DeleteFunc(b.flights, func(g *flight) bool { return g == f })
}

// roomy reports whether not even a namespace that had all queues, those that may be made by what is on its way and by a batch among them, would have too
// many.
func (b *births) roomy(batch []*proposal) bool {
	if b.none.Load() {
		return false
	}
	var more uint64
	for _, pr := range batch {
		more += pr.cost
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.flights {
		more += f.cost
	}
	return 2*(b.queues.Load()+more) < b.max // read last: what is applied meanwhile counts twice, never not at all
}

// look returns why which proposals of a batch, by their places, are to be refused.
func (b *births) look(batch []*proposal) (refused map[int]error) {
	if b.none.Load() {
		return b.lookForAny(batch)
	}
	b.mu.Lock()
	flights := slices.Clone(b.flights)
	b.mu.Unlock()
	for _, f := range flights {
		f.readMakes()
	}
	b.view(func(m *fsm.Machine, now fsm.Time) {
		t := tally{machine: m, coming: map[string]bool{}, spaces: map[string]int{}}
		for _, f := range flights {
			for _, queue := range f.makes {
				if !m.HasQueue(queue) && !t.coming[queue] { // it is not applied yet
					t.add(queue)
				}
			}
		}
		for i, pr := range batch {
			if err := t.admit(m.Births(pr.request, now)); err != nil {
				if refused == nil {
					refused = map[int]error{}
				}
				refused[i] = err
			}
		}
	})
	return refused
}

// lookForAny is look where no put makes a queue: what is on its way makes none either.
func (b *births) lookForAny(batch []*proposal) (refused map[int]error) {
	b.view(func(m *fsm.Machine, now fsm.Time) {
		for i, pr := range batch {
			if makes := m.Births(pr.request, now); len(makes) > 0 {
				if refused == nil {
					refused = map[int]error{}
				}
				refused[i] = &NoQueueError{makes[0]}
			}
		}
	})
	return refused
}

// readMakes reads which queues an entry makes if there are none of their names. Its bytes are read, since callers that were given up use their requests again.
func (f *flight) readMakes() {
	if f.read {
		return
	}
	f.read = true
	_, requests, err := fsm.DecodeEntry(f.entry)
	if err != nil {
		return // nor will the machine carry it out
	}
	for i := range requests {
		for _, c := range requests[i].Commands {
			put, ok := c.(*fsm.Put)
			if ok && put.Births() && (len(f.makes) == 0 || f.makes[len(f.makes)-1] != put.Queue) {
				f.makes = append(f.makes, put.Queue)
			}
		}
	}
}

// tally counts the queues that the machine will have once all that is on its way is applied.
type tally struct {
	machine *fsm.Machine
	coming  map[string]bool // queues that the machine does not have yet
	spaces  map[string]int  // how many of them are in which namespace
}

// add counts a queue that was not counted before.
func (t *tally) add(queue string) {
	t.coming[queue] = true
	t.spaces[fsm.NamespaceOf(queue)]++
}

// admit counts the queues that a request would make, or returns why it may not make one of them, and then counts none.
func (t *tally) admit(queues []string) error {
	held, most := t.machine.QueueRoom()
	for i, queue := range queues {
		if t.coming[queue] {
			queues[i] = "" // by another one, or named twice
			continue
		}
		space := fsm.NamespaceOf(queue)
		used, free := t.machine.QueuesOf(space)+t.spaces[space], max(0, most-held-len(t.coming))
		if used >= free {
			t.remove(queues[:i])
			return &QueuesError{Namespace: space, Queue: queue, Used: used, Free: free, Max: most}
		}
		t.add(queue)
	}
	return nil
}

// remove counts queues no more; those without a name never were.
func (t *tally) remove(queues []string) {
	for _, queue := range queues {
		if queue != "" {
			delete(t.coming, queue)
			t.spaces[fsm.NamespaceOf(queue)]--
		}
	}
}
