package beanstalkd

import (
	"context"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/beanstalkd/protocol"
	"github.com/belfrydb/belfry/rpc/wire"
)

// heldJob is a job that a connection has reserved.
type heldJob struct {
	ref   fsm.Ref
	until time.Time // when the lease lapses, by this node's clock
}

// deadlineMargin is how long before the end of a lease a reserve answers DEADLINE_SOON.
const deadlineMargin = time.Second

// hold keeps a job that was granted for so long, and returns its id.
func (c *conn) hold(ref fsm.Ref, lease time.Duration) (id uint64) {
	id = protocol.IDOf(c.door.cfg.Router.Shard(ref.Queue, ref.Partition), ref.Serial)
	c.held[id] = &heldJob{ref: ref, until: time.Now().Add(lease)}
	c.setPinned()
	return id
}

// holdGrant is hold for a grant. Its lease is counted from when it was granted, by the clock of the
// shard.
func (c *conn) holdGrant(grant *wire.Grant) (id uint64) {
	lease := grant.LeaseTTR
	if grant.Witness != nil {
		lease = min(lease, grant.Until.Sub(fsm.Time(grant.Witness.GetTime().AsTime().UnixNano())))
	}
	return c.hold(wire.Ref(grant.Job), lease)
}

// drop forgets a job that the connection held.
func (c *conn) drop(id uint64) {
	delete(c.held, id)
	c.setPinned()
}

// firstDeadline returns when the first lease of the connection lapses. It forgets the jobs whose
// leases have lapsed: they are ready again.
func (c *conn) firstDeadline(now time.Time) (first time.Time, ok bool) {
	for id, job := range c.held {
		switch {
		case !job.until.After(now):
			c.drop(id)
			c.door.counts.lapses.Add(1)
		case !ok || job.until.Before(first):
			first, ok = job.until, true
		}
	}
	return first, ok
}

// leave releases the jobs of a connection that ends.
func (c *conn) leave(ctx context.Context) {
	c.door.tubes.use(c.used, -1)
	for _, tube := range c.watched {
		c.door.tubes.watch(tube, -1)
	}
	refs := make([]fsm.Ref, 0, len(c.held))
	for _, job := range c.held {
		refs = append(refs, job.ref)
	}
	c.door.cfg.Queues.ReleaseJobs(ctx, refs)
}
