package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"

	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestServeMirror has three nodes bridge a queue. One does; when it is killed another one goes on.
func TestServeMirror(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	program, bridge := launcher, []string{"--mirror-redis", r.URL(), "--mirror-queue", "orders=shop/orders"}
	n1 := serve(t, program, t.TempDir(), append([]string{"--node-id", "n1", "--shards", "1"}, bridge...)...)
	n2 := serve(t, program, t.TempDir(), append([]string{"--node-id", "n2", "--join", n1.gossip}, bridge...)...)
	n3 := serve(t, program, t.TempDir(), append([]string{"--node-id", "n3", "--join", n1.gossip}, bridge...)...)
	awaitCluster(t, n2, "three voters", func(_ int, c *belfryv1.GetClusterResponse) bool {
		return len(c.Nodes) == 3 && len(c.Shards) == 1 && len(c.Shards[0].Voters) == 3
	})
	app := redissontest.New(r.Client(), "orders", redissontest.NewGeneration, time.Now)
	through := func(text string) {
		t.Helper()
		if err := app.Offer(t.Context(), []byte(text), time.Now().Add(100*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		got, ok, err := app.Take(t.Context(), time.Minute)
		if err != nil || !ok || string(got) != text {
			t.Fatalf("the ready list gave %q, %v, %v, want %q", got, ok, err, text)
		}
	}
	through("first")
	nodes := map[string]*process{"n1": n1, "n2": n2, "n3": n3}
	holder := awaitHolder(t, nodes, 1)
	awaitCluster(t, n1, "one node that works while the others wait", func(_ int, c *belfryv1.GetClusterResponse) bool {
		return !slices.ContainsFunc(c.Nodes, func(n *belfryv1.Node) bool {
			return len(n.Mirrored) != 1 || n.Mirrored[0].Queue != "shop/orders" ||
				(n.Mirrored[0].Waits == "") != (n.Name == holder) || (n.Mirrored[0].Came == 1) != (n.Name == holder) ||
				(n.Mirrored[0].LookedAt != nil) != (n.Name == holder)
		})
	})
	nodes[holder].signal(syscall.SIGKILL)
	nodes[holder].end()
	delete(nodes, holder)
	through("second")
	awaitHolder(t, nodes, 1)
	if n := r.Client().Exists(t.Context(), "redisson_delay_queue:{orders}",
		"redisson_delay_queue_timeout:{orders}").Val(); n != 0 {
		t.Errorf("%d keys of Redisson have something left", n)
	}
}

// awaitHolder waits until one of the nodes says in its metrics that it brought over so many
// entries, and returns its name.
func awaitHolder(t *testing.T, nodes map[string]*process, entries int) (name string) {
	t.Helper()
	want := fmt.Sprintf("belfry_mirror_acked_total{redis_queue=\"orders\"} %d\n", entries)
	awaitEvery(t, 50*time.Millisecond, "a node with metrics of its bridge", func() bool {
		for n, p := range nodes {
			if strings.Contains(metricsAt(t, p.address), want) {
				name = n
				return true
			}
		}
		return false
	})
	return name
}

// metricsAt reads the metrics that are served at an address.
func metricsAt(t *testing.T, address string) string {
	t.Helper()
	return pageAt(t, address, "/metrics")
}

// pageAt reads a page that is served at an address.
func pageAt(t *testing.T, address, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
