package pair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belfrydb/belfry/client"
)

const (
	// wishID is the id of the job by which an export asks for the hold. It ends by itself after
	// wishTTL, should the export have been killed.
	wishID  = "wish"
	wishTTL = time.Minute
	// wishEnd is how long an export tries to take its wish back.
	wishEnd = 5 * time.Second
	// wishEvery is how often an export repeats its wish, and how often a follower or a bridge looks
	// for one.
	wishEvery = time.Second
	// wishWait is how long a follower or a bridge waits for the answer before it says so.
	wishWait = 2 * time.Second
)

// errAway and errBack say whether Belfry answers.
var (
	errAway = errors.New("no server of Belfry answers; waiting until one does")
	errBack = errors.New("a server of Belfry answers again")
)

// ErrWished says that another process asks for the hold.
var ErrWished = errors.New("a rollback, an export or a settle asks for this queue")

// errAsked is told by a process that asks for the hold, and waits.
var errAsked = errors.New("another process mirrors this queue; 'mirror run', 'serve' and 'import --follow' let go " +
	"of it, any other is waited for")

// Wished returns [ErrWished] if another process asks for the hold.
func (l *Link) Wished(ctx context.Context) error {
	_, err := l.Belfry.Get(ctx, l.control, wishID)
	switch {
	case err == nil:
		return ErrWished
	case IsGone(err):
		return nil
	default:
		return fmt.Errorf("looking whether another process asks for the queue: %w", err)
	}
}

// BeingTaken reports whether a process that asked for the hold has it now.
func (l *Link) BeingTaken(ctx context.Context) (bool, error) {
	switch err := l.Wished(ctx); {
	case err == nil:
		return false, nil
	case !errors.Is(err, ErrWished):
		return false, err
	}
	held, _, err := l.Holder(ctx)
	return held, err
}

// UntilWished does work, and ends its context with [ErrWished] when another process asks for the
// hold. It tells Notice when Belfry does not answer, and when it does again.
func (l *Link) UntilWished(ctx context.Context, work func(ctx context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for away := false; Sleep(ctx, wishEvery) == nil; {
			asking, cancel := context.WithTimeout(ctx, wishWait)
			err := l.Wished(asking)
			cancel()
			switch {
			case errors.Is(err, ErrWished):
				stop(err)
			case ctx.Err() == nil && (err != nil) != away: // the hold is lost if that lasts
				if away = err != nil; away {
					l.Notice(errAway)
				} else {
					l.Notice(errBack)
				}
			}
		}
	}()
	err := work(ctx)
	stop(nil)
	<-watched
	return err
}

// WithWish is [Link.WithHold] for work that others give way to: it asks for the hold, and a process
// in [Link.UntilWished] lets go of it.
func (l *Link) WithWish(ctx context.Context, work func(ctx context.Context) error) error {
	wishing, stop := context.WithCancel(ctx)
	wish := func() {
		_, err := l.Belfry.Put(wishing, l.control, nil, client.ID(wishID), client.In(epochDelay), client.TTL(wishTTL),
			client.Again())
		if err != nil && wishing.Err() == nil {
			l.Notice(fmt.Errorf("asking for the queue: %w", err))
		}
	}
	wish() // before the epoch begins, so a start in between does not count as a later decision
	wished := make(chan struct{})
	go func() {
		defer close(wished)
		for Sleep(wishing, wishEvery) == nil {
			wish()
		}
	}()
	l.held = errAsked
	err := l.WithHold(ctx, work)
	stop()
	<-wished
	// A wish that stays ends by itself.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), wishEnd)
	defer cancel()
	if _, failed := l.Belfry.Cancel(ending, l.control, wishID); failed != nil && !IsGone(failed) {
		l.Notice(fmt.Errorf("taking back the wish for the queue: %w", failed))
	}
	return err
}
