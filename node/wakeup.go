package node

// wakeup wakes the one goroutine that receives from it. Signals sent before it receives are one signal.
type wakeup chan struct{}

func newWakeup() wakeup { return make(wakeup, 1) }

// signal wakes the receiver. It never blocks.
func (w wakeup) signal() {
	select {
	case w <- struct{}{}:
	default:
	}
}
