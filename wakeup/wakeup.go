// Package wakeup has the channel that wakes a goroutine.
package wakeup

// Signal wakes the one goroutine that receives from it. Signals sent before it receives are one.
type Signal chan struct{}

// New returns a Signal.
func New() Signal { return make(Signal, 1) }

// Send wakes the receiver. It never blocks, and may be called from any goroutine.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
