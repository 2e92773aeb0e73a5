package catalog

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestChangesWithoutEndPutNothingOff changes one queue more often than the leader looks, while the
// creation of another one is to be completed.
func TestChangesWithoutEndPutNothingOff(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, c, _ := open(t, dir)
		if _, err := c.propose(t.Context(), command{Create: &queueRecord{Name: "wide", Partitions: 3}}); err != nil {
			t.Fatal(err)
		}
		busy := time.NewTicker(reconcileInterval / 2)
		defer busy.Stop()
		for i := range 10 {
			<-busy.C
			if _, err := c.propose(t.Context(), command{Configure: &configuration{Name: fmt.Sprintf("q%d", i)}}); err != nil {
				t.Fatal(err)
			}
		}
		if q, _ := c.Queue("wide"); q.State != Active {
			t.Errorf("the queue is %s", q.State)
		}
	})
}
