package client

import (
	"sync"
	"time"
)

// A batchGate makes batches of several kinds leave together: puts, acks, and polls that do not wait.
// Without it, callers that reserve and callers that ack would send their batches alternately, and
// each batch costs the servers a log entry and a sync. Batches leave in rounds. A round ends when all
// its batches are answered, or after holdMax; the next round takes every batch that waits by then.
//
// The zero value is ready for use.
type batchGate struct {
	mu      sync.Mutex
	round   uint64 // the number of the round under way, or of the last one
	began   time.Time
	running int           // batches of the round without an answer
	waiting int           // batches for the next round
	opened  chan struct{} // closed when the next round starts; nil while no batch waits
	timer   *time.Timer
	armed   bool
}

// pass ends a batch's part in a round; round is 0 for a batch that had none. If another batch is to
// leave, pass waits for the next round and returns its number, else it returns 0.
func (g *batchGate) pass(round uint64, another bool) uint64 {
	g.mu.Lock()
	if round == g.round && round > 0 {
		g.running-- // the batches of an earlier round are not counted any more
	}
	if !another {
		if g.running == 0 && g.waiting > 0 {
			g.startRound()
		}
		g.mu.Unlock()
		return 0
	}
	round = g.round + 1
	g.waiting++
	if g.running == 0 {
		g.startRound()
		g.mu.Unlock()
		return round
	}
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
	opened := g.opened
	g.armTimer()
	g.mu.Unlock()
	<-opened
	return round
}

// startRound starts the next round. Called with mu held.
func (g *batchGate) startRound() {
	g.round++
	g.began, g.running, g.waiting = time.Now(), g.waiting, 0
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

// armTimer calls overdue when the round has lasted longer than holdMax. Called with mu held.
func (g *batchGate) armTimer() {
	if g.armed {
		return
	}
	g.armed = true
	left := holdMax - time.Since(g.began) + 1
	if g.timer == nil {
		g.timer = time.AfterFunc(left, g.overdue)
		return
	}
	g.timer.Reset(left)
}

// overdue starts the next round if the one under way has lasted longer than holdMax.
func (g *batchGate) overdue() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = false
	switch {
	case g.waiting == 0:
	case time.Since(g.began) > holdMax:
		g.startRound()
	default:
		g.armTimer()
	}
}
