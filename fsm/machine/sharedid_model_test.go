package machine_test

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// TestModelScenarioSharedID: in a queue with several partitions each key may have a job of an id. A
// command without a key means the one with the lowest serial, a redrive the first that is DEAD.
func TestModelScenarioSharedID(t *testing.T) {
	t.Parallel()
	of := func(key string) func(*fsm.Put) { return func(p *fsm.Put) { p.Key = key } }
	x := func(key string) *fsm.Put { return put("x", into("q", 0, 4), of(key)) }
	cancelOf := func(key string) *fsm.Cancel { return &fsm.Cancel{Queue: "q", ID: "x", Key: key} }
	dead := nack(2, 6)
	dead.Dead = true
	redrive := &fsm.Redrive{Queue: "q", IDs: []string{"x"}}
	gone := func(state fsm.State) fsm.Result { return fsm.Result{Code: fsm.JobNotFound, State: state} }
	runScenarios(t, []scenario{{name: "each key has its own", steps: []step{
		{format: fsm.KeysFormat, do: do(&fsm.Open{Queue: "q", Partitions: 4}, x("a"), x("b"), x("c"), x(""), x("b")),
			want: results(opened(), created(1, fsm.Ready, 0), created(2, fsm.Ready, 0), created(3, fsm.Ready, 0),
				created(4, fsm.Ready, 0), met(2, fsm.Ready, 0))},
		{do: do(reserve(2), redrive), want: results(
			granted(lease(1, 5, 0, 30*time.Second), lease(2, 6, 0, 30*time.Second)), count(0))},
		{do: do(dead, x("b"), cancelOf(""), redrive, redrive, cancelOf("b")), want: results(
			ended(fsm.Dead), met(2, fsm.Dead, 0), reserved(), count(1), count(0), ended(fsm.Ready))},
		{do: do(cancelOf("b"), cancelOf("c"), ack(1, 5), cancelOf(""), cancelOf(""), cancelOf("c"), x("b")), want: results(
			gone(fsm.Cancelled), ended(fsm.Ready), acked(), ended(fsm.Ready), gone(fsm.Acked), gone(fsm.Cancelled),
			met(2, fsm.Cancelled, 0))},
	}}})
}
