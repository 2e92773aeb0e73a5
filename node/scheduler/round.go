package scheduler

import (
	"context"
	"errors"
	"sync"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/schedules"
	"github.com/belfrydb/belfry/node/outcome"
)

// chain has the requests of one namespace, whose quota may refuse them. They follow each other, since the
// commands of one schedule do.
type chain struct {
	namespace string
	requests  []*fsm.Request
	left      uint64          // bytes that the last request may still copy
	held      map[string]bool // queues that were full, or of the request that could not be proposed
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
		for _, f := range plan {
			firings += 1 + f.Missed
		}
		namespace := fsm.NamespaceOf(v.Queue)
		c := chains[namespace]
		if c == nil {
			c = &chain{namespace: namespace, held: map[string]bool{}}
			chains[namespace] = c
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
			s.runChain(ctx, c, leave)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ended = append(s.ended, c)
		})
	}
	round.Wait()
	s.noteEnded()
}

// runChain carries out the requests of a chain, until one cannot be proposed.
func (s *Scheduler) runChain(ctx context.Context, c *chain, waits func()) {
	for _, req := range c.requests {
		results, err := s.cfg.Propose(ctx, req, waits)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, outcome.ErrNoLeader) {
				s.cfg.Note("proposing firings", err)
			}
			for _, f := range req.Commands {
				c.held[fsm.QueueOf(f)] = true
			}
			return
		}
		for i, f := range req.Commands {
			fire := f.(*fsm.Fire)
			if results[i].Code == fsm.QueueFull {
				c.held[fire.Queue] = true
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
		delete(s.busy, c.namespace)
		for queue := range c.held {
			s.hold(heldName{queue: queue}, now)
		}
	}
}
