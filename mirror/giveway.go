package mirror

import (
	"context"
	"errors"
	"fmt"
	"github.com/belfrydb/belfry/mirror/pair"
	"time"
)

// askEvery is how often standing work looks whether it may begin.
const askEvery = time.Second

// ErrTakenBack says that an export or a rollback took the jobs back to Redisson, and that no later
// decision imports them again.
var ErrTakenBack = errors.New("the jobs were taken back to Redisson; 'belfry mirror import', 'cutover' or 'run " +
	"--again' brings them over again")

// holding does work while this process has the hold. It does not undo a rollback. If the jobs were
// taken back, standing work waits for a decision that they are imported again. Other work is that
// decision, unless the rollback came after it. A process that follows releases the hold when an
// export asks for it: standing work then waits, and other work ends with an error.
func (i *importer) holding(ctx context.Context, work func(ctx context.Context) error) error {
	asked := 0 // the epoch in which this process was told to bring entries over
	if i.again {
		takes, err := i.BeingTaken(ctx)
		switch {
		case err != nil:
			return err
		case takes && !i.standing:
			return fmt.Errorf("%w; run this again when that has ended, if it was killed in %v", pair.ErrWished, i.Hold)
		case !takes: // a start during a rollback is no decision after it
			if asked, err = i.CurrentEpoch(ctx); err != nil {
				return err
			}
		}
	}
	for told := error(nil); ; {
		err := i.mayBegin(ctx, asked)
		if err == nil {
			if i.counts.TakenBack {
				i.counts.TakenBack = false
				i.report() // Redis may stay unreachable, and the report of a waiting bridge would hide that
			}
			err = i.WithHold(ctx, func(ctx context.Context) error { return i.givingWay(ctx, asked, work) })
		}
		waits := errors.Is(err, ErrTakenBack) || errors.Is(err, pair.ErrWished)
		if !i.standing || !waits || ctx.Err() != nil {
			return err
		}
		if told == nil || told.Error() != err.Error() {
			told = err
			i.Notice(fmt.Errorf("waiting: %w", err))
		}
		i.counts.TakenBack, i.counts.Left, i.counts.Earliest = true, 0, time.Time{}
		i.report()
		if err := pair.Sleep(ctx, askEvery); err != nil {
			return err
		}
	}
}

// mayBegin returns [pair.ErrWished] or ErrTakenBack if entries should not be brought over now.
func (i *importer) mayBegin(ctx context.Context, asked int) error {
	epoch, err := i.CurrentEpoch(ctx)
	if err != nil {
		return err
	}
	if i.follow || i.standing {
		if err := i.Wished(ctx); err != nil {
			return err
		}
	}
	if epoch == asked {
		return nil
	}
	taken, err := i.TakenBack(ctx, epoch)
	if taken {
		return ErrTakenBack
	}
	return err
}

// givingWay does work that may begin, and ends it when an export asks for the hold, if it is work
// that follows.
func (i *importer) givingWay(ctx context.Context, asked int, work func(ctx context.Context) error) error {
	if err := i.mayBegin(ctx, asked); err != nil { // it may have changed while the hold was waited for
		return err
	}
	if i.Epoch() == asked && asked > 1 {
		if err := i.DecideAgain(ctx); err != nil {
			return err
		}
	}
	i.worked = true
	if !i.follow && !i.standing {
		return work(ctx)
	}
	return i.UntilWished(ctx, work)
}
