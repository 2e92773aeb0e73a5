package propose

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/wakeup"
)

const (
	// expireSlack is how long work is overdue before the pacer proposes an Expire. Commands of callers
	// settle most of it first, and one entry carries out the rest.
	expireSlack = 100 * time.Millisecond
	// expireRetry is the pause after an Expire that failed or changed nothing.
	expireRetry = time.Second
	// noDeadline is the time for which the pacer waits without a deadline.
	noDeadline = 365 * 24 * time.Hour
)

// Pacer proposes an Expire for overdue work that no command settles. At most one is in flight, and
// none without overdue work.
type Pacer struct {
	now func() fsm.Time
	// deadline returns the machine's next deadline, 0 if there is none.
	deadline func() fsm.Time
	// expire proposes one Expire. more says that work is left.
	expire func(ctx context.Context) (more bool, err error)

	armed atomic.Int64 // the deadline that the pacer waits for; 0 for none
	wake  wakeup.Signal
}

// NewPacer returns a pacer. now returns the time that the leader would stamp, deadline the
// machine's next deadline, 0 for none. expire proposes one Expire; more says that work is left.
func NewPacer(now, deadline func() fsm.Time, expire func(ctx context.Context) (more bool, err error)) *Pacer {
	return &Pacer{now: now, deadline: deadline, expire: expire, wake: wakeup.New()}
}

// Moved receives the machine's next deadline (0 for none) after each entry. The goroutine that
// applies entries calls it.
func (p *Pacer) Moved(deadline fsm.Time) {
	if deadline == 0 {
		return // at worst, the pacer wakes once in vain
	}
	if armed := p.armed.Load(); armed == 0 || int64(deadline) < armed {
		p.wake.Send()
	}
}

// Run proposes until ctx ends.
func (p *Pacer) Run(ctx context.Context) {
	timer := time.NewTimer(noDeadline)
	defer timer.Stop()
	for {
		wait, armed := p.step(ctx)
		switch {
		case !armed:
			wait = noDeadline
		case wait == 0 && ctx.Err() == nil:
			continue
		default:
			wait = min(wait, clock.Recheck)
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-p.wake:
		case <-ctx.Done():
			return
		}
	}
}

// step proposes an Expire if one is due, and returns how long to wait next; armed is false if there
// is no deadline.
func (p *Pacer) step(ctx context.Context) (wait time.Duration, armed bool) {
	deadline := p.arm()
	if deadline == 0 {
		return 0, false
	}
	if wait := deadline.Add(expireSlack).Sub(p.now()); wait > 0 {
		return wait, true
	}
	for {
		more, err := p.expire(ctx)
		if err != nil {
			return expireRetry, true
		}
		if !more {
			break
		}
	}
	after := p.arm()
	switch after {
	case 0:
		return 0, false
	case deadline: // another Expire at once would not change it either
		return expireRetry, true
	default:
		return max(0, after.Add(expireSlack).Sub(p.now())), true
	}
}

// arm reads the next deadline. An earlier one that is set afterwards wakes the pacer.
func (p *Pacer) arm() fsm.Time {
	for {
		deadline := p.deadline()
		p.armed.Store(int64(deadline))
		if again := p.deadline(); again == 0 || again >= deadline && deadline != 0 {
			return deadline
		}
	}
}
