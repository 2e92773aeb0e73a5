package scheduler

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/schedules"
	"github.com/belfrydb/belfry/node/outcome"
)

// room is what a queue that was full lately may have in a round, so that few commands are refused: one
// job at first, and twice as many after each round in which none of the queue's was refused.
type room struct {
	jobs  int
	until fsm.Time // it is forgotten then
}

// budget is the part of a room that is left in a round. smallest is the size of the smallest job that had
// some of it.
type budget struct {
	jobs     int
	smallest uint64
}

// admits reports whether any command of a schedule fits at time now: what is too late needs no room, nor
// does a schedule whose next firing is to be found, and a job that is smaller than all before may fit where
// they do not.
func (b *budget) admits(v *fsm.Schedule, bytes uint64, now fsm.Time) bool {
	return b.jobs > 0 || bytes < b.smallest || v.Replan && !v.Pending || v.Next < now-fsm.Time(schedules.Window(v))
}

// take returns the commands of a plan before the first job for which no room is left. What was missed
// before a job has a command of its own, so that it counts also if the job does not fit.
func (b *budget) take(plan []*fsm.Fire, bytes uint64) (taken []*fsm.Fire) {
	for _, f := range plan {
		if f.Missed > 0 && f.Put != 0 {
			missed, rest := *f, *f
			missed.Put, missed.Due, missed.Next = 0, 0, f.Put
			rest.Nominal, rest.Missed, rest.LastMissed = f.Put, 0, 0
			taken, f = append(taken, &missed), &rest
		}
		if f.Put != 0 {
			if b.jobs == 0 && bytes >= b.smallest {
				return taken
			}
			b.jobs, b.smallest = max(0, b.jobs-1), min(b.smallest, bytes)
		}
		taken = append(taken, f)
	}
	return taken
}

// chain has the requests of one namespace, whose quota may refuse them. They follow each other, since the
// commands of one schedule do.
type chain struct {
	namespace string
	requests  []*fsm.Request
	left      uint64 // bytes that the last request may still copy
	// fitted are the queues that took a job, or needed no room for one. full are those that were full, and
	// refused the schedules for which they were. smaller are those of them that had room for a smaller job.
	fitted, full, smaller map[string]bool
	refused               map[heldName]bool
	// failed says that a request could not be proposed; those after it were not tried.
	failed bool
	// beside says that the chain waited for quota, and went on beside the next rounds.
	beside bool
}

// mayGoOn reports whether the namespace of a chain that has ended may have more, which rounds have passed
// over meanwhile. That of a chain that failed is held.
func (c *chain) mayGoOn() bool { return c.beside && !c.failed }

func newChain(namespace string) *chain {
	return &chain{
		namespace: namespace, fitted: map[string]bool{}, full: map[string]bool{}, smaller: map[string]bool{},
		refused: map[heldName]bool{},
	}
}

// add adds commands of a schedule. Each copies so many bytes of it.
func (c *chain) add(plan []*fsm.Fire, bytes uint64) {
	for _, f := range plan {
		n := len(c.requests)
		if n == 0 || len(c.requests[n-1].Commands) == commandsMax || c.left < bytes {
			c.requests, c.left = append(c.requests, &fsm.Request{}), fsm.FiringsBytesMax
			n++
		}
		c.requests[n-1].Commands = append(c.requests[n-1].Commands, f)
		c.left -= min(c.left, bytes)
	}
}

