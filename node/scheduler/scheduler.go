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
	// commandsMax bounds the commands of one request.
	commandsMax = 1000
	// requestsAtOnce bounds the requests of a round that wait for their entries together.
	requestsAtOnce = 16
	// roundFirings bounds the firings of a round, put and missed, but for those of its last schedule.
	roundFirings = 20_000
	// heldRecheck is how long at most the scheduler sleeps while a firing that has come is held: no entry
	// wakes it then.
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
	// Due returns up to most schedules whose firing has come at a time, the earliest first, but for those
	// that skip names. If there is none, next is when the first of the others fires, 0 if none does.
	Due func(now fsm.Time, most int, skip func(queue string, name []byte) bool) (due []fsm.Schedule, next fsm.Time)
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
	// held are the queues and schedules that are passed over until a time, of the present leadership.
	held map[heldName]fsm.Time
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
	s.held = map[heldName]fsm.Time{}
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

// step proposes what is due, and returns how long to wait next: 0 if there may be more at once.
func (s *Scheduler) step(ctx context.Context) (wait time.Duration) {
	next := s.arm()
	if next == 0 {
		return noFiring
	}
	now := s.cfg.Now()
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
	due, other := s.cfg.Due(now, roundMax, func(queue string, name []byte) bool {
		return s.held[heldName{queue: queue}] != 0 || s.held[heldName{queue, string(name)}] != 0
	})
	switch {
	case len(due) > 0:
		s.round(ctx, due, now)
		return 0
	case other != 0: // all that is due is held
		ends = min(ends, other)
	}
	return max(time.Millisecond, ends.Sub(now))
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

// round plans and proposes firings of due schedules. Requests are of one namespace each, whose quota
// may refuse them.
func (s *Scheduler) round(ctx context.Context, due []fsm.Schedule, now fsm.Time) {
	var requests []*fsm.Request
	last := map[string]*fsm.Request{} // of each namespace
	firings := uint64(0)
	for i := 0; i < len(due) && firings < roundFirings; i++ {
		v := &due[i]
		calendar, err := s.cfg.Calendar(v)
		if err != nil {
			s.cfg.Note("reading the rule of schedule "+v.Name+" of queue "+v.Queue, err)
			s.hold(heldName{v.Queue, v.Name}, now)
			continue
		}
		namespace := fsm.NamespaceOf(v.Queue)
		for _, c := range schedules.Plan(v, now, calendar) {
			req := last[namespace]
			if req == nil || len(req.Commands) == commandsMax {
				req = &fsm.Request{}
				last[namespace], requests = req, append(requests, req)
			}
			req.Commands = append(req.Commands, c)
			firings += 1 + c.Missed
		}
	}
	s.propose(ctx, requests, now)
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
