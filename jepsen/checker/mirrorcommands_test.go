package checker

import (
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/checker/mirror"
)

// TestCommandsOfTheMirror: the mirror sends no Configure and no Open, so the checker judges those
// of its queues.
func TestCommandsOfTheMirror(t *testing.T) {
	for _, tt := range []struct {
		command fsm.Command
		want    bool
	}{
		{&fsm.Put{Queue: mirror.Queues + "x"}, true},
		{&fsm.Reserve{Queues: []string{mirrorControl + "x"}}, true},
		{&fsm.Ack{Ref: fsm.Ref{Queue: mirror.Queues + "x"}}, true},
		{&fsm.Put{Queue: "orders"}, false},
		{&fsm.Reserve{}, false},
		{&fsm.Configure{Queue: mirror.Queues + "x"}, false},
		{&fsm.Open{Queue: mirrorControl + "x"}, false},
	} {
		if got := (&check{mirrored: true}).ofMirror(tt.command); got != tt.want {
			t.Errorf("%T of %q: %v, want %v", tt.command, fsm.QueueOf(tt.command), got, tt.want)
		}
	}
}
