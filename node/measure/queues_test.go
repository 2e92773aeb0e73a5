package measure

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// TestQueuesAreBounded: those beyond the bound are counted together.
func TestQueuesAreBounded(t *testing.T) {
	l := newQueues()
	for i := range QueuesMax + 5 {
		l.late(fmt.Sprint(i), time.Second)
	}
	l.late("0", time.Second)
	l.Ended([]fsm.Ending{{Queue: "0", State: fsm.Acked}, {Queue: "new", State: fsm.Dead}, {Queue: "0", State: fsm.Acked}})
	got := l.Value()
	if got["0"].Attempts.Count != 2 || got[OtherQueues].Attempts.Count != 1 {
		t.Errorf("%+v and %+v ended", got["0"].Attempts, got[OtherQueues].Attempts)
	}
	if len(got) != QueuesMax+1 || got[OtherQueues].LatenessSeconds.Count != 5 ||
		got["0"].LatenessSeconds.Count != 2 {
		t.Errorf("%d queues, %+v, %+v", len(got), got[OtherQueues], got["0"])
	}
	if l.Clear(); len(l.Value()) != 0 {
		t.Error("something is left")
	}
}
