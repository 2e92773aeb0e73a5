//go:build firewall

package clustertrial

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/processtest"
)

const (
	// undialableServed and undialableNamed are the aims for the time until all queues are served
	// through the other nodes, and until status names the node.
	undialableServed = 5 * time.Second
	undialableNamed  = 10 * time.Second
	// faultPhase is how long a fault of the network lasts.
	faultPhase = time.Minute
)

// TestUndialable puts a firewall before the peer port of a node that leads, whose own connections
// go on, and measures what the others notice of it. It needs root and iptables, and the build tag
// that says so.
func TestUndialable(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2", "n3")
	c.start("n1", "n2", "n3")
	c.awaitHealthy()
	probes, sick, others := c.queues("probe"), c.member("n3"), []*member{c.member("n1"), c.member("n2")}
	l := startLoad(c, quietRate)
	f := &figures{trial: "undialable"}
	firewall(t, sick)
	began := time.Now()
	unready := startUnready(t, others)
	served, named := make(processtest.Durations, len(others)), make(processtest.Durations, len(others))
	var watching sync.WaitGroup
	for i, m := range others {
		watching.Go(func() { served[i] = servedAfter(t, m, probes, began) })
		watching.Go(func() { named[i] = namedAfter(t, m, "node n3 cannot be reached by n1, n2 at ", began) })
	}
	watching.Wait()
	f.account(l.finish())
	f.milliseconds("until all queues are served through all other nodes", served.At(1), undialableServed)
	f.milliseconds("until the status of all other nodes names it", named.At(1), undialableNamed)
	f.count("looks at which no other node was ready", unready(), 0)
	f.print(t)
}

// TestAdvertise starts a node again with an address as its own at which no program listens, and
// measures from its start what the others notice of it.
func TestAdvertise(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2", "n3")
	c.start("n1", "n2", "n3")
	c.awaitHealthy()
	probes, sick, others := c.queues("probe"), c.member("n3"), []*member{c.member("n1"), c.member("n2")}
	l := startLoad(c, quietRate)
	f := &figures{trial: "advertise"}
	if err := sick.server.Stop(); err != nil {
		t.Error(err)
	}
	sick.server.Add("--advertise", "127.0.0.9")
	sick.server.Launch()
	began := time.Now()
	unready := startUnready(t, others)
	served, named := make(processtest.Durations, len(others)), make(processtest.Durations, len(others))
	var watching sync.WaitGroup
	for i, m := range others {
		watching.Go(func() { served[i] = servedAfter(t, m, probes, began) })
		watching.Go(func() { named[i] = namedAfter(t, m, "node n3 cannot be reached by n1, n2 at 127.0.0.9:", began) })
	}
	watching.Wait()
	f.account(l.finish())
	f.milliseconds("until all queues are served through all other nodes", served.At(1), undialableServed)
	f.milliseconds("until the status of all other nodes names it", named.At(1), undialableNamed)
	f.count("looks at which no other node was ready", unready(), 0)
	f.print(t)
}

// firewall drops what comes to the peer port of a node, until the test ends.
func firewall(t *testing.T, m *member) {
	t.Helper()
	drop(t, "INPUT", append([]string{"-p", "tcp", "-i", "lo"}, destination(t, m.server.Peers())...)...)
}

// drop has the firewall drop what matches, until repair is called or the test ends.
func drop(t *testing.T, chain string, match ...string) (repair func()) {
	t.Helper()
	rule := func(action string) {
		args := append(append([]string{"-w", action, chain}, match...), "-j", "DROP")
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "iptables",
			args...).CombinedOutput(); err != nil {
			t.Errorf("iptables %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	rule("-I")
	repair = sync.OnceFunc(func() { rule("-D") })
	t.Cleanup(repair)
	return repair
}

// destination matches packets to an address. Other clusters of this machine may have its port at an
// address of their own.
func destination(t *testing.T, address string) []string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"-d", host, "--dport", port}
}

// servedAfter waits until a node has puts to all queues served, and returns how long after began
// that was.
func servedAfter(t *testing.T, m *member, queues []string, began time.Time) time.Duration {
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	var asking sync.WaitGroup
	for _, queue := range queues {
		asking.Go(func() {
			if _, err := acceptsAgain(ctx, m, queue); err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	return time.Since(began)
}

// namedAfter waits until the status that a node gives has a text among its problems, and returns
// how long after began that was.
func namedAfter(t *testing.T, m *member, text string, began time.Time) time.Duration {
	ctx, cancel := context.WithDeadline(t.Context(), began.Add(faultPhase))
	defer cancel()
	for {
		status, err := m.client.Admin().Cluster(ctx)
		if err == nil && strings.Contains(strings.Join(status.Problems, "\n"), text) {
			return time.Since(began)
		}
		if ctx.Err() != nil {
			t.Errorf("the status of %s does not say %q: %v, %v", m.name, text, status.Problems, err)
			return time.Since(began)
		}
		pause(lookPause)
	}
}

// startUnready looks again and again whether nodes are ready, and counts the looks at which none
// was.
func startUnready(t *testing.T, all []*member) (end func() int) {
	ctx, cancel := context.WithCancel(t.Context())
	none := 0
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			ready := false
			for _, m := range all {
				ready = ready || isReady(ctx, m)
			}
			if !ready && ctx.Err() == nil {
				none++
			}
			select {
			case <-time.After(lookPause):
			case <-ctx.Done():
			}
		}
	})
	return func() int {
		cancel()
		running.Wait()
		return none
	}
}
