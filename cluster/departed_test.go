package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/fsm"
)

// TestRemovedNodeReturns starts a removed node again on its old data, or reconnects one that was
// cut off meanwhile. The node learns of its removal and gets nothing, and no group keeps electing
// because of it.
func TestRemovedNodeReturns(t *testing.T) {
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut off %v", cut), func(t *testing.T) { removedNodeReturns(t, cut) })
	}
}

func removedNodeReturns(t *testing.T, cut bool) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network, a, b, c := three(t, dir)
		removed := c.id()
		if cut {
			network.Isolate("c")
		} else {
			c.stop()
		}
		await(t, "the removal", func() bool { return a.cluster.Remove(t.Context(), removed) == nil })
		await(t, "shards of two", func() bool { return settled(a.cluster, 2, a, b) && len(catalogVoters(a, b)) == 2 })
		<-time.After(time.Minute) // the leaderships are spread evenly
		before := termsOf(a, b)
		if cut {
			network.Reconnect("c")
		} else {
			c.start(nil)
			c.known.Hear(a.id(), a.addr) // as gossip says
		}
		left := c.awaitLeft()
		select {
		case <-c.cluster.Confirmed():
			if !cut {
				t.Error("it took itself for a node of the cluster")
			}
		default:
			if cut {
				t.Error("before it was cut off it was never sure to be a node of the cluster")
			}
		}
		if left.ServerID != removed || left.Replacement != "" || left.ClusterID != a.node.Status().ClusterID ||
			!strings.Contains(left.Error(), "was removed from cluster") {
			t.Errorf("it is told %v", left)
		}
		<-time.After(time.Minute)
		if n := a.cluster.Nodes(); len(n) != 2 || slices.ContainsFunc(n, func(n catalog.Node) bool {
			return n.ServerID == removed
		}) {
			t.Errorf("the nodes are %+v", n)
		}
		for _, g := range c.report().Groups {
			if g.Serving {
				t.Errorf("the removed node leads %s", g.Group)
			}
		}
		for group, term := range termsOf(a, b) {
			if term > before[group]+1 { // a server that comes back every second would cost an election every time
				t.Errorf("the term of %s was %d before the return and is %d", group, before[group], term)
			}
		}
	})
}

// termsOf returns the terms of all groups that the members lead.
func termsOf(all ...*member) map[string]uint64 {
	terms := map[string]uint64{}
	for _, m := range all {
		for _, g := range m.report().Groups {
			if g.Serving {
				terms[g.Group] = g.Term
			}
		}
	}
	return terms
}

// TestRecordedNodeKeepsItsName: a node whose address changed is recorded anew although another one
// of its name answers.
func TestRecordedNodeKeepsItsName(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		twin := catalog.Node{Name: "b", ServerID: "b.twin", PeerAddr: "nowhere", Format: fsm.LatestFormat}
		if err := all[0].cluster.Admit(t.Context(), twin, all[1].id()); err != nil {
			t.Fatal(err)
		}
		twin.PeerAddr = "elsewhere"
		if answer, err := all[0].cluster.members.answerJoin(t.Context(), twin.ServerID, joinCall{Node: twin}); err != nil ||
			answer.Departed != nil {
			t.Errorf("a recorded node at another address: %+v, %v", answer, err)
		}
		imposter := catalog.Node{Name: "b", ServerID: "b.imposter"}
		if _, err := all[0].cluster.members.answerJoin(t.Context(), imposter.ServerID, joinCall{Node: imposter}); err == nil {
			t.Error("an imposter got the name of a node that answers")
		}
		if _, err := all[0].cluster.members.answerJoin(t.Context(), "b.other", joinCall{Node: imposter}); err == nil {
			t.Error("one was admitted for another")
		}
	})
}
