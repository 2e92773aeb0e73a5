package check

import (
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// Nack converts a nack.
func (c *Request) Nack(req *belfryv1.NackRequest) *fsm.Nack {
	nack := &fsm.Nack{
		Ref: c.Lease("lease", req.GetLease()), Error: fault.Cut(req.GetError(), c.Limits.ErrorBytesMax), Dead: req.GetDead(),
	}
	nack.Delay, nack.DelayGiven = c.delay("delay", req.GetDelay())
	nack.Delay = wire.CeilMillis(nack.Delay)
	if nack.Dead && nack.DelayGiven {
		c.Fail(fault.Invalid("delay", "a job that is to be dead has no delay"))
	}
	return nack
}

// Release converts a release.
func (c *Request) Release(req *belfryv1.ReleaseRequest) *fsm.Release {
	release := &fsm.Release{Ref: c.Lease("lease", req.GetLease())}
	delay, _ := c.delay("delay", req.GetDelay())
	release.Delay = wire.CeilMillis(delay)
	return release
}

// Extend converts an extend.
func (c *Request) Extend(req *belfryv1.ExtendRequest) *fsm.Extend {
	return &fsm.Extend{Ref: c.Lease("lease", req.GetLease()), TTR: c.TTR("ttr", req.GetTtr())}
}
