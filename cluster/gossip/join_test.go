package gossip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
)

func addrAt(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 7402)
}

// table returns an empty table of node "self" in a cluster.
func table(cluster string) *members {
	self := Info{Cluster: cluster, Name: "self", ServerID: "self.1"}
	return &members{
		logger: discard(), problems: &problems{logger: discard(), seen: make(map[problemKey]*Problem)}, addr: addrAt(1),
		allowed: func(netip.Addr) bool { return true }, self: self,
		byID: make(map[string]*Member), conflicts: make(map[string]*addrConflict), changed: make(chan struct{}),
	}
}

// libraryNode returns a node as the library describes it.
func libraryNode(t *testing.T, info Info, addr netip.AddrPort) *memberlist.Node {
	t.Helper()
	meta, err := info.encode()
	if err != nil {
		t.Fatal(err)
	}
	return &memberlist.Node{Name: info.ServerID, Addr: addr.Addr().AsSlice(), Port: addr.Port(), Meta: meta}
}

func node(cluster, name, incarnation string) Info {
	return Info{Cluster: cluster, Name: name, ServerID: name + "." + incarnation}
}

// calls records the calls of each address.
type calls struct {
	mu sync.Mutex
	at map[netip.AddrPort][]time.Time
	// busy and most count concurrent calls.
	busy, most int
}

func (c *calls) call(ctx context.Context, addr netip.AddrPort) error {
	c.mu.Lock()
	c.at[addr] = append(c.at[addr], time.Now())
	c.busy++
	c.most = max(c.most, c.busy)
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy--
	return errors.New("no answer")
}

// times returns when an address was called.
func (c *calls) times(addr netip.AddrPort) []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.at[addr])
}

func (c *calls) count(addr netip.AddrPort) int { return len(c.times(addr)) }

// startJoiner runs a joiner in the bubble until the test ends.
func startJoiner(t *testing.T, m *members, lasts time.Duration, join ...string) (*joiner, *calls) {
	c := &calls{at: make(map[netip.AddrPort][]time.Time)}
	j := &joiner{
		members: m, self: m.addr, joinAddrs: join, logger: discard(), book: &addressBook{},
		lookup: func(context.Context, string, string) ([]netip.Addr, error) { return nil, errors.New("no names here") },
		call: func(addr netip.AddrPort) error {
			ctx, cancel := context.WithTimeout(t.Context(), lasts)
			defer cancel()
			return c.call(ctx, addr)
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { j.run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return j, c
}

func TestJoinerNeverGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := startJoiner(t, table("c"), 0, addrAt(1).String(), addrAt(2).String())
		<-time.After(24 * time.Hour)
		times := c.times(addrAt(2))
		pause := joinPauseMin
		for i := range len(times) - 1 {
			got := times[i+1].Sub(times[i])
			if got < pause*3/4 || got > pause*5/4 {
				t.Errorf("pause %d is %v, want %v within a quarter", i, got, pause)
			}
			pause = min(2*pause, joinPauseMax)
		}
		if last := time.Since(times[len(times)-1]); last > 2*joinPauseMax {
			t.Errorf("after a day the last call was %v ago", last)
		}
		if n := c.count(addrAt(1)); n != 0 {
			t.Errorf("it called itself %d times", n)
		}
	})
}

func TestJoinerCallsFewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var join []string
		for n := 2; n < 40; n++ {
			join = append(join, addrAt(n).String())
		}
		_, c := startJoiner(t, table("c"), streamTimeout, join...)
		<-time.After(10 * time.Minute)
		c.mu.Lock()
		most := c.most
		c.mu.Unlock()
		if most != joinParallel {
			t.Errorf("%d calls at once, want %d", most, joinParallel)
		}
		for n := 2; n < 40; n++ {
			if c.count(addrAt(n)) < 5 {
				t.Errorf("%v was called %d times in ten minutes", addrAt(n), c.count(addrAt(n)))
			}
		}
	})
}

func TestJoinerCallsWhereMembersWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := table("c")
		j, c := startJoiner(t, m, 0)
		two, three := libraryNode(t, node("c", "two", "1"), addrAt(2)), libraryNode(t, node("c", "three", "1"), addrAt(3))
		m.NotifyJoin(two)
		m.NotifyJoin(three)
		<-time.After(time.Hour)
		if n := c.count(addrAt(2)); n != 0 {
			t.Errorf("a live member was called %d times", n)
		}
		m.NotifyLeave(two)
		synctest.Wait()
		if n := c.count(addrAt(2)); n != 1 {
			t.Errorf("a member that fell silent was called %d times at once", n)
		}
		<-time.After(time.Hour)
		before := c.count(addrAt(2))
		if before < 60 {
			t.Errorf("it was called %d times in an hour", before)
		}
		m.NotifyJoin(libraryNode(t, node("c", "two", "1"), addrAt(4))) // it moved
		<-time.After(time.Hour)
		if n := c.count(addrAt(2)); n > before {
			t.Errorf("its old address was called %d times more", n-before)
		}
		m.NotifyLeave(three)
		if addr, ok := m.forget("three.1"); ok {
			j.forgetAddress(addr)
		}
		<-time.After(time.Minute)
		before = c.count(addrAt(3))
		<-time.After(time.Hour)
		if n := c.count(addrAt(3)); n > before {
			t.Errorf("a forgotten node was called %d times more", n-before)
		}
	})
}

// TestOutcomesOfCalls: outcomes are kept for each address, and dropped with it.
func TestOutcomesOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := table("c")
		j, _ := startJoiner(t, m, time.Second, "unknown:7402", addrAt(1).String(), addrAt(2).String())
		want := func(outcomes ...JoinOutcome) {
			t.Helper()
			for i, a := range j.attempts() {
				if a.Outcome != outcomes[i] {
					t.Errorf("%s: outcome %d, want %d: %v", a.Addr, a.Outcome, outcomes[i], a.Err)
				}
			}
		}
		synctest.Wait()
		want(JoinUnresolved, JoinReached, JoinPending)
		<-time.After(2 * time.Second)
		want(JoinUnresolved, JoinReached, JoinNotGossip)
		m.NotifyJoin(libraryNode(t, node("c", "two", "1"), addrAt(2)))
		<-time.After(2 * time.Second) // the last call ends
		want(JoinUnresolved, JoinReached, JoinReached)
		j.mu.Lock()
		defer j.mu.Unlock()
		if _, kept := j.lastAttempts[addrAt(2).String()]; kept {
			t.Error("the outcome of an address is kept after a node answered there")
		}
	})
}

func TestResolve(t *testing.T) {
	lookup := func(_ context.Context, network, name string) ([]netip.Addr, error) {
		if network != "ip" || name != "nodes" {
			return nil, errors.New("no such name")
		}
		return []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("::ffff:10.0.0.1")}, nil
	}
	for _, tt := range []struct{ hostPort, all, one string }{
		{"10.0.0.1:7402", "[10.0.0.1:7402]", "10.0.0.1:7402"},
		{"[::ffff:10.0.0.1]:7402", "[10.0.0.1:7402]", "10.0.0.1:7402"},
		{"nodes:7402", "[[2001:db8::1]:7402 10.0.0.1:7402]", "10.0.0.1:7402"},
		{"[2001:db8::2]:1", "[[2001:db8::2]:1]", "[2001:db8::2]:1"},
		{"unknown:7402", "", ""},
		{"nodes", "", ""},
		{"nodes:70000", "", ""},
	} {
		all, err := resolve(t.Context(), lookup, tt.hostPort)
		if got := fmt.Sprint(all); (err != nil) != (tt.all == "") || err == nil && got != tt.all {
			t.Errorf("%s: %s, %v", tt.hostPort, got, err)
		}
		one, err := resolveOne(t.Context(), lookup, tt.hostPort)
		if (err != nil) != (tt.one == "") || err == nil && one.String() != tt.one {
			t.Errorf("%s: one of them is %v, %v", tt.hostPort, one, err)
		}
	}
}

// TestLookupIsBounded: a name server that says nothing holds up a call for 5 seconds.
func TestLookupIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		_, err := resolve(t.Context(), func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "nodes:7402")
		if took := time.Since(begin); err == nil || took != lookupTimeout {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
