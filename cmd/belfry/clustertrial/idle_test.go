package clustertrial

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/client/admin"
)

var idleTime = flag.Duration("trial.idle", time.Second, "how long TestIdle watches a cluster that nobody uses")

const (
	// idlePercent is the aim for the share of one core that an idle node takes.
	idlePercent = 3
	// ticksPerSecond is the unit of processor time in /proc, the same on every Linux.
	ticksPerSecond = 100
)

// TestIdle leaves a cluster alone: nothing is logged and no leader is elected meanwhile. It prints
// the processor time that the nodes take. It does not run beside other trials of this package: a
// node that gets no processor for long is taken for dead. Something else may keep the machine busy,
// so one quiet time of a few is enough; a cluster that is never quiet never passes.
func TestIdle(t *testing.T) {
	const tries = 10
	c := newCluster(t, "n1", "n2", "n3")
	c.start("n1", "n2", "n3")
	diff := ""
	for range tries {
		f := &figures{trial: "idle"}
		if diff = c.leaveAlone(f); diff == "" {
			f.print(t)
			return
		}
	}
	t.Errorf("an idle cluster logs or elects (-before +after):\n%s", diff)
}

// leaveAlone watches a cluster without clients, and returns what has changed meanwhile.
func (c *cluster) leaveAlone(f *figures) (diff string) {
	t := c.t
	t.Helper()
	before := c.awaitHealthy()
	used := map[string]time.Duration{}
	for _, m := range c.members {
		used[m.name] = m.processorTime(t)
	}
	began := time.Now()
	rest := time.NewTimer(*idleTime)
	<-rest.C
	length := time.Since(began)
	for _, m := range c.members {
		share := 100 * float64(m.processorTime(t)-used[m.name]) / float64(length)
		f.enter("processor time of "+m.name, share, "% of a core", []float64{idlePercent})
	}
	f.milliseconds("watched for", length)
	return cmp.Diff(positions(before), positions(c.awaitHealthy()))
}

// positions returns how far each shard's log and term are.
func positions(s *admin.Cluster) (all []string) {
	for _, shard := range s.Shards {
		all = append(all, fmt.Sprintf("shard %d: led by %s in term %d, entry %d", shard.Number, shard.Leader, shard.Term,
			shard.AppliedIndex))
	}
	return all
}

// processorTime returns how much processor time the node's process has taken.
func (m *member) processorTime(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.server.PID()))
	if err != nil {
		t.Fatalf("the processor time of a process is read from /proc: %v", err)
	}
	// The name of the program, in parentheses, may have blanks.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	ticks := 0
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}
