// Package scheduler proposes the firings of the schedules of a shard. See DESIGN.md beside this file.
package scheduler

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/schedules"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/wakeup"
)

const (
	// roundMax bounds the schedules that one round reads, and so the time for which it holds up the
	// shard: a few milliseconds.
	roundMax = 1000
	// commandsMax bounds the commands of one request, and fsm.FiringsBytesMax the bytes of what they
	// change.
	commandsMax = 1000
	// requestsAtOnce bounds the requests of a round that wait for their entries together.
	requestsAtOnce = 16
	// roundFirings bounds the firings of a round, put and missed, but for those of its last schedule.
	roundFirings = 20_000
	// timelyMax bounds the nominal times for which a schedule is planned with all others. One that has
	// more lags: it waits until those in time have fired, and laggingMax is its bound then.
	timelyMax  = 100
	laggingMax = 10_000
	// heldRecheck is how long at most the scheduler sleeps, and does not look at what is before the first
	// schedule that is in time, while a firing that has come is held: no entry wakes it then.
	heldRecheck = 100 * time.Millisecond
	// retry is the pause after a firing that could not be proposed, or whose queue is full.
	retry = time.Second
	// noFiring is the time for which the scheduler waits without a schedule.
	noFiring = 365 * 24 * time.Hour
)

// Config is what the scheduler of a shard gets from its surroundings. All functions may be called from
// any goroutine.
type Config struct {
	// Now returns the time that the leader would stamp. Next returns when the next schedule fires, 0 if
	// none does.
	Now, Next func() fsm.Time
	// Due returns schedules whose firing has come.
	Due func(query *schedules.DueQuery) schedules.Due
	// Calendar returns the calendar of a schedule. An error means that this program cannot read the
	// schedule's rule.
	Calendar func(s *fsm.Schedule) (schedules.Calendar, error)
	// Propose carries out a request.
	Propose func(ctx context.Context, req *fsm.Request) ([]fsm.Result, error)
	// Fired receives what became of a command: late is how long after its due time the job was put, 0 if
	// that was not later.
	Fired func(c *fsm.Fire, result *fsm.Result, late time.Duration)
	// Note logs an error of something that goes on.
	Note func(doing string, err error)
}

// Scheduler proposes firings while its shard is led by this node.
type Scheduler struct {
	cfg   Config
	armed atomic.Int64 // the firing that Run waits for; 0 for none
	wake  wakeup.Signal

	// asOf is the time of the last step. All other fields are of the present leadership, and of a clock
	// that was not set back since.
	asOf fsm.Time
	// held are the queues and schedules that are passed over until a time.
	held map[heldName]fsm.Time
	// A pass deals with all schedules whose firing has come, but for those that are held or lag. It is at
	// place; fired says that it had one.
	place schedules.Place
	fired bool
	// front is the place before which all were passed over, until frontEnds.
	front     schedules.Place
	frontEnds fsm.Time
	// lagging are schedules with many nominal times to deal with. Their own pass is at laggingPlace;
	// laggingFired says that it had one.
	lagging      map[heldName]bool
	laggingPlace schedules.Place
	laggingFired bool
}

// heldName is a queue, or with a name a schedule of it.
type heldName struct{ queue, name string }

// New returns the scheduler of a shard.
func New(cfg Config) *Scheduler { return &Scheduler{cfg: cfg, wake: wakeup.New()} }

// Moved receives the time of the next firing, 0 for none, after each entry. The goroutine that applies
// entries calls it.
func (s *Scheduler) Moved(next fsm.Time) {
	if next == 0 {
		return // at worst, Run wakes once in vain
	}
	if armed := s.armed.Load(); armed == 0 || int64(next) < armed {
		s.wake.Send()
	}
}

