package coalesce

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/client/internal/batching"
	"github.com/belfrydb/belfry/client/internal/failure"
)

// A Poll asks for jobs.
type Poll struct {
	Queues []string
	// Max is how many jobs to reserve at most. Polls.Reserve takes one job, whatever it says.
	Max int
	// Wait is how long to wait for a first job.
	Wait time.Duration
	// TTR is the length of the leases; 0 for each job's own.
	TTR time.Duration
}

// A PollConfig says how the polls of a client are sent. J is a job.
type PollConfig[J any] struct {
	Shared
	// Reserve makes one poll, and repeats it until it is answered. It calls failed after each
	// attempt that another one will follow.
	Reserve func(ctx context.Context, poll Poll, failed func(*failure.Error)) ([]J, *failure.Error)
	// GiveBack releases a job that has no caller left.
	GiveBack func(job J)
}

// Polls turn concurrent calls that each reserve one job into polls for many. The callers that ask
// for the same share a poller.
type Polls[J any] struct {
	config PollConfig[J]
	pool   sync.Pool    // of *caller that nothing refers to
	eager  atomic.Int64 // callers that do not wait for a first job

	mu    sync.Mutex
	byKey map[pollKey]*poller[J] // those that have callers or polls
}

// NewPolls returns the polls of a client.
func NewPolls[J any](config PollConfig[J]) *Polls[J] {
	return &Polls[J]{config: config, byKey: make(map[pollKey]*poller[J])}
}

// A poller serves concurrent calls that each reserve one job from the same queues. A poll asks for
// one job for each caller that no other poll asks for. Jobs go to the callers in the order of their
// arrival. A poll that waits at the server is not bound to the callers it was made for: if one
// leaves, the next caller to arrive takes its place.
//
// Lock order: Polls.mu, then poller.mu.
type poller[J any] struct {
	polls   *Polls[J]
	key     pollKey
	options Poll // of a poll, apart from Max and Wait

	mu       sync.Mutex
	callers  []*caller[J]        // those without an answer, oldest first and so in order of their deadlines
	arrivals batching.Group      // of the callers that arrive
	toWake   batching.Broadcasts // of the callers answered since unlock
	serial   uint64              // of the newest caller
	asked    int                 // how many jobs the polls in flight ask for
	slots    *batching.Slots     // guarded by mu
	running  map[*poll]struct{}
	trouble  *failure.Error // what the last attempt failed with; nil if it succeeded
	timer    *time.Timer
}

// A poll is one Reserve call in flight.
type poll struct {
	asked  int
	upTo   uint64 // the newest caller it speaks for
	wait   time.Duration
	cancel context.CancelFunc
}

// A pollKey says which calls can share polls.
type pollKey struct {
	queues    string // joined by a byte that no name has
	wait, ttr time.Duration
}

// A caller waits for one job.
type caller[J any] struct {
	serial   uint64
	deadline time.Time
	wake     *batching.Broadcast // sent after answered is set; guarded by poller.mu
	got      polled[J]
	answered atomic.Bool // got is set, and the memory the caller's again
}

// polled is the answer to a caller: a job, an error, or neither if the wait ended.
type polled[J any] struct {
	job J
	err *failure.Error
}

const (
	// timerMinWait is the shortest wait that a timer ends. A shorter wait may be over before a server
	// can answer at all, so it ends with a poll that waits as long.
	timerMinWait = time.Second
	// IdleAfter is how long a poll that has no caller left waits for the next one.
	IdleAfter = 50 * time.Millisecond
	// DeadlineSlack is how shortly before a caller's deadline a poll may end and still answer that
	// caller: another poll would have no time to find a job.
	DeadlineSlack = 2 * time.Millisecond
)

