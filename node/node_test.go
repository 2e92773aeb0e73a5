package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/propose"
)

// testConfig returns a configuration of a small node for t.
func testConfig(t testing.TB, dir string) Config {
	t.Helper()
	return Config{
		Dir: dir, Shards: 2, Logger: testLogger(t),
		Fatal: func(err error) { t.Errorf("the node gave up: %v", err) },
	}
}

// testLogger returns a logger that writes to the test's output when the test is verbose.
func testLogger(t testing.TB) *slog.Logger {
	t.Helper()
	if !testing.Verbose() || os.Getenv("BELFRY_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// openNode opens a node that is closed with the test.
func openNode(t testing.TB, cfg Config) *Node {
	t.Helper()
	n, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeNode(t, n) })
	return n
}

// closeNode closes a node; it may be closed already.
func closeNode(t testing.TB, n *Node) {
	t.Helper()
	select {
	case <-n.closed:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		t.Errorf("closing the node: %v", err)
	}
}

// crashImage copies a data directory as a kill -9 would leave it. Nothing may be under way in the
// node.
func crashImage(t testing.TB, dir string) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := os.CopyFS(image, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return image
}

// queueOf returns what shard 0 of a node holds of a queue.
func queueOf(t testing.TB, n *Node, name string) fsm.Queue {
	t.Helper()
	r, _, err := n.Peek(0, &fsm.QueueQuery{Queue: name})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Queues) == 0 {
		return fsm.Queue{}
	}
	return r.Queues[0]
}

// do sends commands to a shard and fails the test unless they were applied.
func do(t testing.TB, n *Node, shard uint32, commands ...fsm.Command) propose.Reply {
	t.Helper()
	reply, err := n.Do(t.Context(), shard, &fsm.Request{Commands: commands})
	if err != nil {
		t.Fatalf("shard %d: %v", shard, err)
	}
	return reply
}

func put(queue, body string, delay time.Duration) *fsm.Put {
	return &fsm.Put{Queue: queue, Partitions: 1, Given: fsm.GivenDelay, Delay: delay, Body: []byte(body)}
}

// reserve asks for one job and waits up to wait.
func reserve(t testing.TB, n *Node, shard uint32, queue string, wait time.Duration) []fsm.Grant {
	t.Helper()
	req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{queue}, Max: 1, TTR: time.Minute}}}
	reply, err := n.Reserve(t.Context(), shard, req, Wait{For: wait})
	if err != nil {
		t.Fatalf("reserving: %v", err)
	}
	return reply.Results[0].Grants
}

func TestNodeServesTheLifeOfAJob(t *testing.T) {
	for _, store := range []string{"wal", "bolt"} {
		t.Run(store, func(t *testing.T) { serveTheLifeOfAJob(t, store) })
	}
}

func serveTheLifeOfAJob(t *testing.T, store string) {
	cfg := testConfig(t, t.TempDir())
	cfg.Store = store
	n := openNode(t, cfg)
	reply := do(t, n, 1, put("orders", "close order 42", 0))
	if !reply.Results[0].Created || reply.Witness.Shard != 1 || reply.Witness.Index == 0 || reply.Witness.Term == 0 ||
		reply.Witness.Time == 0 {
		t.Fatalf("put was answered %+v", reply)
	}
	grants := reserve(t, n, 1, "orders", 0)
	if len(grants) != 1 {
		t.Fatalf("reserved %d jobs, want 1", len(grants))
	}
	g := grants[0]
	if r, _, err := n.Peek(1, &fsm.HeldQuery{Grants: grants[:1]}); err != nil || len(r.Jobs) != 1 ||
		string(r.Jobs[0].Body) != "close order 42" {
		t.Errorf("the granted job is read as %+v, %v", r.Jobs, err)
	}
	if reply := do(t, n, 1, &fsm.Ack{Ref: refOf(g)}); reply.Results[0].Code != fsm.OK {
		t.Errorf("ack was answered %v", reply.Results[0].Code)
	}
	if grants := reserve(t, n, 1, "orders", 0); len(grants) != 0 {
		t.Errorf("an acked job was granted again: %+v", grants)
	}
}

func TestNodeFindsEverythingAgainAfterACrash(t *testing.T) {
	dir := t.TempDir()
	n := openNode(t, testConfig(t, dir))
	for range 10 {
		do(t, n, 0, put("orders", "x", 0))
	}
	before := reserve(t, n, 0, "orders", 0)[0]
	image := crashImage(t, dir)

	again := openNode(t, testConfig(t, image))
	var fences [2]uint64
	for i, n := range []*Node{n, again} {
		r, _, err := n.Query(t.Context(), 0, &fsm.ListQuery{Queue: before.Queue, State: fsm.Reserved, Max: 1})
		if err != nil || len(r.Jobs) != 1 || r.Jobs[0].Serial != before.Serial || r.Jobs[0].Until < before.Until {
			t.Fatalf("node %d: the lease until %d is %+v, %v", i, before.Until, r.Jobs, err)
		}
		fences[i] = r.Jobs[0].Fence
	}
	if fences[0] != fences[1] {
		t.Errorf("the fence changed from %d to %d", fences[0], fences[1])
	}
	if after := reserve(t, again, 0, "orders", 0)[0]; after.Fence <= before.Fence {
		t.Errorf("fence %d after the crash is not above %d", after.Fence, before.Fence)
	}
}
