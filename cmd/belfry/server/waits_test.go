package server

import (
	"strings"
	"testing"
)

// TestWaitText: it names the nodes that are missing, what was tried, what was found there, and what
// to type.
func TestWaitText(t *testing.T) {
	got := waitText([]string{"10.0.0.1:7402"}, []string{"n2 (last at 10.0.0.2:7401)", "n3"},
		[]string{"nobody answers at join address 10.0.0.1:7402"})
	for _, want := range []string{
		"n2 (last at 10.0.0.2:7401), n3", "tried --join 10.0.0.1:7402", "nobody answers at join address 10.0.0.1:7402",
		"start this node again with --join", "7402",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in: %s", want, got)
		}
	}
	if got := waitText(nil, []string{"n2"}, nil); !strings.Contains(got, "--join is empty") {
		t.Error(got)
	}
	if got := waitText(nil, nil, nil); !strings.Contains(got, "all nodes that this data directory knows are heard of") {
		t.Error(got)
	}
}
