package backendtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node"
)

// Node is a backend.Node without Raft and disk. Each shard is a real machine. It has no backup, and
// its leaders have no address. The exported fields must not change while another goroutine uses it.
type Node struct {
	// Now is the wall clock; time.Now by default.
	Now func() time.Time
	// Fail, if it is set, is called before each request and each query. Its error ends the call.
	Fail func(shard uint32) error
	// Format is the format of the entries; 0 means the first.
	Format fsm.Format
	// QueueStats has the measurements of queues that Stats returns, by shard.
	QueueStats map[uint32]map[string]node.QueueStats

	shards []*replica
	locks  node.RequestMutex

	mu     sync.Mutex
	status node.Status
	parked int
}

// replica is a machine. parked has a channel for each parked call, by the queues of the call. A
// closed channel wakes the call.
type replica struct {
	mu      sync.RWMutex
	machine *machine.Machine
	index   uint64
	parked  map[string][]chan struct{}
}

// wake wakes the calls that wait for the queue of a put. After any other command but a Reserve, it
// wakes all calls. s.mu is held.
func (s *replica) wake(commands []fsm.Command) {
	for _, c := range commands {
		put, ok := c.(*fsm.Put)
		for queue, waiting := range s.parked {
			if ok && !strings.Contains(" "+queue+" ", " "+put.Queue+" ") || c.Kind() == fsm.KindReserve {
				continue
			}
			for _, w := range waiting {
				close(w)
			}
			delete(s.parked, queue)
		}
	}
}

// NewNode returns a node that leads n shards.
func NewNode(n int) *Node {
	m := &Node{Now: time.Now}
	for range n {
		m.shards = append(m.shards, &replica{machine: machine.New(fsm.Config{}), parked: map[string][]chan struct{}{}})
	}
	m.status = node.Status{ClusterID: "c1", Name: "n1", ServerID: "n1.00000000000000ff", DiskFreeBytes: 1 << 40}
	for i := range n {
		m.status.Shards = append(m.status.Shards, node.GroupStatus{
			RaftStatus: node.RaftStatus{Group: fmt.Sprintf("shard-%d", i), Role: node.Leader, Serving: true,
				Leader: m.status.ServerID, Voters: []string{m.status.ServerID}, Term: 2},
			Shard: uint32(i), Jobs: 10 + i,
		})
	}
	return m
}

// ShardCount implements backend.Node.
func (m *Node) ShardCount() int { return len(m.shards) }

// Start implements backend.Node: it leaves every call to Do, which tests replace.
func (m *Node) Start(context.Context, uint32,
	*fsm.Request) (finish func() (reply node.Reply, again bool, err error), ok bool) {
	return nil, false
}

// Do implements backend.Node.
func (m *Node) Do(_ context.Context, shard uint32, req *fsm.Request) (node.Reply, error) {
	if m.Fail != nil {
		if err := m.Fail(shard); err != nil {
			return node.Reply{}, err
		}
	}
	s := m.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	format := max(fsm.FirstFormat, m.Format)
	if err := node.CheckFormat(req, format); err != nil {
		return node.Reply{}, err
	}
	s.index++
	encoded := [][]byte{codec.AppendRequestIn(nil, format, req)}
	entry := codec.AppendEntryIn(nil, format, fsm.Time(m.Now().UnixNano()), encoded)
	results, err := s.machine.Apply(s.index, entry)
	if err != nil {
		return node.Reply{}, err
	}
	s.wake(req.Commands)
	w := node.Witness{Shard: shard, Term: 2, Index: s.index, Time: s.machine.Clock()}
	return node.Reply{Witness: w, Results: results}, nil
}

// Reserve implements backend.Node.
func (m *Node) Reserve(ctx context.Context, shard uint32, req *fsm.Request, wait node.Wait) (node.Reply, error) {
	reply, err := m.reserve(ctx, shard, req, wait)
	if err != nil {
		return reply, err
	}
	return m.WithJobs(shard, reply), nil
}

