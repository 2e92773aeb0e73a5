package storage

import (
	"time"
)

// WatchdogLimit is the default time a durable write may take. Others lead what the process led one election later: with this limit
// within 10 s of the moment at which the disk stopped.
const WatchdogLimit = 6 * time.Second

// Watchdog ends the process when a disk hangs. A leader whose append never returns keeps its leadership and its
// callers waiting for ever, because Raft's main loop is the one that is blocked; only leaving helps.
//
// The expiry runs on a timer's goroutine, so it fires although the writing goroutine never comes back.
// A nil *Watchdog watches nothing.
type Watchdog struct {
	limit time.Duration
	fire  func(op string, limit time.Duration)
}

// NewWatchdog returns a watchdog that calls fire, from its own goroutine, for each operation still running after
// limit; zero means WatchdogLimit. fire normally logs, stops the transport and ends the process. One watchdog may
// serve all groups of a process.
func NewWatchdog(limit time.Duration, fire func(op string, limit time.Duration)) *Watchdog {
	if limit <= 0 {
		limit = WatchdogLimit
	}
	return &Watchdog{limit: limit, fire: fire}
}

// Begin starts watching one operation; the function it returns ends that and must be called once.
func (w *Watchdog) Begin(op string) (done func()) {
	if w == nil {
		return func() {}
	}
	t := time.AfterFunc(w.limit, func() { w.fire(op, w.limit) })
	return func() { t.Stop() }
}
