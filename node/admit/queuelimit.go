package admit

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node/outcome"
)

// QueuesError refuses a put that would create a queue: its namespace already has as many of the
// shard's queues as the shard has left for all namespaces. Nothing was logged. It is an ErrQuota.
type QueuesError struct {
	// Namespace is that of Queue, the queue that would be created. Empty stands for all queues without
	// a namespace.
	Namespace, Queue string
	// Used is how many queues the namespace has, Free how many the shard may still create, Max how
	// many it may hold. Queues that entries in flight will create count.
	Used, Free, Max int
}

// Error names the namespace, its number of queues and the limit, and says what to do.
func (e *QueuesError) Error() string {
	if e.Free == 0 {
		return fmt.Sprintf("queue %q is not made: the shard holds as many queues as it may, %d; delete some, or ask an "+
			"admin to", e.Queue, e.Max)
	}
	whose := fmt.Sprintf("namespace %q has %d queues", e.Namespace, e.Used)
	if e.Namespace == "" {
		whose = fmt.Sprintf("queues without a namespace, which count as one, are %d", e.Used)
	}
	return fmt.Sprintf("queue %q is not made: %s in this shard, and no namespace may have more than are left there for "+
		"all, %d of %d; delete some, or ask an admin to",
		e.Queue, whose, e.Free, e.Max)
}

// Unwrap returns what kind of refusal it is.
func (e *QueuesError) Unwrap() error { return outcome.ErrQuota }

// NoQueueError refuses a put into a queue that does not exist, in a cluster where puts create no
// queues. Nothing was logged. It is an ErrNoQueue.
type NoQueueError struct{ Queue string }

// Error names the queue and says what to do.
func (e *NoQueueError) Error() string {
	return fmt.Sprintf("there is no queue %q, and the cluster's setting no-auto-create has puts make none; create it "+
		"first: belfry queue create %s", e.Queue, e.Queue)
}

// Unwrap returns what kind of refusal it is.
func (e *NoQueueError) Unwrap() error { return outcome.ErrNoQueue }

// QueueLimit keeps one namespace from using up the queues of a shard: a namespace may have at most
// as many queues as remain free for all. While fewer than half of the shard's queues exist, no
// namespace can reach that, and nothing is checked. It is soft state of a shard. Only the goroutine
// that proposes calls Near, Check and Proposed, so each batch that it admits is counted before it
// checks the next.
type QueueLimit struct {
	max          uint64
	noAutoCreate *atomic.Bool  // puts create no queues
	queues       atomic.Uint64 // as of the last entry applied here
	view         View

	mu       sync.Mutex
	inflight []*creatingEntry // may not be applied yet
}

// creatingEntry is an entry in flight.
type creatingEntry struct {
	entry   []byte
	cost    uint64
	read    bool     // creates is set
	creates []string // the queues that the entry creates if they do not exist
}

// NewQueueLimit returns the limit of a shard whose machine is m. noAutoCreate is set while puts
// create no queues.
func NewQueueLimit(m *machine.Machine, noAutoCreate *atomic.Bool, view View) *QueueLimit {
	_, most := m.QueueRoom()
	return &QueueLimit{max: uint64(most), noAutoCreate: noAutoCreate, view: view} //nolint:gosec // a maximum
}

// SetQueues records the number of queues after an entry.
func (b *QueueLimit) SetQueues(m *machine.Machine) {
	held, _ := m.QueueRoom()
	b.queues.Store(uint64(held)) //nolint:gosec // a count
}

// Proposed counts an entry that was handed to Raft, until done is called: the entry is applied and
// counted among the queues, or never will be.
func (b *QueueLimit) Proposed(entry []byte, cost uint64) (done func()) {
	e := &creatingEntry{entry: entry, cost: cost}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inflight = append(b.inflight, e)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.inflight = slices.DeleteFunc(b.inflight, func(other *creatingEntry) bool { return other == e })
	}
}

// Near reports whether requests of so much cost must be checked. If not, a namespace would be
// within the limit even if it had every queue of the shard, including those that the entries in
// flight and these requests may create.
func (b *QueueLimit) Near(cost uint64) bool {
	if b.noAutoCreate.Load() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.inflight {
		cost += e.cost
	}
	return 2*(b.queues.Load()+cost) >= b.max // read last: an entry applied meanwhile counts twice, never zero times
}

// Check returns an error for each refused request of a batch, keyed by its position in the batch.
func (b *QueueLimit) Check(batch []*fsm.Request) (refused map[int]error) {
	if b.noAutoCreate.Load() {
		return b.refuseCreates(batch)
	}
	b.mu.Lock()
	inflight := slices.Clone(b.inflight)
	b.mu.Unlock()
	for _, e := range inflight {
		e.readCreates()
	}
	b.view(func(m *machine.Machine, now fsm.Time) {
		t := queueTally{machine: m, pending: map[string]bool{}, byNamespace: map[string]int{}}
		for _, e := range inflight {
			for _, queue := range e.creates {
				if !m.HasQueue(queue) && !t.pending[queue] { // not applied yet
					t.add(queue)
				}
			}
		}
		for i, req := range batch {
			if err := t.admit(m.QueuesToCreate(req, now)); err != nil {
				if refused == nil {
					refused = map[int]error{}
				}
				refused[i] = err
			}
		}
	})
	return refused
}

// refuseCreates is Check while puts create no queues. Entries in flight create none either.
func (b *QueueLimit) refuseCreates(batch []*fsm.Request) (refused map[int]error) {
	b.view(func(m *machine.Machine, now fsm.Time) {
		for i, req := range batch {
			if makes := m.QueuesToCreate(req, now); len(makes) > 0 {
				if refused == nil {
					refused = map[int]error{}
				}
				refused[i] = &NoQueueError{makes[0]}
			}
		}
	})
	return refused
}

// readCreates decodes which queues an entry creates if they do not exist. It reads the entry's
// bytes, because a caller that was given up may have reused its request.
func (f *creatingEntry) readCreates() {
	if f.read {
		return
	}
	f.read = true
	_, requests, err := codec.DecodeEntry(f.entry)
	if err != nil {
		return // the machine will not apply it either
	}
	for i := range requests {
		for _, c := range requests[i].Commands {
			queue := fsm.CreatedBy(c)
			if queue != "" && (len(f.creates) == 0 || f.creates[len(f.creates)-1] != queue) {
				f.creates = append(f.creates, queue)
			}
		}
	}
}

// queueTally counts the queues that the machine will have once all entries in flight are applied.
type queueTally struct {
	machine     *machine.Machine
	pending     map[string]bool // queues that the machine does not have yet
	byNamespace map[string]int  // the number of pending queues of each namespace
}

// add counts a queue that was not counted before.
func (t *queueTally) add(queue string) {
	t.pending[queue] = true
	t.byNamespace[fsm.NamespaceOf(queue)]++
}

// admit counts the queues that a request would create. If one of them is over the limit, it counts
// none and returns the error.
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
