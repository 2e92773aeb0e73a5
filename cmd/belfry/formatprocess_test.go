package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The formats of this program and of its successor.
const (
	present = fsm.LatestFormat
	coming  = present + 1
)

// rolling is a cluster of three nodes that are replaced one after the other by another program.
type rolling struct {
	t     *testing.T
	dirs  [3]string
	nodes [3]*process
	kept  int // jobs that were put and must be there
	// unaware is the identity of the first node's data from before the later format.
	unaware []byte
}

// TestRollingUpgrade runs this program beside its successor, whose formats differ in their number
// only: while one node is of this program, all write what it reads, and any node may go back. Then
// the cluster speaks the later format, and this program is refused.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	old, next := launcher, successor(t)
	r := &rolling{t: t}
	for i := range r.nodes {
		r.dirs[i] = filepath.Join(t.TempDir(), "data")
		r.start(i, old)
	}
	r.await("three nodes of this program", present, present, present, present)
	r.use("old")

	for step, program := range []string{next, old, next} { // up, back, and up again
		r.replace(0, program)
		r.await("n1 to be replaced", present, map[string]fsm.Format{old: present, next: coming}[program], present, present)
		r.lead(0)
		r.use(fmt.Sprintf("first%d", step))
	}
	var err error
	if r.unaware, err = os.ReadFile(filepath.Join(r.dirs[0], "node.json")); err != nil {
		t.Fatal(err)
	}
	r.replace(1, next)
	r.await("n2 to be replaced", present, coming, coming, present)
	r.lead(1)
	r.use("second")
	r.replace(2, next)
	r.await("the later format", coming, coming, coming, coming)
	for i := range r.nodes {
		await(t, "every node to write it", func() bool {
			identity, err := os.ReadFile(filepath.Join(r.dirs[i], "node.json"))
			return err == nil && strings.Contains(string(identity), fmt.Sprintf(`"speaks": %d`, coming))
		})
	}
	r.lead(2)
	r.use("third")
	r.refused(old)
	r.start(0, next)
	r.await("all three again", coming, coming, coming, coming)
	r.use("last")
	if got := r.nodes[0].run(old, "list", "kept", "--max", "0"); got.Code != 0 ||
		strings.Count(got.Out, "kept-") != r.kept {
		t.Errorf("there should be %d jobs: %+v", r.kept, got)
	}
}

