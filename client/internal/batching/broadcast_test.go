package batching

import "testing"

// TestBroadcastIsSentOnce, also if callers of two batches share it.
func TestBroadcastIsSentOnce(t *testing.T) {
	var arrivals Group
	var all Broadcasts
	for range 5 {
		all.Add(arrivals.Join(2))
	}
	if len(all) != 3 {
		t.Errorf("5 callers have %d broadcasts", len(all))
	}
	all.Send()
	all.Send()
	for _, b := range all {
		<-b.c
	}
}
