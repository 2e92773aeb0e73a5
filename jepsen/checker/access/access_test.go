package access

import (
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// TestTouched: every command of clients that touches a queue is one that takes something on it.
func TestTouched(t *testing.T) {
	ref := fsm.Ref{Queue: "q"}
	for _, c := range []fsm.Command{
		&fsm.Put{Queue: "q"}, &fsm.Reserve{Queues: []string{"q"}}, &fsm.Ack{Ref: ref}, &fsm.Nack{Ref: ref},
		&fsm.Release{Ref: ref}, &fsm.Extend{Ref: ref},
		&fsm.Cancel{Queue: "q"}, &fsm.Reschedule{Queue: "q"}, &fsm.Redrive{Queue: "q"}, &fsm.Purge{Queue: "q"},
		&fsm.DeleteQueue{Queue: "q"},
	} {
		if act, queues := touched(c); act == "" || len(queues) != 1 || queues[0] != "q" {
			t.Errorf("%T touches %q of %q", c, act, queues)
		}
	}
}
