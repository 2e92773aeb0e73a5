package gossip_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/cluster/gossip/gossiptest"
)

// world is a network in a bubble and the nodes on it.
type world struct {
	t   *testing.T
	net *gossiptest.Network
	log lockedBuffer
}

// lockedBuffer collects what all nodes log.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.buf.String(), text)
}

// inWorld runs f in a bubble.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(gossiptest.Settle) // after all nodes have ended
		f(&world{t: t, net: gossiptest.NewNetwork()})
	})
}

// host returns the address of host number n.
func host(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }

func at(n int) string { return netip.AddrPortFrom(host(n), 7402).String() }

// config returns that of node number n of cluster "one", which joins the hosts given.
func (w *world) config(n int, join ...int) gossip.Config {
	name := fmt.Sprintf("n%d", n)
	cfg := gossip.Config{
		Self: gossip.Info{
			Cluster: "one", Name: name, ServerID: name + ".a", PeerAddr: fmt.Sprintf("10.0.0.%d:7401", n),
			ClientAddr: fmt.Sprintf("10.0.0.%d:7400", n), Zone: "z1", Shards: 6, Format: 1,
		},
		Listen: at(n), Insecure: true, Network: w.net,
		Logger: slog.New(slog.NewTextHandler(io.MultiWriter(&w.log, w.t.Output()), nil)),
	}
	for _, j := range join {
		cfg.Join = append(cfg.Join, at(j))
	}
	return cfg
}

// run starts a node that ends with the test.
func (w *world) run(cfg gossip.Config) *gossip.Gossip {
	w.t.Helper()
	g, err := gossip.Start(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := g.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return g
}

// runAll starts the nodes numbered 1 to count; all join node 1, itself included.
func (w *world) runAll(count int) []*gossip.Gossip {
	w.t.Helper()
	nodes := make([]*gossip.Gossip, 0, count)
	for n := 1; n <= count; n++ {
		nodes = append(nodes, w.run(w.config(n, 1)))
	}
	return nodes
}

// await waits until cond holds, at most for limit, and returns how long that took.
func (w *world) await(what string, limit time.Duration, cond func() bool) time.Duration {
	w.t.Helper()
	begin := time.Now()
	for !cond() {
		if time.Since(begin) > limit {
			w.t.Fatalf("after %v: not yet %s", limit, what)
		}
		gossiptest.Pass(100 * time.Millisecond)
	}
	return time.Since(begin)
}

// alive returns the server ids that a node sees alive.
func alive(g *gossip.Gossip) []string {
	var ids []string
	for _, m := range g.Members() {
		if m.Alive {
			ids = append(ids, m.ServerID)
		}
	}
	return ids
}

// sees returns a condition: each of the nodes sees all the others as alive, and no other node.
func sees(nodes ...*gossip.Gossip) func() bool {
	return func() bool {
		for _, g := range nodes {
			if len(alive(g)) != len(nodes)-1 {
				return false
			}
		}
		return true
	}
}

// member returns what a node knows of another.
func member(g *gossip.Gossip, serverID string) gossip.Member {
	all := g.Members()
	i := slices.IndexFunc(all, func(m gossip.Member) bool { return m.ServerID == serverID })
	if i < 0 {
		return gossip.Member{}
	}
	return all[i]
}

// problems returns the problems of one kind that a node noticed.
func problems(g *gossip.Gossip, kind gossip.ProblemKind) []gossip.Problem {
	return slices.DeleteFunc(g.Problems(), func(p gossip.Problem) bool { return p.Kind != kind })
}

// keyFile writes a key file whose keys are filled with the bytes given.
func keyFile(t *testing.T, path string, keys ...byte) string {
	t.Helper()
	var text bytes.Buffer
	for _, key := range keys {
		fmt.Fprintln(&text, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{key}, 32)))
	}
	if path == "" {
		path = filepath.Join(t.TempDir(), "gossip.keys")
	}
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
