package clustertrial

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/cmd/belfry/processtest"
)

var (
	growthRate  = flag.Float64("trial.rate", 200, "jobs a second that TestGrowth puts")
	growthPhase = flag.Duration("trial.phase", 2*time.Second,
		"how long TestGrowth leaves the cluster alone after each change")
)

// growthLateness is the aim for the 99th percentile of lateness.
const growthLateness = 100 * time.Millisecond

// TestGrowth grows a cluster from one node to three to five, and empties and stops two of them,
// while jobs flow.
func TestGrowth(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2", "n3", "n4", "n5")
	c.start("n1")
	c.await("one node", func(s *admin.Cluster) bool { return complete(s, factor) })
	l := startLoad(c, *growthRate)

	f := &figures{trial: "growth"}
	type phase struct {
		name string
		span processtest.Span
	}
	var phases []phase
	during := func(name string, change func()) {
		began := time.Now()
		change()
		f.milliseconds(name+": until it was done", time.Since(began))
		rest := time.NewTimer(*growthPhase)
		<-rest.C
		phases = append(phases, phase{name, processtest.Span{From: began, Until: time.Now()}})
	}
	during("one node", func() {})
	during("to three nodes", func() {
		c.start("n2", "n3")
		c.awaitHealthy()
	})
	during("to five nodes", func() {
		c.start("n4", "n5")
		c.awaitHealthy()
	})
	t.Logf("five nodes:\n%s", c.statusText())
	during("two drained", func() {
		for _, name := range []string{"n1", "n4"} {
			c.drain(name)
		}
	})
	during("both stopped and removed", func() {
		for _, name := range []string{"n1", "n4"} {
			c.stopNode(name)
			c.remove(name)
		}
		c.awaitHealthy()
	})
	account := l.finish()
	status := c.awaitHealthy()
	t.Logf("at the end:\n%s", c.statusText())
	for _, n := range status.Nodes {
		if n.Name == "n1" || n.Name == "n4" {
			t.Errorf("%s is still a node", n.Name)
		}
	}
	f.milliseconds("all phases", time.Since(l.began))
	f.account(account)
	for _, p := range phases {
		f.durations(p.name+": lateness", l.ledger.Lateness(p.span), growthLateness)
		f.count(p.name+": grants that reached nobody", l.ledger.Unseen(p.span))
		f.durations(p.name+": put", l.ledger.PutTimes(p.span))
	}
	f.print(t)
}

// drain has a node emptied and waits until it is.
func (c *cluster) drain(name string) {
	c.t.Helper()
	out, err := program.Run(c.t.Context(), "cluster", "drain", name, "--server", c.member(name).url)
	if err != nil {
		c.t.Fatalf("draining %s: %v\n%s", name, err, out)
	}
	c.await(name+" to be empty and the others to have what it had", func(s *admin.Cluster) bool {
		return complete(s, factor) && holdsNothing(s, name)
	})
}

// holdsNothing reports whether a node has neither replicas nor leaderships.
func holdsNothing(s *admin.Cluster, name string) bool {
	for _, n := range s.Nodes {
		if n.Name == name && (n.Replicas > 0 || n.Leads > 0) {
			return false
		}
	}
	return true
}

// stopNode stops a node as an operator does.
func (c *cluster) stopNode(name string) {
	c.t.Helper()
	m := c.member(name)
	m.up = false
	if err := m.server.Stop(); err != nil {
		c.t.Errorf("stopping %s: %v", name, err)
	}
}

// remove forgets a node that was stopped, as soon as the others have noticed that it does not
// answer.
func (c *cluster) remove(name string) {
	c.t.Helper()
	var last error
	c.awaitThat(fmt.Sprintf("%s to be removed", name), func(ctx context.Context) bool {
		_, last = program.Run(ctx, "cluster", "remove", name, "--yes", "--server", c.running()[0].url)
		return last == nil
	}, func() { c.t.Log(last) })
}
