//go:build netns

package network

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// These tests make network namespaces, for which they need root, iproute2, iptables and nsenter;
// without them they fail. They are no part of `go test ./...` but of `make namespaces`.

// at returns a node's address for a service, as others see it.
func (w *world) at(node string, s Service) string {
	return net.JoinHostPort(w.Advertised(node), strconv.Itoa(int(s.Port())))
}

// echoes runs a process in a node that sends back what it hears, and returns the addresses that
// connect.
func (w *world) echoes(node string, s Service) <-chan string {
	w.t.Helper()
	lines := w.process(node, helperEcho, net.JoinHostPort(w.Host(node), strconv.Itoa(int(s.Port()))))
	if got := take(w.t, lines, "the echo"); got != "listening" {
		w.t.Fatalf("the echo says %q", got)
	}
	return lines
}

func TestNamespacesReachEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Namespaces)
	if w.Mode() != Namespaces {
		t.Fatalf("the mode is %s", w.Mode())
	}
	callers := w.echoes("n1", Peer)
	w.process("n2", helperDial, w.at("n1", Peer))
	if got := take(t, callers, "a connection"); got != w.Advertised("n2") {
		t.Errorf("n2 is seen as %s, want %s", got, w.Advertised("n2"))
	}
	callers = w.echoes("n1", Client)
	conn := w.dial("c1", "n1")
	w.say(conn, "echo")
	w.hear(conn, "echo")
	if got, want := take(t, callers, "a connection"), w.clients["c1"].face.String(); got != want {
		t.Errorf("c1 is seen as %s, want %s", got, want)
	}
}

func TestTheKernelDropsOneDirection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Namespaces)
	callers := w.echoes("n1", Client)
	near, other := w.dial("c1", "n1"), w.dial("c2", "n1")
	for _, conn := range []net.Conn{near, other} {
		w.say(conn, "a")
		w.hear(conn, "a")
		take(t, callers, "a connection")
	}
	for _, link := range []Link{{"c1", "n1", Client}, {"n1", "c1", Client}} {
		w.set(link.From, link.To, Client, Rule{Drop: true})
		w.say(near, "b")
		heard := make(chan string, 1)
		go func() {
			got := make([]byte, 1)
			_, err := near.Read(got)
			heard <- fmt.Sprint(string(got), err)
		}()
		for range 20 {
			w.say(other, "c")
			w.hear(other, "c")
		}
		nothing(t, heard, "over a silent link came")
		w.heal()
		if got := take(t, heard, "what was sent again"); got != "b<nil>" {
			t.Errorf("after the healing came %s", got)
		}
	}
	peers := w.echoes("n1", Peer)
	if err := w.Partition(t.Context(), []string{"n2"}, []string{"n1", "n3"}); err != nil {
		t.Fatal(err)
	}
	w.process("n2", helperDial, w.at("n1", Peer))
	w.process("n3", helperDial, w.at("n1", Peer))
	for _, want := range []string{"n3", "n2"} {
		if got := take(t, peers, "a connection"); got != w.Advertised(want) {
			t.Errorf("the connection is of %s, want %s of %s", got, w.Advertised(want), want)
		}
		w.heal()
	}
}

func TestTheKernelDropsPackets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Namespaces)
	w.set("n2", "n1", Gossip, Rule{Drop: true})
	listen := func(node string) string { return netip.AddrPortFrom(w.nodes[node].host, Gossip.Port()).String() }
	words := func(node, to string) string { return listen(node) + " " + w.at(to, Gossip) + " from-" + node }
	two := w.process("n2", helperGossip, words("n2", "n1"))
	one := w.process("n1", helperGossip, words("n1", "n2"))
	w.process("n3", helperGossip, words("n3", "n1"))
	// The way from n1 to n2 is open.
	if got, want := take(t, two, "a packet"), w.at("n1", Gossip)+" from-n1"; got != want {
		t.Errorf("n2 received %q, want %q", got, want)
	}
	for range 100 {
		if got, want := take(t, one, "a packet"), w.at("n3", Gossip)+" from-n3"; got != want {
			t.Fatalf("n1 received %q, want %q", got, want)
		}
	}
	w.heal()
	for take(t, one, "a packet of n2") != w.at("n2", Gossip)+" from-n2" {
	}
}

// TestNothingIsLeft closes a network, and opens one after another whose process ended without.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Namespaces)
	there := func(number int) bool {
		all, err := leftovers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, ok := all[number]
		return ok
	}
	if !there(w.block.number) {
		t.Fatal("the network is not seen in the kernel")
	}
	w.echoes("n1", Peer) // it outlives the network, as a process does that hangs in its disk
	if err := w.Close(); err != nil || there(w.block.number) {
		t.Fatalf("the network was closed with %v, and something is left: %v", err, there(w.block.number))
	}

	dead, spaces, err := openNamespaces(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := spaces.add(t.Context(), &member{name: "n1", number: 1, host: dead.address(hosts, 1)}); err != nil {
		t.Fatal(err)
	}
	if err := dead.release(); err != nil { // as the kernel does when a process ends
		t.Fatal(err)
	}
	newWorld(t, Namespaces)
	if there(dead.number) && !held(t, dead.number) {
		t.Error("what a dead run left behind is still there")
	}
	rules, err := exec.CommandContext(t.Context(), "iptables", "-S", "INPUT").Output()
	if err != nil {
		t.Fatal(err)
	}
	if bridge := bridgePrefix + strconv.Itoa(dead.number); slices.Contains(strings.Fields(string(rules)), bridge) &&
		!held(t, dead.number) {
		t.Error("the rules of a dead run are still asked")
	}
}

// TestToolsAreNotInterrupted: a signal from the terminal goes to the group of the harness, which
// cleans up then.
func TestToolsAreNotInterrupted(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), "", "sh", "-c", `read -r _ _ _ _ group _ < /proc/$$/stat; [ "$group" = $$ ]`); err != nil {
		t.Error(err)
	}
}

// held reports whether a network has a block: after a dead run that may be another one.
func held(t *testing.T, number int) bool {
	t.Helper()
	b := &block{number: number, namespaces: true}
	if b.take(t.Context()) != nil {
		return true
	}
	if err := b.release(); err != nil {
		t.Fatal(err)
	}
	return false
}