// Reserve reserves one job by way of a poller. The job is the zero value, without an error, if none
// came before the wait ended.
func (all *Polls[J]) Reserve(ctx context.Context, o Poll) (J, *failure.Error) {
	var none J
	if ctx.Err() != nil {
		return none, (&failure.History{}).Ended(ctx, failure.NothingSent)
	}
	w, ok := all.pool.Get().(*caller[J])
	if !ok {
		w = new(caller[J])
	}
	if o.Wait == 0 {
		all.eager.Add(1)
		defer all.eager.Add(-1)
	}
	p, wake, err := all.join(w, o)
	if err != nil {
		return none, err
	}
	for wake != nil {
		select {
		case <-wake.Done():
			wake = p.waitAgain(w)
		case <-ctx.Done():
			if left, err := p.withdraw(ctx, w); left {
				return none, err
			}
			wake = nil
		}
	}
	got := w.got
	*w = caller[J]{}
	all.pool.Put(w)
	return got.job, got.err
}

// waitAgain returns nil if a caller that was woken has its answer. Otherwise the broadcast was for
// other callers, and waitAgain returns a new one to wait for.
func (p *poller[J]) waitAgain(w *caller[J]) *batching.Broadcast {
	if w.answered.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.answered.Load() {
		return nil
	}
	w.wake = batching.NewBroadcast()
	return w.wake
}

// unlock unlocks mu and wakes the callers that were answered.
func (p *poller[J]) unlock() {
	answered := p.toWake
	p.toWake = nil
	p.mu.Unlock()
	answered.Send()
}

// answer gives a caller its answer. Called with mu held; unlock must follow.
func (p *poller[J]) answer(w *caller[J], got polled[J]) {
	w.got = got
	p.toWake.Add(w.wake)
	p.arrivals.Close() // later callers must not join a broadcast that is about to be sent
	w.answered.Store(true)
}

// join adds a caller to the poller of its options and returns the broadcast to wait for.
func (all *Polls[J]) join(w *caller[J], o Poll) (*poller[J], *batching.Broadcast, *failure.Error) {
	key := pollKey{queues: strings.Join(o.Queues, "\n"), wait: o.Wait, ttr: o.TTR}
	all.mu.Lock()
	defer all.mu.Unlock()
	p := all.byKey[key]
	if p == nil {
		o.Queues = slices.Clone(o.Queues)
		p = newPoller(all, key, o)
		all.byKey[key] = p
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.slots.Expect() {
		return nil, nil, failure.Closed()
	}
	p.serial++
	w.serial, w.deadline, w.wake = p.serial, time.Now().Add(o.Wait), p.arrivals.Join(all.config.Limits.MaxCalls)
	p.callers = append(p.callers, w)
	if len(p.callers) == 1 && o.Wait >= timerMinWait {
		p.setTimer(o.Wait)
	}
	return p, w.wake, nil
}

// newPoller returns a poller.
func newPoller[J any](all *Polls[J], key pollKey, o Poll) *poller[J] {
	p := &poller[J]{polls: all, key: key, options: o, running: make(map[*poll]struct{})}
	p.slots = batching.NewSlots(p.source())
	return p
}

// source describes the callers and polls of a poller. A poll that waits at the server does not pass
// the gate: it would hold up the round. For other polls the callers of other pollers count, since
// their polls leave in the same round.
func (p *poller[J]) source() batching.Source {
	source := batching.Source{
		Limits: p.polls.config.Limits.batches(), Mu: &p.mu, Start: p.polls.config.Start,
		Pending: func() int { return len(p.callers) - p.asked }, Take: p.take, Ended: p.retire,
	}
	if p.options.Wait > 0 {
		source.Waits = true
		return source
	}
	source.Gate = p.polls.config.Gate
	source.Expected = func() int { return int(p.polls.eager.Load()) }
	return source
}

// withdraw removes a caller whose context ended. It reports false if its answer came first.
func (p *poller[J]) withdraw(ctx context.Context, w *caller[J]) (bool, *failure.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.callers, w)
	if i < 0 {
		return false, nil
	}
	p.callers = slices.Delete(p.callers, i, i+1)
	p.idleSoon()
	// A job that arrives for this caller goes to another one, or is released.
	history := failure.History{NoChange: true}
	if p.trouble != nil {
		history.Failed(p.trouble)
	}
	return true, history.Ended(ctx, failure.NothingSent)
}

