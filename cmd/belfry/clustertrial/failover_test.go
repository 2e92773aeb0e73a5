package clustertrial

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/cmd/belfry/processtest"
)

var (
	failoverJobs    = flag.Int("trial.jobs", 300, "jobs that TestFailover puts")
	failoverSpan    = flag.Duration("trial.span", 6*time.Second, "the time over which they are due")
	failoverCompose = flag.Bool("trial.compose", false,
		"TestFailover uses the containers that `make up` started, instead of processes")
)

// failoverLead is how long after their puts the first of the jobs is due: all are put before a node
// is killed.
const failoverLead = 3 * time.Second

// TestFailover puts jobs through one node, kills the node that leads the most shards, and takes all
// of them through the other two.
func TestFailover(t *testing.T) {
	t.Parallel()
	var c *cluster
	if *failoverCompose {
		c = composed(t)
	} else {
		c = newCluster(t, "n1", "n2", "n3")
		c.start("n1", "n2", "n3")
	}
	status := c.awaitHealthy()
	t.Logf("before:\n%s", c.statusText())

	f := &figures{trial: "failover"}
	queues := c.queues("failover")
	ledger := processtest.NewLedger()
	began := time.Now()
	putAll(c, ledger, queues)
	f.milliseconds("putting them all", time.Since(began))

	victim := c.member(leadsMost(status))
	before := leaders(status)
	consuming, stop := context.WithCancel(t.Context())
	consumers := consumeThrough(consuming, c, victim, ledger, queues)
	third := time.NewTimer(time.Until(began.Add(failoverLead + *failoverSpan/3)))
	<-third.C
	killed := time.Now()
	c.killNode(victim)
	c.await("leaders of all shards among those left", func(s *admin.Cluster) bool {
		for _, leader := range leaders(s) {
			if leader == "" || leader == victim.name {
				return false
			}
		}
		return true
	})
	f.count("shards that lost their leader", countOf(before, victim.name))
	f.milliseconds("until every shard has a leader again", time.Since(killed))
	t.Logf("after %s was killed:\n%s", victim.name, c.statusText())

	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	if err := ledger.Await(ctx); err != nil {
		t.Error(err)
	}
	stop()
	consumers.Wait()
	account, err := ledger.Close()
	if err != nil {
		t.Error(err)
	}
	f.account(account)
	soon, late := killed.Add(-time.Second), killed.Add(5*time.Second)
	f.durations("lateness up to 1 s before the kill", ledger.Lateness(processtest.Span{From: began, Until: soon}))
	f.durations("lateness from then to 5 s after it", ledger.Lateness(processtest.Span{From: soon, Until: late}))
	f.durations("lateness later", ledger.Lateness(processtest.Span{From: late, Until: time.Now()}))
	f.print(t)
}

// putAll puts the jobs through the first node, due one after the other.
func putAll(c *cluster, ledger *processtest.Ledger, queues []string) {
	var putting sync.WaitGroup
	for i := range *failoverJobs {
		putting.Go(func() {
			delay := failoverLead + time.Duration(i)**failoverSpan/time.Duration(*failoverJobs)
			ledger.PutJob(c.t.Context(), c.members[0].client, queues[i%len(queues)], delay, client.TTR(leaseLength))
		})
	}
	putting.Wait()
}

// consumeThrough takes the jobs through all nodes but one, until ctx ends.
func consumeThrough(ctx context.Context, c *cluster, without *member, ledger *processtest.Ledger,
	queues []string) *sync.WaitGroup {
	consumers := &sync.WaitGroup{}
	for _, m := range c.members {
		for _, queue := range queues {
			for range consumersEach {
				if m != without {
					consumers.Go(func() { ledger.Consume(ctx, m.client, queue) })
				}
			}
		}
	}
	return consumers
}

// composed returns the cluster of docker-compose.yml, which runs already.
func composed(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t}
	for i, name := range []string{"n1", "n2", "n3"} {
		url := fmt.Sprintf("http://127.0.0.1:%d", 7400+10*i)
		c.add(&member{name: name, url: url, up: true, kill: func() {
			out, err := exec.CommandContext(t.Context(), "../../../deploy/compose", "kill", "-s", "SIGKILL",
				name).CombinedOutput()
			if err != nil {
				t.Fatalf("killing the container: %v\n%s", err, out)
			}
		}})
	}
	return c
}

// leaders returns the leader of each shard.
func leaders(s *admin.Cluster) (names []string) {
	for _, shard := range s.Shards {
		names = append(names, shard.Leader)
	}
	return names
}

// leadsMost returns the node that leads the most shards, the first of them by name.
func leadsMost(s *admin.Cluster) (most string) {
	names := leaders(s)
	for _, n := range s.Nodes {
		if most == "" || countOf(names, n.Name) > countOf(names, most) {
			most = n.Name
		}
	}
	return most
}

func countOf(names []string, name string) (n int) {
	for _, other := range names {
		if other == name {
			n++
		}
	}
	return n
}