// Run proposes firings until ctx ends.
func (s *Scheduler) Run(ctx context.Context) {
	s.reset()
	timer := time.NewTimer(noFiring)
	defer timer.Stop()
	for {
		wait := s.step(ctx)
		if ctx.Err() != nil {
			return
		}
		if wait <= 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

// reset forgets what is of an earlier leadership, or of a clock that was set back.
func (s *Scheduler) reset() {
	s.held, s.lagging = map[heldName]fsm.Time{}, map[heldName]bool{}
	s.place, s.front, s.laggingPlace, s.frontEnds = schedules.Place{}, schedules.Place{}, schedules.Place{}, 0
	s.fired, s.laggingFired = false, false
}

// step proposes what is due, and returns how long to wait next: 0 if there may be more at once.
func (s *Scheduler) step(ctx context.Context) (wait time.Duration) {
	next := s.arm()
	if next == 0 {
		return noFiring
	}
	now := s.cfg.Now()
	if now < s.asOf {
		s.reset()
	}
	s.asOf = now
	if wait := next.Sub(now); wait > 0 {
		return min(wait, clock.Recheck)
	}
	ends := now.Add(heldRecheck)
	for name, until := range s.held {
		if until <= now {
			delete(s.held, name)
		} else {
			ends = min(ends, until)
		}
	}
	next, done := s.pass(ctx, now)
	switch {
	case !done, s.catchUp(ctx, now):
		return 0
	case next != 0: // all that is due is held
		ends = min(ends, next)
	}
	return max(time.Millisecond, ends.Sub(now))
}

// isHeld reports whether a schedule is passed over.
func (s *Scheduler) isHeld(queue string, name []byte) bool {
	return s.held[heldName{queue: queue}] != 0 || s.held[heldName{queue, string(name)}] != 0
}

// pass proposes firings of schedules that are in time. done says that there was none since it began: next
// is then when the first one fires that is not held, 0 if none does.
func (s *Scheduler) pass(ctx context.Context, now fsm.Time) (next fsm.Time, done bool) {
	begins := s.place == schedules.Place{}
	if begins && len(s.held) > 0 && now < s.frontEnds {
		s.place = s.front
	} else if begins {
		s.front, s.frontEnds = schedules.Place{}, now.Add(heldRecheck)
	}
	inFront := s.place == s.front
	due := s.cfg.Due(&schedules.DueQuery{
		Now: now, From: s.place, Most: roundMax, Skip: func(queue string, name []byte) bool {
			return s.isHeld(queue, name) || s.lagging[heldName{queue, string(name)}]
		},
	})
	s.place = due.Rest
	if len(due.List) > 0 {
		s.fired = true
		if inFront {
			s.front = schedules.PlaceOf(&due.List[0])
		}
		if n := s.round(ctx, &due, now, timelyMax); n < len(due.List) {
			s.place, due.More = schedules.PlaceOf(&due.List[n]), true
		}
	} else if inFront && due.More {
		s.front = due.Rest
	}
	if due.More {
		return 0, false
	}
	again := s.fired && len(s.lagging) == 0
	s.fired = false
	return due.Next, !again
}

// catchUp proposes firings of schedules that lag. It reports whether there may be more to do.
func (s *Scheduler) catchUp(ctx context.Context, now fsm.Time) bool {
	if len(s.lagging) == 0 {
		return false
	}
	due := s.cfg.Due(&schedules.DueQuery{
		Now: now, From: s.laggingPlace, Most: roundMax, Skip: func(queue string, name []byte) bool {
			return s.isHeld(queue, name) || !s.lagging[heldName{queue, string(name)}]
		},
	})
	s.laggingPlace = due.Rest
	if len(due.List) > 0 {
		s.laggingFired = true
		if n := s.round(ctx, &due, now, laggingMax); n < len(due.List) {
			s.laggingPlace, due.More = schedules.PlaceOf(&due.List[n]), true
		}
	}
	if !due.More && !s.laggingFired { // they are held, paused or gone
		clear(s.lagging)
	}
	if !due.More {
		s.laggingFired = false
	}
	return true
}

// arm reads the time of the next firing. An earlier one that is set afterwards wakes Run.
func (s *Scheduler) arm() fsm.Time {
	for {
		next := s.cfg.Next()
		s.armed.Store(int64(next))
		if again := s.cfg.Next(); again == 0 || again >= next && next != 0 {
			return next
		}
	}
}

// round plans and proposes firings of due schedules, each for at most so many nominal times, and returns
// how many schedules it dealt with. Requests are of one namespace each, whose quota may refuse them.
func (s *Scheduler) round(ctx context.Context, due *schedules.Due, now fsm.Time, most int) (dealt int) {
	var requests []*fsm.Request
	last := map[string]*fsm.Request{} // of each namespace
	left := map[*fsm.Request]uint64{} // bytes
	firings := uint64(0)
	for ; dealt < len(due.List) && firings < roundFirings; dealt++ {
		v := &due.List[dealt]
		calendar, err := s.cfg.Calendar(v)
		if err != nil {
			s.cfg.Note("reading the rule of schedule "+v.Name+" of queue "+v.Queue, err)
			s.hold(heldName{v.Queue, v.Name}, now)
			continue
		}
		plan, lags := schedules.Plan(v, now, calendar, most)
		if lags {
			s.lagging[heldName{v.Queue, v.Name}] = true
		} else if len(s.lagging) > 0 {
			delete(s.lagging, heldName{v.Queue, v.Name})
		}
		namespace := fsm.NamespaceOf(v.Queue)
		for _, c := range plan {
			req := last[namespace]
			if req == nil || len(req.Commands) == commandsMax || left[req] < due.Bytes[dealt] {
				req = &fsm.Request{}
				last[namespace], requests, left[req] = req, append(requests, req), fsm.FiringsBytesMax
			}
			req.Commands = append(req.Commands, c)
			left[req] -= min(left[req], due.Bytes[dealt])
			firings += 1 + c.Missed
		}
	}
	s.propose(ctx, requests, now)
	return dealt
}

// propose carries out requests, some at a time. Those of one namespace follow each other, since the
// commands of one schedule do.
func (s *Scheduler) propose(ctx context.Context, requests []*fsm.Request, now fsm.Time) {
	chains := map[string][]*fsm.Request{}
	for _, req := range requests {
		namespace := fsm.NamespaceOf(fsm.QueueOf(req.Commands[0]))
		chains[namespace] = append(chains[namespace], req)
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	slots := make(chan struct{}, requestsAtOnce)
	for _, chain := range chains {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			for _, req := range chain {
				results, err := s.cfg.Propose(ctx, req)
				mu.Lock()
				s.done(ctx, req, results, err, now)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	group.Wait()
}

// done takes note of what became of a request.
func (s *Scheduler) done(ctx context.Context, req *fsm.Request, results []fsm.Result, err error, now fsm.Time) {
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, outcome.ErrNoLeader) {
			s.cfg.Note("proposing firings", err)
		}
		for _, c := range req.Commands {
			s.hold(heldName{queue: fsm.QueueOf(c)}, now)
		}
		return
	}
	for i, c := range req.Commands {
		fire := c.(*fsm.Fire)
		if results[i].Code == fsm.QueueFull {
			s.hold(heldName{queue: fire.Queue}, now)
		}
		s.cfg.Fired(fire, &results[i], max(0, s.cfg.Now().Sub(fire.Due)))
	}
}

// hold passes over a queue or a schedule for a while.
func (s *Scheduler) hold(name heldName, now fsm.Time) { s.held[name] = now.Add(retry) }