// reserve is Reserve without the jobs.
func (m *Node) reserve(ctx context.Context, shard uint32, req *fsm.Request, wait node.Wait) (node.Reply, error) {
	until := m.Now().Add(wait.For)
	reply, err := m.Do(ctx, shard, req)
	if err != nil || reply.Granted() || wait.For <= 0 {
		return reply, err
	}
	m.park(1)
	defer m.park(-1)
	for m.Now().Before(until) {
		changed := make(chan struct{})
		ready, next := m.Available(shard, req.Commands[0].(*fsm.Reserve).Queues, changed)
		if ready {
			if reply, err = m.Do(ctx, shard, req); err != nil || reply.Granted() {
				return reply, err
			}
			continue
		}
		if next.IsZero() || next.After(until) {
			next = until
		}
		timer := time.NewTimer(next.Sub(m.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return node.Reply{}, fmt.Errorf("%w: %w", node.ErrCanceled, context.Cause(ctx))
		case <-wait.Stop:
			timer.Stop()
			return reply, nil
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
	return reply, nil
}

// Available reports whether a Reserve would be granted a job. If not, next is the time of the next
// due job, and changed is closed when a command may have made a job available.
func (m *Node) Available(shard uint32, queues []string, changed chan struct{}) (ready bool, next time.Time) {
	s := m.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := max(s.machine.Clock(), fsm.Time(m.Now().UnixNano()))
	for _, queue := range queues {
		n, at := s.machine.Available(queue, now)
		ready = ready || n > 0
		if due := time.Unix(0, int64(at)); at != 0 && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	if !ready {
		s.parked[strings.Join(queues, " ")] = append(s.parked[strings.Join(queues, " ")], changed)
	}
	return ready, next
}

// park adds n parked calls.
func (m *Node) park(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.parked += n
}

// ParkedPolls returns the number of Reserves that wait.
func (m *Node) ParkedPolls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.parked
}

// Query implements backend.Node.
func (m *Node) Query(_ context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	if m.Fail != nil {
		if err := m.Fail(shard); err != nil {
			return fsm.Reading{}, node.Witness{}, err
		}
	}
	r, w, err := m.Peek(shard, q)
	for i := range r.Queues {
		r.Queues[i].Parked = new(m.shards[shard].parkedFor(r.Queues[i].Name))
	}
	return r, w, err
}

// parkedFor returns the number of parked calls for a queue.
func (s *replica) parkedFor(queue string) (calls uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for queues, waiting := range s.parked {
		if slices.Contains(strings.Fields(queues), queue) {
			calls += uint64(len(waiting))
		}
	}
	return calls
}

// Peek implements backend.Node.
func (m *Node) Peek(shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	s := m.shards[shard]
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.machine.Answer(q, fsm.Time(m.Now().UnixNano()))
	return r, node.Witness{Shard: shard, Term: 2, Index: s.index, Time: r.Now}, nil
}

// Offers implements backend.Node. It reports that every shard may have a job, so that a poll asks
// all of them.
func (m *Node) Offers(context.Context, uint32, []string) (bool, error) { return true, nil }

// LockRequest implements backend.Node. One mutex serves all shards.
func (m *Node) LockRequest(ctx context.Context, _ uint32, name string,
	wait time.Duration) (<-chan struct{}, func(), error) {
	return m.locks.Lock(ctx, name, wait)
}

// LockedRequests returns the number of requests with a lock or a waiting attempt.
func (m *Node) LockedRequests() int { return m.locks.Len() }

// Stale implements backend.Node.
func (m *Node) Stale(_ context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	return m.Peek(shard, q)
}

// Export implements backend.Node. It fails.
func (m *Node) Export(context.Context, uint32, func(*fsm.QueueRecord) bool, func(fsm.BackupRecord) error) error {
	return errors.New("backendtest: a Node has no backup")
}

// Serves implements backend.Node. Calls for the shards count as forwarded.
func (m *Node) Serves(uint32) bool { return false }

// Unreached implements backend.Node. All calls are served.
func (m *Node) Unreached(context.Context) map[string]string { return nil }

// ClientAddr implements backend.Node. It knows no address.
func (m *Node) ClientAddr(uint32) string { return "" }

// WithJobs adds the jobs to a reply that grants them.
func (m *Node) WithJobs(shard uint32, reply node.Reply) node.Reply {
	r, _, err := m.Peek(shard, &fsm.HeldQuery{Grants: reply.Results[0].Grants})
	if err != nil {
		panic(err) // it has no way to fail
	}
	reply.Jobs = r.Jobs
	return reply
}

// Status implements backend.Node.
func (m *Node) Status() node.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

// ChangeStatus changes what Status returns.
func (m *Node) ChangeStatus(change func(*node.Status)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.status)
}

// Stats implements backend.Node.
func (m *Node) Stats() node.Stats {
	var out node.Stats
	for i := range m.shards {
		h := node.Histogram{Bounds: []float64{1}, Counts: []uint64{1, 0}, Sum: 1, Count: 1}
		out.Shards = append(out.Shards, node.ShardStats{
			Shard: uint32(i), Queues: maps.Clone(m.QueueStats[uint32(i)]), EntryCommands: h, EntryBytes: h, ProposeSeconds: h,
			CommitSeconds: h, ApplySeconds: h, LogSyncSeconds: h, ServerLateSeconds: h, WorkerLateSeconds: h,
		})
	}
	return out
}

// Machine returns the machine of a shard. The caller must not use it while calls are in flight.
func (m *Node) Machine(shard uint32) *machine.Machine { return m.shards[shard].machine }

// Holders returns the number of shards that hold a queue.
func (m *Node) Holders(queue string) (n int) {
	for _, s := range m.shards {
		s.mu.RLock()
		if _, ok := s.machine.Queue(queue, s.machine.Clock()); ok {
			n++
		}
		s.mu.RUnlock()
	}
	return n
}

// AddQueues puts as many jobs into each queue, without a client. The jobs are due in an hour. Each
// queue has a time of its own.
func (m *Node) AddQueues(t testing.TB, jobs int, queues ...string) {
	t.Helper()
	for i, queue := range queues {
		s := m.shards[i%len(m.shards)]
		var requests [][]byte
		for range jobs {
			requests = append(requests, codec.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{&fsm.Put{
				Queue: queue, Partitions: 1, Given: fsm.GivenDelay, Body: []byte("body"), Delay: time.Hour,
			}}}))
		}
		s.index++
		if _, err := s.machine.Apply(s.index,
			codec.AppendEntry(nil, s.machine.Clock()+fsm.Time(time.Second), requests)); err != nil {
			t.Fatal(err)
		}
	}
}

