package client

import (
	"context"
	"errors"
	"time"
)

// meetWait is how long meet waits for an answer, at most half of the call's time. After that the
// call itself may find out more.
const meetWait = time.Second

// meet asks for a session ahead of the first call to a server, whatever the call is. A wrong port
// answers that request in a way that reveals it. It just drops a request over HTTP/2, whose outcome
// would be unknown.
func (ep *endpoint) meet(ctx context.Context) error {
	if ep.met.Load() {
		return nil
	}
	wait := meetWait
	if until, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(until)/2)
	}
	asking, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, err := ep.sessions.get(asking)
	switch {
	case err != nil && asking.Err() != nil && ctx.Err() == nil: // a middlebox may swallow the request
		if _, asked := errors.AsType[*askError](err); asked {
			ep.sessions.dialer.Swallowed() // this call and later ones do not ask again
		}
		return nil
	case err != nil:
		return err
	}
	ep.met.Store(true)
	return nil
}
