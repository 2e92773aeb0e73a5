package client

import (
	"sync"
	"time"
)

// Turns have the batches of several kinds leave together: puts, acks, and polls that do not wait. Callers that reserve and ack, half of them here and half
// there, would else have two batches by turns on their way, each of which costs the servers an entry of the log and the sync of it. A turn ends when all that
// left in it are answered, or when it has taken long; then the next one begins with all that wait for it.
//
// The zero value is ready for use.
type turns struct {
	mu      sync.Mutex
	number  uint64 // of the turn under way, or of the last one
	began   time.Time
	out     int           // batches of it that were not answered
	waiting int           // batches for the next one
	next    chan struct{} // closed when it begins; nil while nothing waits
	alarm   *time.Timer
	armed   bool
}

// take ends a batch's part in the turn of a number, 0 for none. If another batch is to leave in a turn, it waits for that and returns its number, else 0.
func (t *turns) take(number uint64, another bool) uint64 {
	t.mu.Lock()
	if number == t.number && number > 0 {
		t.out-- // one that was too slow is not counted any more
	}
	if !another {
		if t.out == 0 && t.waiting > 0 {
			t.begin()
		}
		t.mu.Unlock()
		return 0
	}
	number = t.number + 1
	t.waiting++
	if t.out == 0 {
		t.begin()
		t.mu.Unlock()
		return number
	}
	if t.next == nil {
		t.next = make(chan struct{})
	}
	next := t.next
	t.arm()
	t.mu.Unlock()
	<-next
	return number
}

// begin begins a turn. Called with mu held.
func (t *turns) begin() {
	t.number++
	t.began, t.out, t.waiting = time.Now(), t.waiting, 0
	if t.next != nil {
		close(t.next)
		t.next = nil
	}
}

// arm has overdue called when the turn has taken long. Called with mu held.
func (t *turns) arm() {
	if t.armed {
		return
	}
	t.armed = true
	left := waveMax - time.Since(t.began) + 1
	if t.alarm == nil {
		t.alarm = time.AfterFunc(left, t.overdue)
		return
	}
	t.alarm.Reset(left)
}

// overdue begins the next turn if the one under way has taken long.
func (t *turns) overdue() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.armed = false
	switch {
	case t.waiting == 0:
	case time.Since(t.began) > waveMax:
		t.begin()
	default:
		t.arm()
	}
}
