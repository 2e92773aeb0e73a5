package cluster

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestLeaderCompletesWhatAnotherNodeBegan has a node end, or lose its way, right after it had a creation and a deletion logged.
func TestLeaderCompletesWhatAnotherNodeBegan(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		leader, others := leads(t, GroupName, all)
		begin := func(cmd command) {
			t.Helper()
			if out, err := others[0].cluster.propose(t.Context(), cmd); err != nil || out.verdict != done {
				t.Fatalf("%+v, %v", out, err)
			}
		}
		begin(command{Create: &queueRecord{Name: "wide", Partitions: testShards}})
		await(t, "the creation to be completed", func() bool {
			q, _ := leader.cluster.Queue("wide")
			return q.State == Active
		})
		begin(command{Delete: &versioned{Name: "wide"}})
		await(t, "the end to be completed", func() bool {
			_, recorded := leader.cluster.Queue("wide")
			return !recorded
		})
	})
}

// TestChangesWithoutEndPutNothingOff changes one queue more often than the leader looks, while the creation of another one is to be completed.
func TestChangesWithoutEndPutNothingOff(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newMember(t, newPipes(), dir, "a", nil)
		if _, err := a.cluster.propose(t.Context(), command{Create: &queueRecord{Name: "wide", Partitions: testShards}}); err != nil {
			t.Fatal(err)
		}
		busy := time.NewTicker(reconcileInterval / 2)
		defer busy.Stop()
		for i := range 10 {
			<-busy.C
			if _, err := a.cluster.propose(t.Context(), command{Configure: &configuration{Name: fmt.Sprintf("q%d", i)}}); err != nil {
				t.Fatal(err)
			}
		}
		if q, _ := a.cluster.Queue("wide"); q.State != Active {
			t.Errorf("the queue is %s", q.State)
		}
	})
}
