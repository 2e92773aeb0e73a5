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
	// of the queues that skip names.
	Due func(now fsm.Time, most int, skip func(queue string) bool) []fsm.Schedule
	// Calendar returns the calendar of a schedule. An error means that this program cannot read the
	// schedule's rule.
	Calendar func(s *fsm.Schedule) (schedules.Calendar, error)
	// Propose carries out a request.
	Propose func(ctx context.Context, req *fsm.Request) ([]fsm.Result, error)
	// Fired receives what became of a command: late is how long after its nominal time the job was put.
	Fired func(c *fsm.Fire, result *fsm.Result, late time.Duration)
	// Note logs an error of something that goes on.
	Note func(doing string, err error)
}

// Scheduler proposes firings while its shard is led by this node.
type Scheduler struct {
	cfg   Config
	armed atomic.Int64 // the firing that Run waits for; 0 for none
	wake  wakeup.Signal
	// held are the queues that are passed over until a time, of the present leadership.
	held map[string]fsm.Time
}

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
	s.held = map[string]fsm.Time{}
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
	for queue, until := range s.held {
		if until <= now {
			delete(s.held, queue)
		}
	}
	due := s.cfg.Due(now, roundMax, func(queue string) bool { return s.held[queue] != 0 })
	if len(due) == 0 { // all that is due is held
		return retry
	}
	s.round(ctx, due, now)
	return 0
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
	for i := range due {
		v := &due[i]
		calendar, err := s.cfg.Calendar(v)
		if err != nil {
			s.cfg.Note("reading the rule of schedule "+v.Name+" of queue "+v.Queue, err)
			s.hold(v.Queue, now)
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
			s.hold(fsm.QueueOf(c), now)
		}
		return
	}
	for i, c := range req.Commands {
		fire := c.(*fsm.Fire)
		if results[i].Code == fsm.QueueFull {
			s.hold(fire.Queue, now)
		}
		s.cfg.Fired(fire, &results[i], max(0, s.cfg.Now().Sub(fire.Put)))
	}
}

// hold passes over a queue for a while.
func (s *Scheduler) hold(queue string, now fsm.Time) { s.held[queue] = now.Add(retry) }