// idleSoon cancels the polls if no caller comes within IdleAfter. Called with mu held.
func (p *poller[J]) idleSoon() {
	if len(p.callers) > 0 || len(p.running) == 0 {
		return
	}
	time.AfterFunc(IdleAfter, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.callers) > 0 {
			return
		}
		for poll := range p.running {
			poll.cancel()
		}
	})
}

// send makes a poll, and gives its callers the answer.
func (p *poller[J]) send(ctx context.Context, poll *poll) {
	o := p.options
	o.Max, o.Wait = poll.asked, poll.wait
	jobs, err := p.polls.config.Reserve(ctx, o, p.noteTrouble)
	poll.cancel()
	p.deliver(poll, jobs, err)
}

// take makes a poll for the callers that no other poll asks for, and returns what sends it.
func (p *poller[J]) take() (send func(), callers int) {
	n := min(len(p.callers)-p.asked, p.polls.config.Limits.MaxCalls)
	ctx, cancel := context.WithCancel(p.polls.config.Lifetime())
	poll := &poll{asked: n, upTo: p.serial, cancel: cancel, wait: p.options.Wait}
	if poll.wait < timerMinWait {
		poll.wait = max(0, min(poll.wait, time.Until(p.callers[0].deadline)))
	}
	p.asked += n
	p.running[poll] = struct{}{}
	p.arrivals.Close()
	return func() { p.send(ctx, poll) }, n
}

// retire forgets a poller that has neither callers nor polls.
func (p *poller[J]) retire() {
	all := p.polls
	all.mu.Lock()
	defer all.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slots.Running() > 0 || len(p.callers) > 0 || all.byKey[p.key] != p {
		return
	}
	delete(all.byKey, p.key)
	if p.timer != nil {
		p.timer.Stop()
	}
}

// deliver gives the jobs or the error of a poll to the callers.
func (p *poller[J]) deliver(poll *poll, jobs []J, err *failure.Error) {
	p.mu.Lock()
	defer p.unlock()
	delete(p.running, poll)
	p.asked -= poll.asked
	if err == nil {
		p.trouble = nil
	}
	served := min(len(jobs), len(p.callers))
	for i, job := range jobs[:served] {
		p.answer(p.callers[i], polled[J]{job: job})
	}
	p.drop(served)
	for _, job := range jobs[served:] {
		p.polls.config.Start(func() { p.polls.config.GiveBack(job) })
	}
	done := 0
	now := time.Now().Add(DeadlineSlack)
	for _, w := range p.callers {
		if w.serial > poll.upTo || err == nil && w.deadline.After(now) {
			break // the callers after it arrived later
		}
		p.answer(w, polled[J]{err: err})
		done++
	}
	p.drop(done)
}

// drop removes the n oldest callers. Called with mu held.
func (p *poller[J]) drop(n int) {
	p.callers = slices.Delete(p.callers, 0, n)
	p.idleSoon()
}

// noteTrouble keeps the error of an attempt for callers that leave during the poll.
func (p *poller[J]) noteTrouble(err *failure.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble = err
}

// setTimer calls endWaits after d. Called with mu held.
func (p *poller[J]) setTimer(d time.Duration) {
	if p.timer != nil {
		p.timer.Reset(d)
		return
	}
	p.timer = time.AfterFunc(d, p.endWaits)
}

// endWaits answers the callers whose wait is over and sets the timer again. While no server
// answers, the callers wait on, as a call without a poller does.
func (p *poller[J]) endWaits() {
	p.mu.Lock()
	defer p.unlock()
	if len(p.callers) == 0 {
		return
	}
	if p.trouble != nil {
		p.setTimer(timerMinWait)
		return
	}
	now := time.Now()
	done := 0
	for done < len(p.callers) && !p.callers[done].deadline.After(now) {
		p.answer(p.callers[done], polled[J]{})
		done++
	}
	p.drop(done)
	if len(p.callers) > 0 {
		p.setTimer(p.callers[0].deadline.Sub(now))
	}
}
