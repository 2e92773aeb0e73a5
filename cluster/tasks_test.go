package cluster

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/bulk"
	"github.com/belfrydb/belfry/node"
)

// TestOnlyTheLeaderRecordsProgress: a member that leads the catalog no more cannot set back what the
// next leader has recorded. All members can begin and stop a task.
func TestOnlyTheLeaderRecordsProgress(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		if err := put(tr.all[0], "orders"); err != nil {
			t.Fatal(err)
		}
		recorded := 0
		for _, m := range tr.all {
			c := m.cluster
			task := bulk.Task{ID: m.name, Queue: "orders", State: fsm.Dead, Act: bulk.Redrive}
			if err := c.StartTask(t.Context(), task); err != nil {
				t.Fatalf("%s: %v", m.name, err)
			}
			if err := c.StopTask(t.Context(), m.name); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
			err := c.AdvanceTask(t.Context(), m.name, bulk.Progress{Matched: 1})
			if !errors.Is(err, node.ErrNotLeader) {
				recorded++ // or the leader's runner has ended it by now
			}
		}
		if recorded != 1 {
			t.Errorf("%d members recorded progress", recorded)
		}
	})
}
