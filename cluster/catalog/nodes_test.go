package catalog

import (
	"slices"
	"testing"
)

// TestNameOfANodeInTheCatalog is given to another node only if the first is known not to answer.
func TestNameOfANodeInTheCatalog(t *testing.T) {
	first, moved := Node{Name: "x", ServerID: "x.1"}, Node{Name: "x", ServerID: "x.1", PeerAddr: "elsewhere"}
	second, other := Node{Name: "x", ServerID: "x.2"}, Node{Name: "y", ServerID: "y.1"}
	tests := []struct {
		name     string
		commands []command
		want     verdict
		recorded []Node
	}{
		{"another name", []command{{Join: &first}, {Join: &other}}, done, []Node{first, other}},
		{"the same node again", []command{{Join: &first}, {Join: &moved}}, done, []Node{moved}},
		{"nobody was asked", []command{{Join: &first}, {Join: &second}}, taken, []Node{first}},
		{"somebody else is silent", []command{{Join: &first}, {Join: &second, Silent: []string{"x.0"}}}, taken,
			[]Node{first}},
		{"it is silent", []command{{Join: &first}, {Join: &second, Silent: []string{"x.1"}}}, done, []Node{first, second}},
		{"one of two is silent", []command{
			{Join: &first}, {Join: &second, Silent: []string{"x.1"}},
			{Join: &Node{Name: "x", ServerID: "x.3"}, Silent: []string{"x.1"}},
		}, taken, []Node{first, second}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine()
			if got := apply(t, m, tt.commands...); got.verdict != tt.want || !slices.Equal(m.state.Nodes, tt.recorded) {
				t.Errorf("verdict %d, recorded %+v", got.verdict, m.state.Nodes)
			}
		})
	}
}

// TestDrainsAtTheSameTime: two drains, each of which leaves enough nodes by itself, do not leave
// too few together.
func TestDrainsAtTheSameTime(t *testing.T) {
	m := newMachine()
	for _, name := range []string{"a", "b", "c", "d"} {
		apply(t, m, command{Join: &Node{Name: name, ServerID: name + ".1"}})
	}
	ask := func(server string, draining bool, keep int) verdict {
		return apply(t, m, command{Drain: &drain{ServerID: server, Draining: draining, Keep: keep}}).verdict
	}
	for i, step := range []struct {
		server   string
		draining bool
		keep     int
		want     verdict
	}{
		{"d.1", true, 3, done},
		{"c.1", true, 3, needed},
		{"d.1", true, 3, done}, // again
		{"c.1", true, 0, done}, // forced
		{"a.1", true, 2, needed},
		{"c.1", false, 3, done},
		{"c.1", true, 2, done},
		{"x.1", true, 3, overtaken},
	} {
		if got := ask(step.server, step.draining, step.keep); got != step.want {
			t.Errorf("drain %d, %+v: verdict %d", i, step, got)
		}
		if at, found := m.findNode(step.server); found && step.want == needed && m.state.Nodes[at].Draining {
			t.Errorf("drain %d was refused, and the node drains", i)
		}
	}
}
