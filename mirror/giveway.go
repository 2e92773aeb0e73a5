package mirror

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/belfrydb/belfry/client"
)

const (
	// wishID is the id of the job by which an export asks for the hold. It ends by itself after wishTTL, should the export have been killed.
	wishID  = "wish"
	wishTTL = time.Minute
	// wishEnd is how long an export tries to take its wish back.
	wishEnd = 5 * time.Second
	// wishEvery is how often an export repeats its wish, and how often a follower or a bridge looks for one.
	wishEvery = time.Second
	// wishWait is how long a follower or a bridge waits for the answer before it says so.
	wishWait = 2 * time.Second
)

// errAway and errBack say whether Belfry answers.
var (
	errAway = errors.New("no server of Belfry answers; waiting until one does")
	errBack = errors.New("a server of Belfry answers again")
)

// ErrTakenBack says that an export or a rollback took the jobs back to Redisson, and nobody decided since that they come over again.
var ErrTakenBack = errors.New("the jobs were taken back to Redisson; 'belfry mirror import', 'cutover' or 'run --again' brings them over again")

// errWished says that an export asks for the hold.
var errWished = errors.New("a rollback, an export or a settle asks for this queue")

// errAsked is errHeld for who asks for the hold.
var errAsked = errors.New("another process mirrors this queue; 'mirror run', 'serve' and 'import --follow' let go of it, any other is waited for")

// turn does work while this process has the hold. It does not undo a rollback: if the jobs were taken back, standing work waits until somebody decides that they come over again, and other work is that decision, unless
// the rollback came after it. A process that follows lets go of the hold when an export asks for it: standing work waits then, other ends with an error.
func (i *importer) turn(ctx context.Context, work func(ctx context.Context) error) error {
	asked := 0 // the epoch in which this process was told to bring entries over
	if i.again {
		takes, err := i.beingTaken(ctx)
		switch {
		case err != nil:
			return err
		case takes && !i.standing:
			return fmt.Errorf("%w; run this again when that has ended, if it was killed in %v", errWished, i.lease)
		case !takes: // who is started during a rollback did not decide after it
			if asked, err = currentEpoch(ctx, i.belfry, i.control); err != nil {
				return err
			}
		}
	}
	for told := error(nil); ; {
		err := i.mayBegin(ctx, asked)
		if err == nil {
			if i.counts.TakenBack {
				i.counts.TakenBack = false
				i.report() // Redis may be out of sight for long, which nobody would learn of a bridge that is said to wait
			}
			err = i.withHold(ctx, func(ctx context.Context) error { return i.givingWay(ctx, asked, work) })
		}
		waits := errors.Is(err, ErrTakenBack) || errors.Is(err, errWished)
		if !i.standing || !waits || ctx.Err() != nil {
			return err
		}
		if told == nil || told.Error() != err.Error() {
			told = err
			i.notice(fmt.Errorf("waiting: %w", err))
		}
		i.counts.TakenBack, i.counts.Left, i.counts.Earliest = true, 0, time.Time{}
		i.report()
		if err := sleep(ctx, wishEvery); err != nil {
			return err
		}
	}
}

// mayBegin returns errWished or ErrTakenBack if entries should not be brought over now.
func (i *importer) mayBegin(ctx context.Context, asked int) error {
	epoch, err := currentEpoch(ctx, i.belfry, i.control)
	if err != nil {
		return err
	}
	if i.follow || i.standing {
		if err := i.wished(ctx); err != nil {
			return err
		}
	}
	if epoch == asked {
		return nil
	}
	taken, err := i.takenBack(ctx, epoch)
	if taken {
		return ErrTakenBack
	}
	return err
}

// takenBack reports whether an export began the present epoch, and nobody decided since that entries come over again.
func (l *link) takenBack(ctx context.Context, epoch int) (bool, error) {
	if epoch == 1 {
		return false, nil
	}
	_, err := l.belfry.Get(ctx, l.control, againID(epoch))
	if err != nil && !isGone(err) {
		return false, fmt.Errorf("reading whether the jobs were taken back: %w", err)
	}
	return err != nil, nil
}

// givingWay does work that may begin, and ends it when an export asks for the hold, if it is work that follows.
func (i *importer) givingWay(ctx context.Context, asked int, work func(ctx context.Context) error) error {
	if err := i.mayBegin(ctx, asked); err != nil { // it may have changed while the hold was waited for
		return err
	}
	if i.epoch == asked && asked > 1 {
		if err := i.decide(ctx); err != nil {
			return err
		}
	}
	i.worked = true
	if !i.follow && !i.standing {
		return work(ctx)
	}
	ctx, stop := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for away := false; sleep(ctx, wishEvery) == nil; {
			asking, cancel := context.WithTimeout(ctx, wishWait)
			err := i.wished(asking)
			cancel()
			switch {
			case errors.Is(err, errWished):
				stop(err)
			case ctx.Err() == nil && (err != nil) != away: // the hold is lost if that lasts
				if away = err != nil; away {
					i.notice(errAway)
				} else {
					i.notice(errBack)
				}
			}
		}
	}()
	err := work(ctx)
	stop(nil)
	<-watched
	return err
}

// decide writes down that the entries come over again after they were taken back. Repeating it changes nothing.
func (i *importer) decide(ctx context.Context) error {
	_, err := i.belfry.Put(ctx, i.control, nil, client.ID(againID(i.epoch)), client.In(epochDelay), client.Again())
	if err != nil {
		return fmt.Errorf("writing down that the entries come over again: %w", err)
	}
	return nil
}

func againID(epoch int) string { return "again:" + strconv.Itoa(epoch) }

// beingTaken reports whether an export is under way: it asks for the hold, and somebody has it.
func (l *link) beingTaken(ctx context.Context) (bool, error) {
	switch err := l.wished(ctx); {
	case err == nil:
		return false, nil
	case !errors.Is(err, errWished):
		return false, err
	}
	job, err := l.belfry.Get(ctx, l.control, holdID)
	if err != nil && !isGone(err) {
		return false, fmt.Errorf("looking who has the queue: %w", err)
	}
	return err == nil && job.State == "RESERVED", nil
}

// wished returns errWished if an export asks for the hold.
func (l *link) wished(ctx context.Context) error {
	_, err := l.belfry.Get(ctx, l.control, wishID)
	switch {
	case err == nil:
		return errWished
	case isGone(err):
		return nil
	default:
		return fmt.Errorf("looking whether another process asks for the queue: %w", err)
	}
}

// withWish is withHold for work that others give way to.
func (l *link) withWish(ctx context.Context, work func(ctx context.Context) error) error {
	wishing, stop := context.WithCancel(ctx)
	wish := func() {
		_, err := l.belfry.Put(wishing, l.control, nil, client.ID(wishID), client.In(epochDelay), client.TTL(wishTTL), client.Again())
		if err != nil && wishing.Err() == nil {
			l.notice(fmt.Errorf("asking for the queue: %w", err))
		}
	}
	wish() // before the epoch begins: who starts in between knows that it was not decided after this
	wished := make(chan struct{})
	go func() {
		defer close(wished)
		for sleep(wishing, wishEvery) == nil {
			wish()
		}
	}()
	l.held = errAsked
	err := l.withHold(ctx, work)
	stop()
	<-wished
	// A wish that stays ends by itself.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), wishEnd)
	defer cancel()
	if _, failed := l.belfry.Cancel(ending, l.control, wishID); failed != nil && !isGone(failed) {
		l.notice(fmt.Errorf("taking back the wish for the queue: %w", failed))
	}
	return err
}
