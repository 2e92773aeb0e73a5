package peer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

func TestFurthestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trans := &Transport{followers: map[raft.ServerID]Progress{}}
		confirm := func(id raft.ServerID, term, index uint64) {
			trans.confirmed(id, &raft.AppendEntriesRequest{Term: term, PrevLogEntry: index})
		}
		expect := func(what string, want raft.ServerID, among ...raft.ServerID) {
			t.Helper()
			if got, ok := trans.Furthest(among, 3); got != want || ok != (want != "") {
				t.Errorf("%s: %q, %v, want %q", what, got, ok, want)
			}
		}
		expect("nobody was heard of", "", "a", "b")
		confirm("a", 3, 10)
		confirm("b", 3, 12)
		confirm("c", 2, 99)
		confirm("d", 3, 50)
		expect("the one that came further", "b", "a", "b", "c")
		expect("in any order", "b", "b", "a", "c")
		expect("only one that may lead", "a", "a", "x")
		confirm("a", 3, 15)
		confirm("a", 3, 0) // a heartbeat takes nothing back
		expect("who overtook", "a", "a", "b")
		time.Sleep(aliveWithin + time.Millisecond)
		expect("all are silent", "", "a", "b", "d")
		confirm("b", 3, 0)
		expect("who still answers", "b", "a", "b", "d")
		confirm("a", 4, 1)
		expect("a later term is another leader's", "b", "a", "b")
	})
}