// round plans and proposes firings of due schedules, each for at most so many nominal times, and returns
// how many schedules it dealt with.
func (s *Scheduler) round(ctx context.Context, due *schedules.Due, now fsm.Time, most int) (dealt int) {
	chains := map[string]*chain{}
	budgets := map[string]*budget{} // of the queues that were full lately
	firings := uint64(0)
	for ; dealt < len(due.List) && firings < roundFirings; dealt++ {
		v := &due.List[dealt]
		b := budgets[v.Queue]
		if r, limited := s.room[v.Queue]; limited && b == nil {
			b = &budget{r.jobs, math.MaxUint64}
			budgets[v.Queue] = b
		}
		if b != nil && !b.admits(v, due.Bytes[dealt], now) {
			continue
		}
		calendar, err := s.cfg.Calendar(v)
		if err != nil {
			s.cfg.Note("reading the rule of schedule "+v.Name+" of queue "+v.Queue, err)
			s.hold(heldName{queue: v.Queue, name: v.Name}, now)
			continue
		}
		plan, lags := schedules.Plan(v, now, calendar, most)
		if lags {
			s.lagging[heldName{queue: v.Queue, name: v.Name}] = true
		} else if len(s.lagging) > 0 {
			delete(s.lagging, heldName{queue: v.Queue, name: v.Name})
		}
		for _, f := range plan {
			firings += 1 + f.Missed
		}
		namespace := fsm.NamespaceOf(v.Queue)
		c := chains[namespace]
		if c == nil {
			c = newChain(namespace)
			chains[namespace] = c
		}
		if b != nil {
			plan = b.take(plan, due.Bytes[dealt])
		}
		c.add(plan, due.Bytes[dealt])
	}
	s.propose(ctx, chains)
	return dealt
}

// propose runs chains, some at a time, and returns when each has ended or waits for quota. One that waits
// goes on beside the next rounds, which pass over its namespace.
func (s *Scheduler) propose(ctx context.Context, chains map[string]*chain) {
	var round sync.WaitGroup
	slots := make(chan struct{}, requestsAtOnce)
	for namespace, c := range chains {
		slots <- struct{}{}
		round.Add(1)
		leave := sync.OnceFunc(func() {
			<-slots
			round.Done()
		})
		s.busy[namespace] = true
		s.chains.Go(func() {
			defer leave()
			s.runChain(ctx, c, func() {
				c.beside = true
				leave()
			})
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.ended = append(s.ended, c); c.mayGoOn() {
				s.wake.Send()
			}
		})
	}
	round.Wait()
	s.noteEnded()
}

// runChain carries out the requests of a chain, until one cannot be proposed. A queue that was full gets no
// more of them.
func (s *Scheduler) runChain(ctx context.Context, c *chain, beforeWait func()) {
	for _, req := range c.requests {
		req.Commands = slices.DeleteFunc(req.Commands, func(f fsm.Command) bool { return c.full[fsm.QueueOf(f)] })
		if len(req.Commands) == 0 {
			continue
		}
		results, err := s.cfg.Propose(ctx, req, beforeWait)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, outcome.ErrNoLeader) {
				s.cfg.Note("proposing firings", err)
			}
			c.failed = true
			return
		}
		for i, f := range req.Commands {
			fire := f.(*fsm.Fire)
			if results[i].Code == fsm.QueueFull {
				c.full[fire.Queue], c.refused[heldName{queue: fire.Queue, name: fire.Name}] = true, true
			} else if results[i].Code == fsm.OK && fire.Put != 0 {
				c.fitted[fire.Queue] = true
				if results[i].Created && c.full[fire.Queue] {
					c.smaller[fire.Queue] = true
				}
			}
			s.cfg.Fired(fire, &results[i], max(0, s.cfg.Now().Sub(fire.Due)))
		}
	}
}

// noteEnded takes note of what became of the chains that have ended.
func (s *Scheduler) noteEnded() {
	s.mu.Lock()
	ended := s.ended
	s.ended = nil
	s.mu.Unlock()
	now := s.cfg.Now()
	for _, c := range ended {
		if delete(s.busy, c.namespace); c.mayGoOn() {
			s.frontEnds = 0 // what it has may be before front
		}
		if c.failed {
			s.hold(heldName{namespace: c.namespace}, now)
		}
		for name := range c.refused {
			if !c.smaller[name.queue] {
				name.name = ""
			}
			s.hold(name, now)
			s.room[name.queue] = room{1, now.Add(roomKept)}
		}
		for queue := range c.fitted {
			switch r := s.room[queue]; {
			case r.jobs == 0, c.full[queue]:
			case r.jobs > commandsMax/2:
				delete(s.room, queue)
			default:
				s.room[queue] = room{2 * r.jobs, now.Add(roomKept)}
			}
		}
	}
}
