package client

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A poller serves concurrent calls that each reserve one job from the same queues. Its polls ask for as many jobs as
// there are callers that no other poll asks for, and what arrives goes to the callers in the order in which they came.
// A poll that waits at the server is not bound to the callers it was made for: if one leaves, the next newcomer takes its
// place.
//
// Lock order: pollers.mu, then poller.mu, then Client.mu.
type poller struct {
	client  *Client
	key     pollKey
	options ReserveOptions // of a poll, apart from Max and Wait

	mu      sync.Mutex
	callers []*caller // those without an answer, oldest first and so in order of their deadlines
	tower   tower     // for those that come
	rings   bells     // of callers that were answered
	serial  uint64    // of the newest caller
	asked   int       // how many jobs the polls on their way ask for
	slots   int       // goroutines that poll
	last    wave
	running map[*poll]struct{}
	trouble *Error // what the last attempt failed with; nil if it succeeded
	alarm   *time.Timer
	held    bool // overdue will be called
}

// A poll is one Reserve call on its way.
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
type caller struct {
	serial   uint64
	deadline time.Time
	bell     *bell // rings after answered is set; guarded by poller.mu
	got      polled
	answered atomic.Bool // got is set, and the memory the caller's again
}

// polled is the answer to a caller: a job, an error, or neither if the wait ended.
type polled struct {
	job *Job
	err *Error
}

// pollers holds a client's pollers that have callers or polls.
type pollers struct {
	pool  sync.Pool    // of *caller that nothing refers to
	eager atomic.Int64 // callers that do not wait for a first job

	mu    sync.Mutex
	byKey map[pollKey]*poller
}

const (
	// A caller that waits for this long or longer is answered by an alarm when its wait ends. A shorter wait may be over
	// before the first answer from a server can be there, so it ends with a poll that ends at the same time.
	alarmFrom = time.Second
	// idleAfter is how long a poll that has no caller left waits for the next one.
	idleAfter = 50 * time.Millisecond
	// A poll that ends this little before a caller's deadline answers it: another one would only come back empty.
	deadlineSlack = 2 * time.Millisecond
	// releaseTimeout bounds the attempts to give back a job that nobody waits for any more.
	releaseTimeout = 10 * time.Second
)

// reserveOne reserves one job by way of a poller. Job and error are nil if there was none until the wait ended.
func (c *Client) reserveOne(ctx context.Context, o ReserveOptions) (*Job, error) {
	if ctx.Err() != nil {
		return nil, (&retrier{}).ended(ctx, nothingOut)
	}
	w, ok := c.polls.pool.Get().(*caller)
	if !ok {
		w = new(caller)
	}
	if o.Wait == 0 {
		c.polls.eager.Add(1)
		defer c.polls.eager.Add(-1)
	}
	p, bell, err := c.join(w, o)
	if err != nil {
		return nil, err
	}
	for bell != nil {
		select {
		case <-bell.c:
			bell = p.woken(w)
		case <-ctx.Done():
			if left, err := p.leave(ctx, w); left {
				return nil, err
			}
			bell = nil
		}
	}
	got := w.got
	*w = caller{}
	c.polls.pool.Put(w)
	if got.err != nil {
		return nil, got.err
	}
	return got.job, nil
}

// woken is for a caller whose bell rang. It gives another one if the answer is not there: the bell rang for others.
func (p *poller) woken(w *caller) *bell {
	if w.answered.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.answered.Load() {
		return nil
	}
	w.bell = newBell()
	return w.bell
}

// unlock gives mu back, and wakes the callers that were answered.
func (p *poller) unlock() {
	rings := p.rings
	p.rings = nil
	p.mu.Unlock()
	rings.ring()
}

// answer gives a caller its answer. Called with mu held; unlock must follow.
func (p *poller) answer(w *caller, got polled) {
	w.got = got
	p.rings.add(w.bell)
	p.tower.change() // it may be the bell for those who come next
	w.answered.Store(true)
}

// join adds a caller to the poller of its options, and gives the bell to wait for.
func (c *Client) join(w *caller, o ReserveOptions) (*poller, *bell, error) {
	key := pollKey{queues: strings.Join(o.Queues, "\n"), wait: o.Wait, ttr: o.TTR}
	c.polls.mu.Lock()
	defer c.polls.mu.Unlock()
	p := c.polls.byKey[key]
	if p == nil {
		o.Queues = slices.Clone(o.Queues)
		p = &poller{client: c, key: key, options: o, running: make(map[*poll]struct{})}
		c.polls.byKey[key] = p
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opens(p.slots, len(p.callers)+1-p.asked) {
		if !c.start(p.run) {
			return nil, nil, closedError()
		}
		p.slots++
	} else {
		p.hold()
	}
	p.serial++
	bell := p.tower.next(c.limits.MaxJobs)
	w.serial, w.deadline, w.bell = p.serial, time.Now().Add(o.Wait), bell
	p.callers = append(p.callers, w)
	if len(p.callers) == 1 && o.Wait >= alarmFrom {
		p.setAlarm(o.Wait)
	}
	return p, bell, nil
}

// leave takes a caller out whose context ended. It reports false if its answer came first.
func (p *poller) leave(ctx context.Context, w *caller) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.callers, w)
	if i < 0 {
		return false, nil
	}
	p.callers = slices.Delete(p.callers, i, i+1)
	p.idleSoon()
	var history retrier
	if p.trouble != nil {
		history.failed(p.trouble)
	}
	// Whatever a poll brings that this caller was to have is given to another, or back.
	history.unknown = false
	return true, history.ended(ctx, nothingOut)
}

