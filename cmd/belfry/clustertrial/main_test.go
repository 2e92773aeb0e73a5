package clustertrial

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/cmd/belfry/processtest"
)

const (
	// factor is how many voters a shard has in a cluster that has as many nodes.
	factor = 3
	// waitMax bounds every wait for a condition: only what hangs takes that long, however busy the
	// machine is.
	waitMax = 3 * time.Minute
	// lookPause is the time between two looks at a condition.
	lookPause = 50 * time.Millisecond
)

var (
	program processtest.Program

	// Fewer shards than the default make the short trials shorter: placement moves one replica of a
	// shard at a time.
	shards = flag.Int("trial.shards", 2, "shards of the clusters of processes")

	otherProgram = flag.String("trial.program", "", "a belfry to try, such as an older one; the one of this tree if empty")
)

func TestMain(m *testing.M) {
	if loud := os.Getenv(loudVariable); loud != "" {
		if err := beLoud(loud); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if *otherProgram != "" {
		program.Use(*otherProgram)
	}
	code := m.Run()
	if err := program.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// member is a node of a cluster under trial.
type member struct {
	name, url string
	// client is for single calls to this node only.
	client *client.Client
	// server is its process; nil if it runs in a container.
	server *processtest.Server
	kill   func()
	up     bool
}

// cluster is a cluster under trial. It is for the test's own goroutine.
type cluster struct {
	t       *testing.T
	members []*member
}

// newCluster returns a cluster of processes, none of which runs yet. The first founds it, the
// others join.
func newCluster(t *testing.T, names ...string) *cluster {
	t.Helper()
	dir := t.TempDir()
	dirs := map[string]string{}
	for _, name := range names {
		dirs[name] = filepath.Join(dir, name)
	}
	return newClusterIn(t, dirs)
}

// newClusterIn is newCluster with a directory for each node, by name.
func newClusterIn(t *testing.T, dirs map[string]string) *cluster {
	t.Helper()
	c := &cluster{t: t}
	seed := ""
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		args := []string{"--node-id", name, "--zone", "z-" + name, "--shards", fmt.Sprint(*shards)}
		if seed != "" {
			args = append(args, "--join", seed)
		}
		server := program.New(t, dirs[name], args...)
		if seed == "" {
			seed = server.Gossip()
		}
		c.add(&member{name: name, url: server.URL(), server: server, kill: server.Kill})
	}
	t.Cleanup(c.explain)
	return c
}

// add makes a node part of the cluster.
func (c *cluster) add(m *member) {
	c.t.Helper()
	m.client = newClient(c.t, m.url)
	c.members = append(c.members, m)
}

// newClient returns a client that is closed when the test ends.
func newClient(t *testing.T, urls string) *client.Client {
	t.Helper()
	sdk, err := client.New(urls)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sdk.Close() })
	return sdk
}

// explain shows what the servers wrote if the test failed.
func (c *cluster) explain() {
	if !c.t.Failed() {
		return
	}
	for _, m := range c.members {
		if m.server != nil {
			c.t.Logf("the log of %s ends with:\n%s", m.name, processtest.Tail(m.server.Log(), 30))
		}
	}
}

// start starts nodes, one after the other.
func (c *cluster) start(names ...string) {
	c.t.Helper()
	for _, name := range names {
		m := c.member(name)
		m.server.Start()
		m.up = true
	}
}

// killNode kills a node.
func (c *cluster) killNode(m *member) {
	m.up = false
	m.kill()
}

// member returns a node by its name.
func (c *cluster) member(name string) *member {
	c.t.Helper()
	i := slices.IndexFunc(c.members, func(m *member) bool { return m.name == name })
	if i < 0 {
		c.t.Fatalf("there is no node %q", name)
	}
	return c.members[i]
}

// running returns the nodes that run.
func (c *cluster) running() (up []*member) {
	for _, m := range c.members {
		if m.up {
			up = append(up, m)
		}
	}
	return up
}

// client returns a client that knows the addresses of all nodes, also of those that do not run yet.
func (c *cluster) client() *client.Client {
	c.t.Helper()
	var urls []string
	for _, m := range c.members {
		urls = append(urls, m.url)
	}
	return newClient(c.t, strings.Join(urls, ","))
}

// status asks the first running node for the cluster; nil if it does not answer.
func (c *cluster) status(ctx context.Context) *admin.Cluster {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	status, err := c.running()[0].client.Admin().Cluster(ctx)
	if err != nil {
		return nil
	}
	return &status
}

// await asks for the cluster until it is as wanted, and returns it.
func (c *cluster) await(what string, yes func(*admin.Cluster) bool) *admin.Cluster {
	c.t.Helper()
	var status *admin.Cluster
	c.awaitThat(what, func(ctx context.Context) bool {
		got := c.status(ctx)
		if got != nil {
			status = got
		}
		return got != nil && yes(got)
	}, func() { c.t.Logf("last seen: %v", status) })
	return status
}

// awaitThat repeats a question until the answer is yes; inVain says more when it never is.
func (c *cluster) awaitThat(what string, yes func(context.Context) bool, inVain func()) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), waitMax)
	defer cancel()
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for !yes(ctx) {
		select {
		case <-ctx.Done():
			inVain()
			c.t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

// rest lets so much time pass.
func pause(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}

// awaitHealthy waits until the running nodes are all of the cluster, every shard has its voters,
// and replicas and leaderships are even.
func (c *cluster) awaitHealthy() *admin.Cluster {
	c.t.Helper()
	return c.await("a healthy cluster", func(s *admin.Cluster) bool {
		return len(s.Problems) == 0 && len(s.Nodes) == len(c.running()) && complete(s, factor) && even(s)
	})
}

// complete reports whether every shard has as many voters as it should have, at most factor, all of
// them on nodes that are to stay, and no other voters.
func complete(s *admin.Cluster, factor int) bool {
	var staying []string
	for _, n := range s.Nodes {
		if n.State == "LIVE" {
			staying = append(staying, n.Name)
		}
	}
	for _, shard := range s.Shards {
		if shard.Leader == "" || len(shard.Voters) != min(factor, len(staying)) || len(shard.Nonvoters) > 0 {
			return false
		}
		for _, voter := range shard.Voters {
			if !slices.Contains(staying, voter) {
				return false
			}
		}
	}
	// a node that drains has no vote
	return len(s.Shards) > 0 && s.Catalog.Leader != "" && len(s.Catalog.Voters) == min(5, len(staying))
}

// even reports whether the nodes that are to stay have about as many replicas, and lead about as
// many shards, as each other.
func even(s *admin.Cluster) bool {
	var replicas, leads []int
	for _, n := range s.Nodes {
		if n.State == "LIVE" {
			replicas, leads = append(replicas, n.Replicas), append(leads, n.Leads)
		}
	}
	return slices.Max(replicas)-slices.Min(replicas) <= 1 && slices.Max(leads)-slices.Min(leads) <= 1
}

// statusText returns what `belfry cluster status` shows at a running node. That the cluster is not
// healthy is part of it.
func (c *cluster) statusText() string {
	out, err := program.Run(c.t.Context(), "cluster", "status", "--server", c.running()[0].url)
	if err != nil && out == "" {
		c.t.Errorf("asking for the status: %v", err)
	}
	return out
}
