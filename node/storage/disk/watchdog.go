package disk

import (
	"sync"
	"time"
)

// WatchdogLimit is the default time that a durable write may take. One election later, other nodes
// lead what the process led: with this limit, within 10 s of the moment at which the disk stopped.
const WatchdogLimit = 6 * time.Second

// Watchdog ends the process when a disk hangs. A leader whose append never returns keeps its
// leadership and its callers waiting for ever, because Raft's main loop itself is blocked. Only the
// end of the process helps.
//
// The limit runs on a timer's goroutine, so it fires although the writing goroutine never comes
// back. Only time in which the process runs counts: while a process or its machine is stopped, the
// disk has no time to answer. A nil *Watchdog watches nothing.
type Watchdog struct {
	limit time.Duration
	fire  func(op string, limit time.Duration)
}

// NewWatchdog returns a watchdog that calls fire, from its own goroutine, for each operation still
// running after limit; zero means WatchdogLimit. fire normally logs, stops the transport and ends
// the process. One watchdog may serve all groups of a process.
func NewWatchdog(limit time.Duration, fire func(op string, limit time.Duration)) *Watchdog {
	if limit <= 0 {
		limit = WatchdogLimit
	}
	return &Watchdog{limit: limit, fire: fire}
}

// watchSteps is the number of parts into which the limit is divided. A time in which the process
// stands still counts as one part at most.
const watchSteps = 12

// Begin starts watching one operation; the function it returns ends that and must be called once.
func (w *Watchdog) Begin(op string) (done func()) {
	if w == nil {
		return func() {}
	}
	return w.watchStep(op).stopWatch
}

// watch is one operation under way.
type watch struct {
	dog *Watchdog
	op  string

	mu    sync.Mutex
	timer *time.Timer
	steps int
}

func (w *Watchdog) watchStep(op string) *watch {
	v := &watch{dog: w, op: op}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.timer = time.AfterFunc(w.limit/watchSteps, v.step)
	return v
}

// step is called when a part of the limit has passed.
func (v *watch) step() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.timer == nil {
		return // it ended meanwhile
	}
	if v.steps++; v.steps < watchSteps {
		v.timer.Reset(v.dog.limit / watchSteps)
		return
	}
	go v.dog.fire(v.op, v.dog.limit)
}

// stopWatch ends the watch.
func (v *watch) stopWatch() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.timer.Stop()
	v.timer = nil
}
