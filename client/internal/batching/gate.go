// Package batching decides when the batches of a client leave: it has their slots, a gate through
// which batches of several kinds leave together, and broadcasts that wake callers.
package batching

import (
	"sync"
	"time"
)

// HoldMax is how long a batch or a call is held back for others that are out: their shard may have
// no leader.
const HoldMax = 20 * time.Millisecond

// A Gate makes batches of several kinds leave together: puts, acks, and polls that do not wait.
// Without it, callers that reserve and callers that ack would send their batches alternately, and
// each batch costs the servers a log entry and a sync. Batches leave in rounds. A round ends when
// all its batches are answered, or after HoldMax; the next round takes every batch that waits by
// then.
//
// The zero value is ready for use.
type Gate struct {
	mu      sync.Mutex
	round   uint64 // the number of the round under way, or of the last one
	began   time.Time
	running int           // batches of the round without an answer
	waiting int           // batches for the next round
	opened  chan struct{} // closed when the next round starts; nil while no batch waits
	timer   *time.Timer
	armed   bool
}

// Leave ends a batch's part in a round, without another batch to come. A round of 0 is none.
func (g *Gate) Leave(round uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endPart(round)
	if g.running == 0 && g.waiting > 0 {
		g.startRound()
	}
}

// Pass ends a batch's part in a round, 0 for none, and waits until another batch may leave with the
// next round. It returns that round's number.
func (g *Gate) Pass(round uint64) uint64 {
	g.mu.Lock()
	g.endPart(round)
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

// endPart counts a batch out of its round. Batches of an earlier round are not counted any more.
// Called with mu held.
func (g *Gate) endPart(round uint64) {
	if round == g.round && round > 0 {
		g.running--
	}
}

// startRound starts the next round. Called with mu held.
func (g *Gate) startRound() {
	g.round++
	g.began, g.running, g.waiting = time.Now(), g.waiting, 0
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

// armTimer calls overdue when the round has lasted longer than HoldMax. Called with mu held.
func (g *Gate) armTimer() {
	if g.armed {
		return
	}
	g.armed = true
	left := HoldMax - time.Since(g.began) + 1
	if g.timer == nil {
		g.timer = time.AfterFunc(left, g.overdue)
		return
	}
	g.timer.Reset(left)
}

// overdue starts the next round if the one under way has lasted longer than HoldMax.
func (g *Gate) overdue() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = false
	switch {
	case g.waiting == 0:
	case time.Since(g.began) > HoldMax:
		g.startRound()
	default:
		g.armTimer()
	}
}
