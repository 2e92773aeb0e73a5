package cluster

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
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
		{"somebody else is silent", []command{{Join: &first}, {Join: &second, Silent: []string{"x.0"}}}, taken, []Node{first}},
		{"it is silent", []command{{Join: &first}, {Join: &second, Silent: []string{"x.1"}}}, done, []Node{first, second}},
		{"one of two is silent", []command{
			{Join: &first}, {Join: &second, Silent: []string{"x.1"}}, {Join: &Node{Name: "x", ServerID: "x.3"}, Silent: []string{"x.1"}},
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

// TestTwoNewNodesOfOneName ask two nodes at the same time, which both find the name free.
func TestTwoNewNodesOfOneName(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		admitted := make(chan error, 2)
		for i, joining := range []Node{{Name: "x", ServerID: "x.1", Format: fsm.LatestFormat}, {Name: "x", ServerID: "x.2", Format: fsm.LatestFormat}} {
			go func() { admitted <- all[i].cluster.Admit(t.Context(), joining) }()
		}
		one, other := <-admitted, <-admitted
		if (one == nil) == (other == nil) || !errors.Is(errors.Join(one, other), ErrNameTaken) {
			t.Errorf("the two were answered %v and %v", one, other)
		}
	})
}

// TestCallsThatAreNotUnderstood are not carried out, and the caller knows.
func TestCallsThatAreNotUnderstood(t *testing.T) {
	for status, want := range map[int]node.Outcome{
		http.StatusBadRequest: node.NotApplied, http.StatusNotFound: node.NotApplied, http.StatusMethodNotAllowed: node.NotApplied,
		http.StatusInternalServerError: node.Unknown, http.StatusBadGateway: node.Unknown,
	} {
		if got := node.OutcomeOf(readPeerError(status, []byte("no"))); got != want {
			t.Errorf("status %d: %v, want %v", status, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		startPeers(t, network.link("b"))
		a := startPeers(t, network.link("a"))
		if _, err := callPeer[Report](t.Context(), a, "b", "/later", struct{}{}); node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("a call that the other node does not know: %v", err)
		}
	})
}
