package client

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/client/internal/calls"
	"github.com/belfrydb/belfry/client/internal/failure"
)

// attemptTimeout bounds one attempt, beyond the time that a Reserve waits. After it the client asks
// again, at the same server or at another one.
const attemptTimeout = 30 * time.Second

// call sends one request until it is answered, permanently refused, or ctx ends. The request is the
// same each time, including its id. The error is an *Error.
func call[Res any](
	ctx context.Context, c *Client, kind calls.Kind, do func(context.Context, *endpoint) (*Res, error),
) (*Res, error) {
	res, err := tryCall(ctx, c, kind, do)
	if err != nil {
		return nil, public(err)
	}
	return res, nil
}

// tryCall is call with an error that is not public yet.
func tryCall[Res any](
	ctx context.Context, c *Client, kind calls.Kind, do func(context.Context, *endpoint) (*Res, error),
) (*Res, *failure.Error) {
	if c.lifetime().Err() != nil {
		return nil, failure.Closed()
	}
	res, _, err := callCounted(ctx, c, kind, do)
	if err == nil {
		return res, nil
	}
	if kind.ID != nil {
		err.RequestID = *kind.ID
	}
	return nil, err
}

// callCounted is tryCall of an open client that also returns how many attempts failed before the answer.
func callCounted[Res any](
	ctx context.Context, c *Client, kind calls.Kind, do func(context.Context, *endpoint) (*Res, error),
) (*Res, int, *failure.Error) {
	r := failure.History{NoChange: kind.Reads}
	renewed := false
	for {
		if ctx.Err() != nil {
			return nil, r.Attempts(), r.Ended(ctx, failure.NothingSent)
		}
		ep, n := c.endpoints.Pick()
		direct := c.endpoints.routes.Leader(kind.Place)
		if direct != nil {
			ep = direct
		}
		res, err := attempt(ctx, kind, ep, do)
		if err == nil {
			c.answered(kind.Place) //nolint:contextcheck // the map is for the client, not for this call
			return res, r.Attempts(), nil
		}
		e := failure.Of(err)
		if ctx.Err() != nil && e.Reason == "" {
			return nil, r.Attempts(), r.Ended(ctx, failure.SentBy(e))
		}
		if e.Reason == failure.RequestExpired && kind.ID != nil && r.Attempts() == 0 &&
			(!renewed || c.clock.SetForwardSince(*kind.ID)) {
			// The id was never sent before, so no change was applied under it. This machine's clock
			// is wrong, and the refusal has set it.
			renewed = true
			*kind.ID = c.clock.NewID()
			continue
		}
		if !r.Failed(e) {
			return nil, r.Attempts(), r.Settled()
		}
		c.endpoints.leaveFailed(e, direct, n)
		if kind.Failed != nil {
			kind.Failed(e)
		}
		if failure.Sleep(ctx, r.Pause()) != nil {
			return nil, r.Attempts(), r.Ended(ctx, failure.NothingSent)
		}
	}
}

func attempt[Res any](
	ctx context.Context, kind calls.Kind, ep *endpoint, do func(context.Context, *endpoint) (*Res, error),
) (*Res, error) {
	ctx, cancel := context.WithTimeout(ctx, kind.Wait+attemptTimeout)
	defer cancel()
	if err := ep.sessions.Verify(ctx); err != nil {
		return nil, err
	}
	return do(ctx, ep)
}

// leaveFailed records that a call failed with err: at the leader direct, or if that is nil, at
// server number n.
func (e *endpoints) leaveFailed(err *failure.Error, direct *endpoint, n uint32) {
	switch {
	case !failure.Leaves(err):
	case direct != nil:
		e.routes.Doubt(direct)
	default:
		e.MoveOn(n)
	}
}
