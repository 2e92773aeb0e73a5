package demo

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// kind is what happened to a job.
type kind uint8

// The kinds, roughly in the order of a life.
const (
	wasPut kind = iota
	wasPutAgain
	wasRescheduled
	rang
	wasExtended
	wasRefused
	hasFailed
	hasLapsed
	wasDone
	wasCancelled
	hasDied
	wasRedriven
	// These happen to a node, not to a job.
	hasStopped
	hasReturned
)

// weight says how much an event tells: the more, the higher.
func (k kind) weight() int {
	switch k {
	case hasDied, wasDone, wasCancelled:
		return 4
	case wasRedriven, hasLapsed, hasFailed:
		return 3
	case rang, wasRescheduled, wasPutAgain, wasPut:
		return 2
	default: // wasExtended, wasRefused
		return 1
	}
}

// event is something that happened.
type event struct {
	at  time.Duration // since the start of the demo
	job string
	is  kind
	// due is when the job will ring next, since the start; 0 if it will not.
	due time.Duration
	// late is how late it rang.
	late time.Duration
	// by is the consumer that holds the job.
	by      string
	attempt int
	fence   uint64
	// text is what there is to say beyond that.
	text string
}

// lane is the life of one job of the story.
type lane struct {
	job    string
	about  string
	events []event
}

// last returns the latest event; ok is false before the first.
func (l *lane) last() (event, bool) {
	if len(l.events) == 0 {
		return event{}, false
	}
	return l.events[len(l.events)-1], true
}

// board is what has happened so far. Its methods may be called from any goroutine.
type board struct {
	began  time.Time
	length time.Duration

	mu    sync.Mutex
	lanes []*lane
	// log has the events of all lanes in the order in which they were noted.
	log []event
	// rings are the moments at which jobs of the choir rang, late how late every job rang at its first
	// attempt or retry.
	rings []time.Duration
	late  []time.Duration
	early int
	choir int // how many jobs the choir has
	turns []turn
}

// turn is a node that stopped or came back.
type turn struct {
	at      time.Duration
	node    string
	stopped bool
}

// turn notes that a node stopped or came back.
func (b *board) turn(t turn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turns = append(b.turns, t)
	is := hasReturned
	if t.stopped {
		is = hasStopped
	}
	b.log = append(b.log, event{at: t.at, job: t.node, is: is})
}

func newBoard(began time.Time, length time.Duration) *board {
	return &board{began: began, length: length}
}

// since returns a moment as the board counts time.
func (b *board) since(t time.Time) time.Duration { return t.Sub(b.began) }

// cast gives a job of the story its lane.
func (b *board) cast(job, about string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lanes = append(b.lanes, &lane{job: job, about: about})
}

// note writes an event down.
func (b *board) note(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.lanes, func(l *lane) bool { return l.job == e.job })
	if i < 0 {
		return // no job of the story
	}
	if e.due == 0 {
		if last, ok := b.lanes[i].last(); ok && (e.is == wasPutAgain || e.is == wasRefused) {
			e.due = last.due // changes nothing
		}
	}
	b.lanes[i].events = append(b.lanes[i].events, e)
	b.log = append(b.log, e)
	if e.is == rang {
		b.count(e.late)
	}
}

// ring notes that a job of the choir rang.
func (b *board) ring(at, late time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rings = append(b.rings, at)
	b.count(late)
}

func (b *board) count(late time.Duration) {
	if late < 0 {
		b.early++
	}
	b.late = append(b.late, max(0, late))
}

// gather says how many jobs the choir has.
func (b *board) gather(jobs int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.choir = jobs
}

// view is a copy of the board at one moment, for drawing.
type view struct {
	now    time.Duration
	length time.Duration
	lanes  []lane
	log    []event
	rings  []time.Duration
	late   []time.Duration
	early  int
	choir  int
	turns  []turn
}

func (b *board) view(now time.Time) view {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := view{now: b.since(now), length: b.length, early: b.early, choir: b.choir}
	for _, l := range b.lanes {
		v.lanes = append(v.lanes, lane{l.job, l.about, slices.Clone(l.events)})
	}
	v.log, v.rings, v.late, v.turns = slices.Clone(b.log), slices.Clone(b.rings), slices.Clone(b.late),
		slices.Clone(b.turns)
	return v
}

// check reports what did not go as it must: a job that rang early, or one whose life has not ended.
func (b *board) check() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var problems []error
	if b.early > 0 {
		problems = append(problems, fmt.Errorf("%d jobs rang before their time", b.early))
	}
	if missing := b.choir - len(b.rings); missing != 0 {
		problems = append(problems, fmt.Errorf("of the choir's %d jobs %d did not ring once", b.choir, missing))
	}
	for _, l := range b.lanes {
		if last, ok := l.last(); !ok || last.is != wasDone && last.is != wasCancelled {
			problems = append(problems, fmt.Errorf("%s did not come to its end", l.job))
		}
	}
	return errors.Join(problems...)
}

// quantile returns the lateness that a share q of the jobs did not exceed.
func quantile(late []time.Duration, q float64) time.Duration {
	if len(late) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(late))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
