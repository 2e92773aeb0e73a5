package gossip

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/hashicorp/memberlist"
)

func TestNotifyAlive(t *testing.T) {
	good := func() *memberlist.Node { return libraryNode(t, node("c", "two", "1"), addrAt(2)) }
	for _, tt := range []struct {
		name    string
		cluster string // this node's
		change  func(*memberlist.Node)
		want    error
	}{
		{"a member", "c", func(*memberlist.Node) {}, nil},
		{"without a cluster", "c", func(n *memberlist.Node) { *n = *libraryNode(t, node("", "two", "1"), addrAt(2)) }, nil},
		{"seen by a node without a cluster", "", func(*memberlist.Node) {}, nil},
		{"foreign", "other", func(*memberlist.Node) {}, errForeign},
		{"no description", "c", func(n *memberlist.Node) { n.Meta = nil }, errInfo},
		{"garbage", "c", func(n *memberlist.Node) { n.Meta = []byte("garbage") }, errInfo},
		{"another's description", "c", func(n *memberlist.Node) { n.Name = "three.1" }, errMember},
		{"an odd address", "c", func(n *memberlist.Node) { n.Addr = []byte{1, 2, 3} }, errMember},
		{"no address", "c", func(n *memberlist.Node) { n.Addr = []byte{0, 0, 0, 0} }, errMember},
		{"no port", "c", func(n *memberlist.Node) { n.Port = 0 }, errMember},
		{"a network that is not allowed", "c", func(n *memberlist.Node) { n.Addr = []byte{192, 168, 0, 1} }, errMember},
	} {
		m := table(tt.cluster)
		m.allowed = func(a netip.Addr) bool { return a.As4()[0] == 10 }
		n := good()
		tt.change(n)
		if err := m.NotifyAlive(n); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestNotifyMerge(t *testing.T) {
	ours, foreign := libraryNode(t, node("c", "two", "1"), addrAt(2)),
		libraryNode(t, node("other", "three", "1"), addrAt(3))
	silent := libraryNode(t, node("c", "four", "1"), addrAt(4))
	silent.State = memberlist.StateDead
	for _, tt := range []struct {
		name  string
		nodes []*memberlist.Node
		want  error
	}{
		{"ours", []*memberlist.Node{ours}, nil},
		{"mixed", []*memberlist.Node{foreign, ours}, nil},
		{"foreign", []*memberlist.Node{foreign}, errForeign},
		{"foreign with a silent one of ours", []*memberlist.Node{foreign, silent}, errForeign},
		{"nobody", nil, errForeign},
	} {
		if err := table("c").NotifyMerge(tt.nodes); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestTableIsBounded(t *testing.T) {
	m := table("c")
	info := func(n int) Info { return node("c", fmt.Sprintf("n%d", n), "1") }
	addr := func(n int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), 7402)
	}
	for n := range membersMax {
		m.NotifyJoin(libraryNode(t, info(n), addr(n)))
	}
	m.NotifyJoin(libraryNode(t, info(membersMax), addr(membersMax)))
	if got := m.list(); len(got) != membersMax {
		t.Fatalf("%d members", len(got))
	}
	m.NotifyLeave(libraryNode(t, info(7), addr(7)))
	m.NotifyLeave(libraryNode(t, info(8), addr(8)))
	m.NotifyJoin(libraryNode(t, info(membersMax), addr(membersMax)))
	if m.byID["n7.1"] != nil || m.byID["n8.1"] == nil || m.byID[info(membersMax).ServerID] == nil {
		t.Error("a new node takes the place of the one that fell silent first")
	}
}

func TestChangesAreTold(t *testing.T) {
	two := libraryNode(t, node("c", "two", "1"), addrAt(2))
	told := func(m *members, what string, want bool, change func()) {
		t.Helper()
		ch := m.change()
		change()
		select {
		case <-ch:
			if !want {
				t.Errorf("%s: told of no change", what)
			}
		default:
			if want {
				t.Errorf("%s: not told", what)
			}
		}
	}
	m := table("")
	told(m, "itself", false, func() { m.NotifyJoin(libraryNode(t, m.self, addrAt(1))) })
	told(m, "join", true, func() { m.NotifyJoin(two) })
	told(m, "silence", true, func() { m.NotifyLeave(two) })
	told(m, "silence again", false, func() { m.NotifyLeave(two) })
	told(m, "return", true, func() { m.NotifyJoin(two) })
	told(m, "forget a live one", false, func() { m.forget("two.1") })
	told(m, "another cluster", true, func() { m.update(Info{Cluster: "other", Name: "self", ServerID: "self.1"}, nil) })
	if len(m.list()) != 0 || len(m.problems.list()) != 1 {
		t.Errorf("members %v, problems %v", m.list(), m.problems.list())
	}
	told(m, "a foreign one", false, func() { m.NotifyJoin(two) })
}
