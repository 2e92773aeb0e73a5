// Package scheduler proposes the firings of the schedules of a shard. See DESIGN.md beside this file.
package scheduler

import (
	"context"
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
	// waitMin is the shortest sleep before a firing. The clock of the shard may stand still or be slow,
	// and without a least sleep Run would look at it all the time.
	waitMin = 50 * time.Microsecond
	// retry is the pause after a firing that could not be proposed, or whose queue is full.
	retry = time.Second
	// roomKept is how long the room of a queue is remembered that was full and has nothing due.
	roomKept = 10 * retry
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
	// Propose carries out a request. It calls beforeWait before it waits for the quota of a namespace.
	Propose func(ctx context.Context, req *fsm.Request, beforeWait func()) ([]fsm.Result, error)
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
	// settle has what calls of Settle send; Run closes it when nothing is due.
	settle chan chan struct{}

	chains sync.WaitGroup // those that run
	mu     sync.Mutex     // guards what follows
	ended  []*chain       // the chains whose outcome was not noted yet
	over   chan struct{}  // closed unless this node leads

	// busy are the namespaces whose firings are being proposed.
	busy map[string]bool

	// asOf is the time of the last step. What follows is of the present leadership, and of a clock that was
	// not set back since.
	asOf fsm.Time
	// held are the namespaces, queues and schedules that are passed over until a time.
	held map[heldName]fsm.Time
	// room says what queues that were full lately may have.
	room map[string]room
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

// heldName is a queue, or with a name a schedule of it. Without either it is a namespace.
type heldName struct{ namespace, queue, name string }

// New returns the scheduler of a shard.
func New(cfg Config) *Scheduler {
	s := &Scheduler{
		cfg: cfg, wake: wakeup.New(), settle: make(chan chan struct{}), over: make(chan struct{}), busy: map[string]bool{},
	}
	close(s.over)
	return s
}

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

// Begin and End enclose a leadership, in which Run runs: outside, Settle does not wait.
func (s *Scheduler) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = make(chan struct{})
}

// End ends what Begin began.
func (s *Scheduler) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.over)
}

// Settle waits until Run has proposed all firings that have come by now, but for those that are held: a
// queue is full, or a namespace waits for its quota. It returns outcome.ErrNoLeader if this node does not
// lead, or no longer.
func (s *Scheduler) Settle(ctx context.Context) error {
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	settled := make(chan struct{})
	for sent := s.settle; ; sent = nil {
		select {
		case sent <- settled:
		case <-settled:
			return nil
		case <-over:
			return outcome.ErrNoLeader
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Run proposes firings until ctx ends.
func (s *Scheduler) Run(ctx context.Context) {
	s.reset()
	defer s.noteEnded()
	defer s.chains.Wait()
	timer := time.NewTimer(noFiring)
	defer timer.Stop()
	var settled chan struct{}
	for {
		wait := s.step(ctx)
		if ctx.Err() != nil {
			return
		}
		if wait <= 0 {
			continue
		}
		if settled != nil {
			close(settled)
			settled = nil
		}
		timer.Reset(wait)
		select {
		case settled = <-s.settle:
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

// reset forgets what is of an earlier leadership, or of a clock that was set back.
func (s *Scheduler) reset() {
	s.held, s.lagging, s.room = map[heldName]fsm.Time{}, map[heldName]bool{}, map[string]room{}
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
		return max(waitMin, min(wait, clock.Recheck))
	}
	s.noteEnded()
	ends := now.Add(heldRecheck)
	for queue, r := range s.room {
		if r.until <= now {
			delete(s.room, queue)
		}
	}
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
	namespace := fsm.NamespaceOf(queue)
	return s.busy[namespace] || s.held[heldName{namespace: namespace}] != 0 || s.held[heldName{queue: queue}] != 0 ||
		s.held[heldName{queue: queue, name: string(name)}] != 0
}

// pass proposes firings of schedules that are in time. done says that there was none since it began: next
// is then when the first one fires that is not held, 0 if none does.
func (s *Scheduler) pass(ctx context.Context, now fsm.Time) (next fsm.Time, done bool) {
	begins := s.place == schedules.Place{}
	if begins && len(s.held)+len(s.busy) > 0 && now < s.frontEnds {
		s.place = s.front
	} else if begins {
		s.front, s.frontEnds = schedules.Place{}, now.Add(heldRecheck)
	}
	inFront := s.place == s.front
	due := s.cfg.Due(&schedules.DueQuery{
		Now: now, From: s.place, Most: roundMax, Skip: func(queue string, name []byte) bool {
			return s.isHeld(queue, name) || s.lagging[heldName{queue: queue, name: string(name)}]
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
			return s.isHeld(queue, name) || !s.lagging[heldName{queue: queue, name: string(name)}]
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

// hold passes over a queue or a schedule for a while.
func (s *Scheduler) hold(name heldName, now fsm.Time) { s.held[name] = now.Add(retry) }
