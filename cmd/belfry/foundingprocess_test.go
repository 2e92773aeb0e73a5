package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// crew is nodes that are to found a cluster of three together. Their gossip addresses are fixed, so
// that they find each other again.
type crew struct {
	t      *testing.T
	dirs   []string
	gossip []string
	procs  []*process
	// shell is what a shell does before it becomes a node.
	shell string
}

func newCrew(t *testing.T, nodes int) *crew {
	t.Helper()
	c := &crew{t: t, procs: make([]*process, nodes)}
	for range nodes {
		c.dirs = append(c.dirs, filepath.Join(t.TempDir(), "data"))
		c.gossip = append(c.gossip, addresses.Free(t))
	}
	return c
}

// launch starts node number i, whether or not it finds a cluster.
func (c *crew) launch(i int, more ...string) *process {
	c.t.Helper()
	return c.launchAt(i, c.gossip[i], more...)
}

// launchAt starts node number i at a gossip address.
func (c *crew) launchAt(i int, gossip string, more ...string) *process {
	c.t.Helper()
	args := append([]string{
		"serve", "--data", c.dirs[i], "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--gossip-listen", gossip,
		"--shards", "2",
		"--node-id", fmt.Sprintf("n%d", i+1), "--join", strings.Join(c.gossip, ","), "--bootstrap-expect", "3",
		"--print-addresses", "--log-format", "text",
	}, more...)
	c.procs[i] = launch(c.t, shelled(c.shell, append([]string{launcher}, args...)...))
	return c.procs[i]
}

// kill ends a node at once.
func (c *crew) kill(i int) {
	c.t.Helper()
	c.procs[i].signal(syscall.SIGKILL)
	c.procs[i].end()
}

// wantOne waits until all nodes are one cluster of three nodes that has come to rest.
func (c *crew) wantOne() {
	c.t.Helper()
	clusters := map[string]bool{}
	for i, p := range c.procs {
		<-p.printed
		if p.address == "" {
			<-p.exited
			c.t.Fatalf("n%d ended and said:\n%s", i+1, p.stderr)
		}
		awaitCluster(c.t, p, "one cluster of three", func(code int, got *belfryv1.GetClusterResponse) bool {
			clusters[got.ClusterId] = true
			return code == 0 && len(got.Nodes) == 3 && votersOfAll(got, 3)
		})
	}
	if len(clusters) != 1 {
		c.t.Errorf("there are %d clusters: %v", len(clusters), clusters)
	}
}

// exists reports whether a file of a data directory is there.
func exists(dir string, path ...string) bool {
	_, err := os.Stat(filepath.Join(append([]string{dir}, path...)...))
	return err == nil
}

// TestTwoOfThreeFoundNothing starts two nodes of three: nothing is founded, as the log says. The
// third completes them; a fourth, which expects to found a cluster too, joins.
func TestTwoOfThreeFoundNothing(t *testing.T) {
	t.Parallel()
	c := newCrew(t, 3)
	one, two := c.launch(0), c.launch(1)
	for _, p := range []*process{one, two} {
		awaitText(t, p, "2 of 3 nodes are there: n1, n2")
	}
	awaitText(t, one, "waiting for a cluster") // it goes on to say so
	for i, dir := range c.dirs {
		if exists(dir, "node.json") {
			t.Errorf("n%d has a cluster", i+1)
		}
	}
	c.launch(2)
	c.wantOne()

	fourth := serve(t, launcher, t.TempDir(), "--node-id", "n0", "--gossip-listen", "127.0.0.1:0", "--join", c.gossip[2],
		"--bootstrap-expect", "1")
	if got := clusterOf(t, fourth, launcher); got.ClusterId != clusterOf(t, c.procs[0], launcher).ClusterId {
		t.Errorf("a node that comes later has cluster %s", got.ClusterId)
	}
}

// TestFounderKilled ends the founder at once, at each step of the founding that can be seen from
// outside, and starts it again: there is one cluster, and all are in it.
func TestFounderKilled(t *testing.T) {
	t.Parallel()
	for _, step := range []struct {
		name string
		seen func(founder *process, dir string) bool
	}{
		{"the others have agreed", func(p *process, _ string) bool {
			return strings.Contains(p.stderr.String(), "founding a cluster")
		}},
		{"it has a cluster id", func(_ *process, dir string) bool { return exists(dir, "node.json") }},
		{"it has a shard", func(_ *process, dir string) bool { return exists(dir, "shards") }},
		{"it has the catalog", func(_ *process, dir string) bool { return exists(dir, "groups", "catalog") }},
		{"it serves", func(p *process, _ string) bool { return strings.Contains(p.stderr.String(), "msg=ready") }},
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			c := newCrew(t, 3)
			founder := c.launch(0)
			c.launch(1)
			c.launch(2)
			await(t, step.name, func() bool { return step.seen(founder, c.dirs[0]) })
			c.kill(0)
			c.launch(0)
			c.wantOne()
		})
	}
}

// TestOneOfThreeHasACluster: a node that has a cluster ignores the wish to found one, and the
// others join it.
func TestOneOfThreeHasACluster(t *testing.T) {
	t.Parallel()
	c := newCrew(t, 3)
	// The last in order of names, which would never found.
	first := serve(t, launcher, c.dirs[2], "--node-id", "n3", "--shards", "2")
	cluster := clusterOf(t, first, launcher).ClusterId
	first.signal(syscall.SIGTERM)
	if code := first.end(); code != 0 {
		t.Fatalf("it ended with %d and said:\n%s", code, first.stderr)
	}
	for i := range 3 {
		c.launch(i)
	}
	c.wantOne()
	if got := clusterOf(t, c.procs[0], launcher).ClusterId; got != cluster {
		t.Errorf("the cluster is %s, want %s", got, cluster)
	}
}

// TestNameIsTaken starts a new node under the name of one that answers: it ends, saying which, and
// has made nothing of its data directory.
func TestNameIsTaken(t *testing.T) {
	t.Parallel()
	first, dir := serve(t, launcher, t.TempDir(), "--node-id", "n1"), filepath.Join(t.TempDir(), "data")
	incarnation := clusterOf(t, first, launcher).Nodes[0].Incarnation
	got := runProgram(t, launcher, nil, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0",
		"--node-id", "n1", "--join", first.gossip)
	want := regexp.MustCompile("the name n1 is taken: n1." + incarnation + " of cluster .* answers at " + first.peers)
	if got.Code != cli.CodeError || !want.MatchString(got.Err) || exists(dir, "node.json") {
		t.Errorf("%+v, want exit code 1 and %s", got, want)
	}
}