// successor builds the program of the next format: this one, with another number in one line.
func successor(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, err := filepath.Abs(filepath.Join("..", "..", "fsm", "format.go"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	const line = "const LatestFormat Format = %d\n"
	changed := strings.Replace(string(text), fmt.Sprintf(line, present), fmt.Sprintf(line, coming), 1)
	if changed == string(text) {
		t.Fatalf("%s does not name the format", source)
	}
	overlay, err := json.Marshal(
		map[string]map[string]string{"Replace": {source: clitest.WriteFile(t, "format.go", changed)}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "belfry")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay",
		clitest.WriteFile(t, "overlay.json", string(overlay)), "-o", path, ".")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the successor: %v\n%s", err, said)
	}
	return path
}

// start starts a node; all but the first of a new cluster are told of another.
func (r *rolling) start(i int, program string) {
	r.t.Helper()
	args := []string{"--node-id", fmt.Sprintf("n%d", i+1), "--shards", "2"}
	for _, other := range r.nodes {
		if other != nil && other != r.nodes[i] {
			args = append(args, "--join", other.gossip)
			break
		}
	}
	r.nodes[i] = serve(r.t, program, r.dirs[i], args...)
}

// stop stops a node as an upgrade does.
func (r *rolling) stop(i int) {
	r.t.Helper()
	r.nodes[i].signal(syscall.SIGTERM)
	if code := r.nodes[i].end(); code != 0 {
		r.t.Errorf("n%d ended with %d and said:\n%s", i+1, code, r.nodes[i].stderr)
	}
}

// replace has another program go on with the data of a node.
func (r *rolling) replace(i int, program string) {
	r.t.Helper()
	r.stop(i)
	r.start(i, program)
}

// await waits until all is well, the cluster speaks a format, and the nodes read those that are
// listed.
func (r *rolling) await(what string, spoken fsm.Format, reads ...fsm.Format) {
	r.t.Helper()
	awaitCluster(r.t, r.nodes[0], what, func(code int, c *belfryv1.GetClusterResponse) bool {
		var got []fsm.Format
		for _, n := range c.Nodes {
			got = append(got, fsm.Format(n.Format)) //nolint:gosec // a node's own
		}
		return code == 0 && votersOfAll(c, 3) && len(c.Catalog.GetVoters()) == 3 && c.Format == uint32(spoken) &&
			slices.Equal(got, reads)
	})
}

// lead has a node lead every shard, so that all entries are its own.
func (r *rolling) lead(i int) {
	r.t.Helper()
	for shard := range 2 {
		awaitCluster(r.t, r.nodes[0], "to hand over", func(_ int, c *belfryv1.GetClusterResponse) bool {
			got := r.nodes[i].run(launcher, "cluster", "transfer", fmt.Sprint(shard), "--to", fmt.Sprintf("n%d", i+1))
			return got.Code == 0
		})
	}
}

// use puts, reserves and acks through every node, and changes the catalog through each.
func (r *rolling) use(stage string) {
	r.t.Helper()
	for i, p := range r.nodes {
		name := fmt.Sprintf("%s-%d", stage, i)
		for _, args := range [][]string{
			{"put", "kept", "x", "--id", "kept-" + name, "--delay", "10h"},
			{"queue", "create", name, "--partitions", "2"},
			{"put", name, "work", "--id", name, "--ttr", "1h"},
		} {
			if got := p.run(launcher, args...); got.Code != 0 {
				r.t.Fatalf("%s, through n%d: %v: %+v\n%s", stage, i+1, args, got, r.logs())
			}
		}
		r.kept++
		held := reserveOne(r.t, r.nodes[(i+1)%3], launcher, name)
		if got := p.run(launcher, "ack", held.Lease); got.Code != 0 || held.ID != name {
			r.t.Errorf("%s, through n%d: %+v: %+v", stage, i+1, held, got)
		}
	}
	for i, p := range r.nodes {
		select {
		case <-p.exited:
			r.t.Fatalf("%s: n%d ended\n%s", stage, i+1, r.logs())
		default:
		}
	}
}

// logs returns what the nodes said.
func (r *rolling) logs() string {
	var all strings.Builder
	for i, p := range r.nodes {
		fmt.Fprintf(&all, "n%d:\n%s\n", i+1, p.stderr)
	}
	return all.String()
}

// refused starts a program on the data of the first node, and as a new one, and leaves that node
// stopped.
func (r *rolling) refused(program string) {
	r.t.Helper()
	r.stop(0)
	refusal := fmt.Sprintf("format %d, this program reads up to %d", coming, present)
	fresh := filepath.Join(r.t.TempDir(), "data")
	for dir, join := range map[string]string{r.dirs[0]: "", fresh: r.nodes[1].gossip} {
		args := []string{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0"}
		if join != "" {
			args = append(args, "--join", join)
		}
		before := contents(r.t, dir)
		got := runProgram(r.t, program, nil, args...)
		if got.Code != cli.CodeError || !strings.Contains(got.Err, refusal) {
			r.t.Errorf("%s joins %q: %+v", dir, join, got)
		}
		if diff := cmp.Diff(before, contents(r.t, dir)); diff != "" {
			r.t.Errorf("%s was changed (-before +after):\n%s", dir, diff)
		}
	}
	// The node may have crashed before its data knew of the later format. Then what the program finds
	// in the log ends it.
	if err := os.WriteFile(filepath.Join(r.dirs[0], "node.json"), r.unaware, 0o600); err != nil {
		r.t.Fatal(err)
	}
	got := runProgram(r.t, program, nil, "serve", "--data", r.dirs[0], "--listen", "127.0.0.1:0", "--peer-listen",
		"127.0.0.1:0", "--join", r.nodes[1].gossip)
	if got.Code != cli.CodeStorage || !strings.Contains(got.Err, refusal) {
		r.t.Errorf("on data that does not know of the later format: %+v", got)
	}
}

// contents returns what the files of a directory hold, by path, but for the lock, which even a
// program takes that is then refused; nothing if it does not exist.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	if _, err := os.Stat(dir); err != nil {
		return all
	}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "LOCK" {
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
