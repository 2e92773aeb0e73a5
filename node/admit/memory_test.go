package admit

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// TestMemoryNeverFallsBelowZero: an entry that frees much while the sum over the machines is made
// anew is taken off twice until the next look.
func TestMemoryNeverFallsBelowZero(t *testing.T) {
	m := NewMemory(MemoryBytesMin, nil, slog.New(slog.DiscardHandler))
	var one MachineMemory
	m.Follow(&one, fsm.Memory{Held: 10 << 20, Promised: 10 << 20})
	m.held.Store(1 << 20)
	m.promised.Store(1 << 20)
	m.Follow(&one, fsm.Memory{Held: 1 << 20, Promised: 1 << 20})
	if used, held := m.used(); used != 0 || held != 0 || m.full.Load() || m.critical.Load() {
		t.Errorf("used %d, held %d, full %t, critical %t", used, held, m.full.Load(), m.critical.Load())
	}
}

// TestReportsOfPeersAreForgotten: a report counts for a while, and only of a voter.
func TestReportsOfPeersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(0, nil, slog.New(slog.DiscardHandler))
		var full *MemoryError
		judge := func(fullest func([]string) *MemoryError) { full = fullest([]string{"n1.1", "n9.1"}) }
		review := func() { m.ReviewPeers(func() map[string]bool { return map[string]bool{"n1.1": true} }, judge) }
		m.NotePeer("n1.1", &MemoryError{90, 100}, nil, judge)
		m.NotePeer("n9.1", &MemoryError{99, 100}, nil, judge)
		if full == nil || full.Used != 99 {
			t.Errorf("the fullest is %v", full)
		}
		if review(); full == nil || full.Used != 90 {
			t.Errorf("among the voters the fullest is %v", full)
		}
		time.Sleep(peerMemoryFor)
		if review(); full != nil {
			t.Errorf("after a while %v still counts", full)
		}
	})
}
