package fsm_test

import (
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/fsmtest"
)

// TestQueueOfEveryCommand: a command without a queue is listed here, so a new one must have its
// case in QueueOf.
func TestQueueOfEveryCommand(t *testing.T) {
	without := map[fsm.Kind]bool{fsm.KindExpire: true, fsm.KindLead: true, fsm.KindResetClock: true, fsm.KindImport: true}
	for _, c := range fsmtest.EveryCommand() {
		if got := fsm.QueueOf(c); (got == "") != without[c.Kind()] {
			t.Errorf("%T names the queue %q", c, got)
		}
	}
	if got := fsm.QueueOf(&fsm.Reserve{}); got != "" {
		t.Errorf("a Reserve of no queue names %q", got)
	}
}