// QueueIn returns the name of a queue whose home is a shard. The name begins with stem.
func (m *Node) QueueIn(shard uint32, stem string) string {
	for i := 0; ; i++ {
		if name := stem + strconv.Itoa(i); node.ShardOf(name, 0, len(m.shards)) == shard {
			return name
		}
	}
}

// InstantNode is a Node that answers every request at once, and applies none: what is left is the
// cost of the edge.
type InstantNode struct {
	*Node
	// Grant returns the jobs that a Reserve of a queue is granted. It is required for Reserve.
	Grant func(queue string) []fsm.Job
}

// Reserve implements backend.Node.
func (n InstantNode) Reserve(_ context.Context, shard uint32, req *fsm.Request, _ node.Wait) (node.Reply, error) {
	reserve, ok := req.Commands[0].(*fsm.Reserve)
	if !ok {
		return node.Reply{}, fmt.Errorf("backendtest: not a Reserve: %T", req.Commands[0])
	}
	queue := reserve.Queues[0]
	return node.Reply{
		Witness: node.Witness{Shard: shard, Term: 1, Index: 1, Time: 1},
		Results: []fsm.Result{{Grants: []fsm.Grant{{Queue: queue, Attempt: 1}}}}, Jobs: n.Grant(queue),
	}, nil
}

// Do implements backend.Node.
func (InstantNode) Do(_ context.Context, shard uint32, req *fsm.Request) (node.Reply, error) {
	results := make([]fsm.Result, len(req.Commands))
	for i := range results {
		results[i] = fsm.Result{State: fsm.Ready, Created: true, Serial: 1, Due: 1}
	}
	return node.Reply{Witness: node.Witness{Shard: shard, Term: 1, Index: 1, Time: 1}, Results: results}, nil
}
