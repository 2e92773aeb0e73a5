package fsm

import "testing"

// TestQueueOfEveryCommand: a command without a queue is listed here, so a new one must have its case in QueueOf.
func TestQueueOfEveryCommand(t *testing.T) {
	without := map[Kind]bool{KindExpire: true, KindLead: true, KindResetClock: true, KindImport: true}
	for _, c := range everyCommand() {
		if got := QueueOf(c); (got == "") != without[c.Kind()] {
			t.Errorf("%T names the queue %q", c, got)
		}
	}
	if got := QueueOf(&Reserve{}); got != "" {
		t.Errorf("a Reserve of no queue names %q", got)
	}
}
