package tracing

import (
	"strings"
	"testing"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestNoTracerDoesNothing: without a provider no operation, no header and no memory is made.
func TestNoTracerDoesNothing(t *testing.T) {
	none := New(Config{})
	put := &belfryv1.PutRequest{Queue: "q"}
	job := Job{Queue: "q", ID: "1"}
	if n := testing.AllocsPerRun(10, func() {
		_, sent, extra := none.Put(t.Context(), put)
		sent.EndPut(Put{ID: "1", Created: true}, nil)
		_, work := none.Process(t.Context(), job)
		_, acked := none.Settle(work.In(t.Context()), Ack, "", job)
		acked.End(nil)
		work.End(nil)
		if extra != 0 {
			t.Errorf("the put grew by %d bytes", extra)
		}
	}); n != 0 || put.GetHeaders() != nil {
		t.Errorf("%v allocations, headers %v", n, put.GetHeaders())
	}
}

// TestPutsThatCarry: a header of the caller's stays, and there must be room for another.
func TestPutsThatCarry(t *testing.T) {
	for name, try := range map[string]struct {
		headers map[string]string
		want    bool
	}{
		"none":            {nil, true},
		"others":          {map[string]string{"k": "v"}, true},
		"a parent":        {map[string]string{HeaderParent: ""}, false},
		"a state":         {map[string]string{HeaderState: "a=1"}, false},
		"room":            {map[string]string{"k": strings.Repeat("v", headerBytesMax-parentBytes-1)}, true},
		"a byte too much": {map[string]string{"k": strings.Repeat("v", headerBytesMax-parentBytes)}, false},
	} {
		if got := carries(&belfryv1.PutRequest{Headers: try.headers}); got != try.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
