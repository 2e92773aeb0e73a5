//go:build firewall

package clustertrial

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/processtest"
)

const (
	// partialServed and partialNamed are the aims for the time until all queues are served through all
	// nodes, and until status names the two.
	partialServed = 5 * time.Second
	partialNamed  = 10 * time.Second
	// partialGroups is the first number of the groups of users under which the two run.
	partialGroups = 17100
)

// TestPartial cuts two nodes of three off from each other while both reach the third, under load,
// and measures what callers of each notice of it. It needs root and iptables, and the build tag
// that says so.
func TestPartial(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2", "n3")
	one, other := c.member("n2"), c.member("n3")
	one.server.As(partialGroups)
	other.server.As(partialGroups + 1)
	c.start("n1", "n2", "n3")
	c.awaitHealthy()
	probes := c.queues("probe")
	l := startLoad(c, quietRate)
	f := &figures{trial: "partial partition"}
	var watches []*watch
	for _, queue := range probes {
		for _, m := range c.members {
			watches = append(watches, startWatch(c, m, queue))
		}
	}
	pause(time.Second)
	began := time.Now()
	repair := cutOff(t, one, other)
	unready := startUnready(t, c.members)
	served, named := make(processtest.Durations, len(c.members)), make(processtest.Durations, len(c.members))
	var watching sync.WaitGroup
	for i, m := range c.members {
		watching.Go(func() { served[i] = servedAfter(t, m, probes, began) })
		watching.Go(func() { named[i] = namedAfter(t, m, "nodes n2 and n3 cannot reach each other", began) })
	}
	watching.Wait()
	pause(faultPhase - time.Since(began))
	var usual, gaps processtest.Durations
	for _, w := range watches {
		gaps = append(gaps, w.end(began, &usual))
	}
	f.count("looks at which no node was ready", unready(), 0)
	healed := time.Now()
	repair()
	c.awaitHealthy()
	f.milliseconds("from the end of the fault until all is healthy and even", time.Since(healed))
	f.account(l.finish())
	f.milliseconds("until all queues are served through all nodes", served.At(1), partialServed)
	f.milliseconds("until the status of all nodes names the two", named.At(1), partialNamed)
	f.durations("longest time between two puts of a queue through a node in the second before", usual)
	f.durations("longest time between two puts of a queue through a node", gaps, partialServed)
	f.print(t)
}

// cutOff drops what two nodes, which run under groups of users of their own, send to ports of each
// other.
func cutOff(t *testing.T, one, other *member) (repair func()) {
	t.Helper()
	var repairs []func()
	for from, to := range map[string]*member{fmt.Sprint(partialGroups): other, fmt.Sprint(partialGroups + 1): one} {
		for _, address := range []string{to.server.Peers(), to.server.Gossip()} {
			for _, protocol := range []string{"tcp", "udp"} {
				match := []string{"-o", "lo", "-m", "owner", "--gid-owner", from, "-p", protocol}
				repairs = append(repairs, drop(t, "OUTPUT", append(match, destination(t, address)...)...))
			}
		}
	}
	return func() {
		for _, m := range repairs {
			m()
		}
	}
}