// idleSoon cancels the polls if no caller comes within idleAfter. Called with mu held.
func (p *poller) idleSoon() {
	if len(p.callers) > 0 || len(p.running) == 0 {
		return
	}
	time.AfterFunc(idleAfter, func() {
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

// run holds one slot: it polls until all callers are asked for.
func (p *poller) run() {
	turn := uint64(0)
	for {
		runtime.Gosched() // callers that are about to come share the poll
		turn = p.client.turns.take(turn, p.crowd())
		ctx, poll := p.next(p.client.lifetime())
		if poll == nil {
			p.client.turns.take(turn, false)
			p.retire()
			return
		}
		o := p.options
		o.Max, o.Wait = poll.asked, poll.wait
		jobs, err := p.client.reserveMany(ctx, o, p.noteTrouble)
		poll.cancel()
		if err != nil {
			p.client.collectLater(o, err)
		}
		p.deliver(poll, jobs, err)
	}
}

// crowd reports whether the next poll leaves in a turn. One that waits does not: it might be out for long.
func (p *poller) crowd() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.options.Wait > 0 {
		return false
	}
	all := p.last
	if eager := int(p.client.polls.eager.Load()); eager > all.size || time.Since(all.left) > crowdMax { // those of other queues leave in the same turn
		all = wave{eager, time.Now()}
	}
	return p.client.limits.crowd(len(p.callers)-p.asked, all)
}

// next makes a poll for the callers that none asks for yet, nil if there are none; then the slot is free.
func (p *poller) next(parent context.Context) (context.Context, *poll) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(len(p.callers)-p.asked, p.client.limits.MaxJobs)
	if !p.opens(p.slots-1, n) {
		if p.slots--; n > 0 {
			p.hold()
		}
		return nil, nil
	}
	ctx, cancel := context.WithCancel(parent)
	poll := &poll{asked: n, upTo: p.serial, cancel: cancel, wait: p.options.Wait}
	if poll.wait < alarmFrom {
		poll.wait = max(0, min(poll.wait, time.Until(p.callers[0].deadline)))
	}
	p.asked += n
	p.last = wave{n, time.Now()}
	p.running[poll] = struct{}{}
	p.tower.change()
	return ctx, poll
}

// opens reports whether a poll for so many callers may leave.
func (p *poller) opens(slots, callers int) bool {
	if p.options.Wait > 0 {
		return p.client.limits.opensPoll(slots, callers, p.last)
	}
	return p.client.limits.opens(slots, callers, p.last)
}

// hold has overdue called when the poll that left last has taken long for one that does not wait. Called with mu held.
func (p *poller) hold() {
	if p.options.Wait == 0 && !p.held && p.slots < p.client.limits.InFlight {
		p.held = true
		time.AfterFunc(waveMax-time.Since(p.last.left)+1, p.overdue)
	}
}

// overdue polls for callers that were held back for a poll that takes long.
func (p *poller) overdue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = false
	n := len(p.callers) - p.asked
	switch {
	case n <= 0 || p.slots == 0:
	case !p.opens(p.slots, n):
		p.hold() // another poll left meanwhile
	case p.client.start(p.run):
		p.slots++
	}
}

// retire forgets a poller that has neither callers nor polls.
func (p *poller) retire() {
	all := &p.client.polls
	all.mu.Lock()
	defer all.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slots > 0 || len(p.callers) > 0 || all.byKey[p.key] != p {
		return
	}
	delete(all.byKey, p.key)
	if p.alarm != nil {
		p.alarm.Stop()
	}
}

// deliver hands out what a poll brought.
func (p *poller) deliver(poll *poll, jobs []*Job, err *Error) {
	p.mu.Lock()
	defer p.unlock()
	delete(p.running, poll)
	p.asked -= poll.asked
	if err == nil {
		p.trouble = nil
	}
	served := min(len(jobs), len(p.callers))
	for i, job := range jobs[:served] {
		p.answer(p.callers[i], polled{job: job})
	}
	p.drop(served)
	for _, job := range jobs[served:] {
		p.client.start(func() { p.client.giveBack(job) })
	}
	done := 0
	now := time.Now().Add(deadlineSlack)
	for _, w := range p.callers {
		if w.serial > poll.upTo || err == nil && w.deadline.After(now) {
			break // so are all who came later
		}
		p.answer(w, polled{err: err})
		done++
	}
	p.drop(done)
}

// drop takes out the n oldest callers. Called with mu held.
func (p *poller) drop(n int) {
	p.callers = slices.Delete(p.callers, 0, n)
	p.idleSoon()
}

// noteTrouble keeps what an attempt failed with, for callers that leave meanwhile.
func (p *poller) noteTrouble(err *Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble = err
}

// setAlarm has callers answered after d whose wait is over by then. Called with mu held.
func (p *poller) setAlarm(d time.Duration) {
	if p.alarm != nil {
		p.alarm.Reset(d)
		return
	}
	p.alarm = time.AfterFunc(d, p.ring)
}

// ring answers the callers whose wait is over, and sets the next alarm. While no server answers they wait on, as they
// would have without a poller.
func (p *poller) ring() {
	p.mu.Lock()
	defer p.unlock()
	if len(p.callers) == 0 {
		return
	}
	if p.trouble != nil {
		p.setAlarm(alarmFrom)
		return
	}
	now := time.Now()
	done := 0
	for done < len(p.callers) && !p.callers[done].deadline.After(now) {
		p.answer(p.callers[done], polled{})
		done++
	}
	p.drop(done)
	if len(p.callers) > 0 {
		p.setAlarm(p.callers[0].deadline.Sub(now))
	}
}

// giveBack releases a job that nobody waits for any more. If that fails, its lease lapses in the end.
func (c *Client) giveBack(job *Job) {
	ctx, cancel := context.WithTimeout(c.lifetime(), releaseTimeout)
	defer cancel()
	_, _, _ = c.release(ctx, job.Lease, 0)
}
