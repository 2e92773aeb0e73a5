package node

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/wakeup"
)

const (
	// expireSlack is how long something is overdue before the pacer acts: most of it is settled by the commands of callers
	// first, and what is left gathers to be carried out together.
	expireSlack = 100 * time.Millisecond
	// expireRetry is how long the pacer waits after an Expire that failed or did not help.
	expireRetry = time.Second
)

// pacer proposes Expire for what is overdue and nobody asked for. At most one is in flight, and none if nothing is overdue.
type pacer struct {
	now func() fsm.Time
	// deadline returns the machine's next deadline, 0 if there is none.
	deadline func() fsm.Time
	// expire proposes one Expire and reports whether it left work undone.
	expire func(ctx context.Context) (more bool, err error)

	armed atomic.Int64 // the deadline that the pacer waits for; 0 for none
	wake  wakeup.Signal
}

// moved is told the machine's next deadline (0 for none) after each entry, by the goroutine that applies entries.
func (p *pacer) moved(deadline fsm.Time) {
	if deadline == 0 {
		return // waking up in vain once is all that comes of it
	}
	if armed := p.armed.Load(); armed == 0 || int64(deadline) < armed {
		p.wake.Send()
	}
}

// run works until ctx ends.
func (p *pacer) run(ctx context.Context) {
	timer := time.NewTimer(never)
	defer timer.Stop()
	for {
		wait, armed := p.step(ctx)
		switch {
		case !armed:
			wait = never
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

// step acts if that is due and returns for how long to wait then; armed is false if there is nothing to wait for.
func (p *pacer) step(ctx context.Context) (wait time.Duration, armed bool) {
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
	case deadline: // whatever it is, asking again at once will not move it
		return expireRetry, true
	default:
		return max(0, after.Add(expireSlack).Sub(p.now())), true
	}
}

// arm reads the next deadline such that no earlier one that comes after goes unnoticed.
func (p *pacer) arm() fsm.Time {
	for {
		deadline := p.deadline()
		p.armed.Store(int64(deadline))
		if again := p.deadline(); again == 0 || again >= deadline && deadline != 0 {
			return deadline
		}
	}
}
