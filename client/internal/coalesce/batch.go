package coalesce

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/client/internal/failure"
)

// All methods but pause are called with mu held.

// refused records an error that concerns every entry, nil for an answer that makes no sense. It
// returns how many entries wait for renew.
func (b *batch[Q, R]) refused(ctx context.Context, err error) int {
	typed := failure.Of(err)
	if typed == nil {
		typed = failure.MissingResult()
	}
	typed.RequestID = b.id
	expired := 0
	for _, e := range b.entries {
		if e != nil {
			expired += b.note(ctx, e, typed)
		}
	}
	return expired
}

// answered gives each entry its reply. It returns how many entries wait for renew.
func (b *batch[Q, R]) answered(ctx context.Context, replies []Reply[R]) int {
	expired := 0
	for i, e := range b.entries {
		switch {
		case e == nil:
		case replies[i].Err != nil:
			replies[i].Err.RequestID = b.id
			expired += b.note(ctx, e, replies[i].Err)
		default:
			b.answer(e, replies[i])
		}
	}
	return expired
}

// note records a failed attempt at an entry, and answers the entry unless another attempt makes
// sense. It returns 1 if the entry waits for renew, else 0.
func (b *batch[Q, R]) note(ctx context.Context, e *entry[Q, R], err *failure.Error) int {
	if ctx.Err() != nil && err.Reason == "" {
		ended := e.history.Ended(ctx, failure.SentBy(err))
		ended.RequestID = b.id
		b.answer(e, Reply[R]{Err: ended})
		return 0
	}
	if err.Reason == failure.RequestExpired && e.history.Attempts() == 0 && !b.final {
		return 1
	}
	if !e.history.Failed(err) {
		b.answer(e, Reply[R]{Err: e.history.Settled()})
		return 0
	}
	if b.history.Last() == nil {
		b.history.Failed(err)
	}
	return 0
}

// answer gives an entry its reply.
func (b *batch[Q, R]) answer(e *entry[Q, R], r Reply[R]) {
	b.close(e)
	e.reply = r
	if e.wake != nil {
		b.toWake.Add(e.wake)
	}
	e.answered.Store(true)
}

// unlock unlocks mu and wakes the callers that were answered.
func (b *batch[Q, R]) unlock() {
	answered := b.toWake
	b.toWake = nil
	b.mu.Unlock()
	answered.Send()
}

// close removes an entry: its caller has its answer, or has left.
func (b *batch[Q, R]) close(e *entry[Q, R]) {
	b.entries[e.place] = nil
	b.open--
}

// end answers all entries because ctx ended while no attempt was in flight.
func (b *batch[Q, R]) end(ctx context.Context) {
	for _, e := range b.entries {
		if e != nil {
			err := e.history.Ended(ctx, failure.NothingSent)
			err.RequestID = b.id
			b.answer(e, Reply[R]{Err: err})
		}
	}
}

// renew handles a first attempt that was refused because its request id is too old. The id was
// fresh, so this machine's clock was wrong, and it has been corrected by now. No change was applied
// under the id, so the open entries continue as a batch with a new id. If some entries must be
// repeated under the old id, the others cannot leave it and are answered.
func (b *batch[Q, R]) renew(id string) {
	b.renewed = true
	if b.history.Last() != nil {
		for _, e := range b.entries {
			if e != nil && e.history.Attempts() == 0 {
				b.answer(e, Reply[R]{Err: failure.ClockBehind(b.id)})
			}
		}
		return
	}
	var reqs []Q
	var entries []*entry[Q, R]
	for i, e := range b.entries {
		if e != nil {
			e.place = len(entries)
			reqs, entries = append(reqs, b.reqs[i]), append(entries, e)
		}
	}
	b.reqs, b.entries, b.id = reqs, entries, id
}

// pause returns how long to wait before the next attempt.
func (b *batch[Q, R]) pause() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.history.Last() == nil {
		return 0 // the request id was renewed
	}
	return b.history.Pause()
}
