package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
)

// memoryNode is a node without Raft and disk: real machines behind the interface that the handlers
// use.
type memoryNode struct {
	shards []*memoryShard
	now    func() time.Time
	format fsm.Format // of its entries; 0 means the first
	// fail, if set, is asked before anything is applied, and may end a call with an error.
	fail func(shard uint32) error

	locks node.RequestMutex

	mu     sync.Mutex
	status node.Status
	parked int
	// queueStats are what Stats tells of queues, by shard.
	queueStats map[uint32]map[string]node.QueueStats
}

// memoryShard is one machine. parked has the channels of those who wait, by their queues; they are
// closed to wake them.
type memoryShard struct {
	mu      sync.RWMutex
	machine *machine.Machine
	index   uint64
	parked  map[string][]chan struct{}
}

// wake wakes those who wait for a queue that a put names, or everybody after anything else. s.mu is
// held.
func (s *memoryShard) wake(commands []fsm.Command) {
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

// newMemoryNode returns a node of n shards.
func newMemoryNode(n int) *memoryNode {
	m := &memoryNode{now: time.Now}
	for range n {
		m.shards = append(m.shards, &memoryShard{machine: machine.New(fsm.Config{}), parked: map[string][]chan struct{}{}})
	}
	m.status = node.Status{ClusterID: "c1", Name: "n1", ServerID: "n1.00000000000000ff", DiskFreeBytes: 1 << 40}
	for i := range n {
		m.status.Shards = append(m.status.Shards, node.GroupStatus{
			Group: fmt.Sprintf("shard-%d", i), Shard: uint32(i), Role: node.Leader, Serving: true, Leader: m.status.ServerID,
			Voters: []string{m.status.ServerID}, Term: 2, Jobs: 10 + i,
		})
	}
	return m
}

func (m *memoryNode) ShardCount() int { return len(m.shards) }

func (m *memoryNode) Do(_ context.Context, shard uint32, req *fsm.Request) (node.Reply, error) {
	if m.fail != nil {
		if err := m.fail(shard); err != nil {
			return node.Reply{}, err
		}
	}
	s := m.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index++
	entry := codec.AppendEntryIn(nil, max(fsm.FirstFormat, m.format), fsm.Time(m.now().UnixNano()),
		[][]byte{codec.AppendRequest(nil, req)})
	results, err := s.machine.Apply(s.index, entry)
	if err != nil {
		return node.Reply{}, err
	}
	s.wake(req.Commands)
	w := node.Witness{Shard: shard, Term: 2, Index: s.index, Time: s.machine.Clock()}
	return node.Reply{Witness: w, Results: results}, nil
}

func (m *memoryNode) Reserve(ctx context.Context, shard uint32, req *fsm.Request, wait node.Wait) (node.Reply, error) {
	reply, err := m.reserve(ctx, shard, req, wait)
	if err != nil {
		return reply, err
	}
	return m.withJobs(shard, reply), nil
}

func (m *memoryNode) reserve(ctx context.Context, shard uint32, req *fsm.Request, wait node.Wait) (node.Reply, error) {
	until := m.now().Add(wait.For)
	reply, err := m.Do(ctx, shard, req)
	if err != nil || granted(reply) || wait.For <= 0 {
		return reply, err
	}
	m.park(1)
	defer m.park(-1)
	for m.now().Before(until) {
		changed := make(chan struct{})
		ready, next := m.available(shard, req.Commands[0].(*fsm.Reserve).Queues, changed)
		if ready {
			if reply, err = m.Do(ctx, shard, req); err != nil || granted(reply) {
				return reply, err
			}
			continue
		}
		if next.IsZero() || next.After(until) {
			next = until
		}
		timer := time.NewTimer(next.Sub(m.now()))
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

// available tells whether a Reserve could get something, and when that may change by time. When it
// may change otherwise the channel is closed.
func (m *memoryNode) available(shard uint32, queues []string, changed chan struct{}) (ready bool, next time.Time) {
	s := m.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := max(s.machine.Clock(), fsm.Time(m.now().UnixNano()))
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

func (m *memoryNode) park(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.parked += n
}

func (m *memoryNode) parkedPolls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.parked
}

func (m *memoryNode) Query(_ context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	if m.fail != nil {
		if err := m.fail(shard); err != nil {
			return fsm.Reading{}, node.Witness{}, err
		}
	}
	return m.Peek(shard, q)
}

func (m *memoryNode) Peek(shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	s := m.shards[shard]
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.machine.Answer(q, fsm.Time(m.now().UnixNano()))
	return r, node.Witness{Shard: shard, Term: 2, Index: s.index, Time: r.Now}, nil
}

// Offers says that every shard may have a job, so that a poll asks all of them.
func (m *memoryNode) Offers(context.Context, uint32, []string) (bool, error) { return true, nil }

func (m *memoryNode) LockRequest(ctx context.Context, _ uint32, name string,
	wait time.Duration) (<-chan struct{}, func(), error) {
	return m.locks.Lock(ctx, name, wait)
}

// lockedRequests returns the number of requests with a lock or a waiting attempt.
func (m *memoryNode) lockedRequests() int { return m.locks.Len() }

func (m *memoryNode) Stale(_ context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	return m.Peek(shard, q)
}

func (m *memoryNode) Export(context.Context, uint32, func(*fsm.QueueRecord) bool, func(fsm.BackupRecord) error) error {
	return errors.New("a memoryNode has no backup")
}

func (m *memoryNode) Serves(uint32) bool { return false }

func (m *memoryNode) Unreached(context.Context) map[string]string { return nil }

func (m *memoryNode) ClientAddr(uint32) string { return "" }

// withJobs adds the jobs that a reply hands out.
func (m *memoryNode) withJobs(shard uint32, reply node.Reply) node.Reply {
	r, _, err := m.Peek(shard, &fsm.HeldQuery{Grants: reply.Results[0].Grants})
	if err != nil {
		panic(err) // it has no way to fail
	}
	reply.Jobs = r.Jobs
	return reply
}

func (m *memoryNode) Status() node.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

func (m *memoryNode) Stats() node.Stats {
	var out node.Stats
	for i := range m.shards {
		h := node.Histogram{Bounds: []float64{1}, Counts: []uint64{1, 0}, Sum: 1, Count: 1}
		out.Shards = append(out.Shards, node.ShardStats{
			Shard: uint32(i), Queues: maps.Clone(m.queueStats[uint32(i)]), EntryCommands: h, EntryBytes: h, ProposeSeconds: h,
			CommitSeconds: h, ApplySeconds: h, LogSyncSeconds: h, ServerLateSeconds: h, WorkerLateSeconds: h,
		})
	}
	return out
}

// newTestServer is NewServer that adds the cluster of one node if there is none, and connects a
// memoryCatalog with the node.
func newTestServer(cfg Config) (*Server, error) {
	if cfg.Cluster == nil {
		cfg.Cluster = &singleNode{node: cfg.Node, address: cfg.Address, version: cfg.Version}
	}
	if c, ok := cfg.Catalog.(interface{ setNode(n backend.Node) }); ok {
		c.setNode(cfg.Node)
	}
	return NewServer(cfg)
}

// served is a server on loopback over a memoryNode.
type served struct {
	t       *testing.T
	server  *Server
	node    *memoryNode
	catalog *memoryCatalog
	url     string
	addr    string
	log     *safeBuffer
}

// newServed makes a server; change may adjust its configuration.
func newServed(t *testing.T, change ...func(*Config)) *served {
	t.Helper()
	s := &served{t: t, node: newMemoryNode(3), catalog: newMemoryCatalog(), log: &safeBuffer{}}
	cfg := Config{
		Node: s.node, Catalog: s.catalog, Logger: slog.New(slog.NewTextHandler(s.log, nil)),
		Registry: prometheus.NewRegistry(), Name: "n1", Address: "127.0.0.1:7400", Version: "v0.0.0-test",
	}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if s.server, err = newTestServer(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// serve starts a server on loopback.
func serve(t *testing.T, change ...func(*Config)) *served {
	t.Helper()
	s := newServed(t, change...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.on(l)
	s.addr = l.Addr().String()
	s.url = "http://" + s.addr
	return s
}

// on serves on a listener until the test ends.
func (s *served) on(l net.Listener) {
	t := s.t
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(l) }()
	t.Cleanup(func() {
		if err := s.server.http.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// answered is an HTTP answer that was read to its end.
type answered struct {
	status int
	header http.Header
	body   string
}

// send makes one request with the default client: HTTP/1.1, and no content type but what is given.
func (s *served) send(method, path, body string, headers ...string) answered {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	return s.do(http.DefaultClient, req)
}

// do sends a request with a client.
func (s *served) do(client *http.Client, req *http.Request) answered {
	s.t.Helper()
	res, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answered{status: res.StatusCode, header: res.Header, body: string(body)}
}

// post posts to a path as `curl -d` does.
func (s *served) post(path, body string) answered {
	s.t.Helper()
	return s.send(http.MethodPost, path, body, "Content-Type", "application/x-www-form-urlencoded")
}

// h2c returns a client that speaks HTTP/2 without TLS, and nothing else.
func h2c(t *testing.T) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// safeBuffer is a buffer for several goroutines.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func nodeUnknown() error { return fmt.Errorf("shard 1: %w", node.ErrUnknownOutcome) }

func nodeNoLeader() error { return fmt.Errorf("shard 1: %w", node.ErrNoLeader) }

// leaseOfNothing names a reservation that never was.
func leaseOfNothing() fsm.Ref { return fsm.Ref{Queue: "nothing", Serial: 1, Fence: 1} }
