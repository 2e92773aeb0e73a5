package machine_test

import (
	"fmt"
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// TestModelSnapshotOfManyAnswers takes a snapshot when most of thousands of remembered requests
// were swept, and fills their records while it is open. Random events get there too seldom.
func TestModelSnapshotOfManyAnswers(t *testing.T) {
	t.Parallel()
	requests := func(name string, n int) []fsm.Request {
		list := make([]fsm.Request, n)
		for i := range list {
			list[i] = fsm.Request{Caller: "x", ID: fmt.Sprintf("%s%d", name, i), Commands: do(put(""))}
		}
		return list
	}
	const many = 3*fsm.SweepMax + 500
	past := after(fsm.RequestWindow + 1)
	d := newDuel(fsm.Config{}, asItIs())
	for i, e := range []event{
		{stamp: start, requests: requests("old", many)},
		{stamp: past}, // sweeps SweepMax
		{stamp: past},
		{stamp: past, snapshot: writtenLater, requests: requests("new", many)},
		{stamp: past, snapshot: writtenBeside, requests: requests("newer", many)},
		{stamp: past, snapshot: restored, requests: requests("newest", 10)},
	} {
		if _, err := d.step(&e); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
}
