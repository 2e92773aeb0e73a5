package propose

import (
	"strings"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

const (
	// contendedFor is how long a shard counts as contended after requests of two tenants came one
	// after the other.
	contendedFor = time.Second
	// tenantCostMax and tenantBytesMax bound what one entry takes from one tenant while the shard is
	// contended; an entry takes at least one request. Every request waits for the entry in flight and
	// for its own, so this bounds the wait, and leaves processors idle while the disk syncs.
	tenantCostMax  = 256
	tenantBytesMax = 64 << 10
	// ReservedShare is the divisor of the room for waiting requests that each tenant may use even if
	// other tenants have filled the room.
	ReservedShare = 8
)

// fairQueue holds the requests that wait to be logged: a FIFO queue for each tenant, served
// round-robin, so that a tenant with many requests delays only itself.
type fairQueue struct {
	byTenant map[string]*tenantQueue
	next     *tenantQueue // served next; nil if the queue is empty
	spare    *tenantQueue
	entry    uint64 // counts the batches that were taken

	last        string    // the tenant of the last request
	contendedAt time.Time // when requests of two tenants last came one after the other
}

// tenantQueue holds the waiting requests of one tenant. The tenants' queues form a ring.
type tenantQueue struct {
	tenant     string
	head, tail *Proposal
	requests   int
	bytes      int64
	prev, next *tenantQueue

	entry      uint64 // the batch that cost and bytesTaken belong to
	cost       uint64
	bytesTaken int64
}

// TenantOf returns the tenant of a request: the namespace of its first command's queue, or the
// queue itself if that has no namespace. It is empty for a request that names no queue.
func TenantOf(req *fsm.Request) string {
	if req == nil || len(req.Commands) == 0 {
		return ""
	}
	tenant, _, _ := strings.Cut(fsm.QueueOf(req.Commands[0]), "/")
	return tenant
}

// of returns the queue of a tenant, nil if none of its requests waits.
func (fq *fairQueue) of(tenant string) *tenantQueue { return fq.byTenant[tenant] }

// add appends a proposal to the queue of its tenant.
func (fq *fairQueue) add(tenant string, pr *Proposal) {
	if tenant != fq.last {
		if fq.last != "" && tenant != "" {
			fq.contendedAt = pr.queued
		}
		if tenant != "" {
			fq.last = tenant
		}
	}
	l := fq.byTenant[tenant]
	if l == nil {
		l = fq.openTenant(tenant)
	}
	pr.tenantQueue, pr.prev, pr.waiting = l, l.tail, true
	if l.tail == nil {
		l.head = pr
	} else {
		l.tail.next = pr
	}
	l.tail = pr
	l.requests++
	l.bytes += int64(len(pr.Encoded))
}

// openTenant adds a tenant, to be served after all others.
func (fq *fairQueue) openTenant(tenant string) *tenantQueue {
	l := fq.spare
	fq.spare = nil
	if l == nil {
		l = new(tenantQueue)
	}
	*l = tenantQueue{tenant: tenant}
	if fq.byTenant == nil {
		fq.byTenant = map[string]*tenantQueue{}
	}
	fq.byTenant[tenant] = l
	if fq.next == nil {
		l.prev, l.next, fq.next = l, l, l
		return l
	}
	l.prev, l.next = fq.next.prev, fq.next
	l.prev.next, l.next.prev = l, l
	return l
}

// remove takes a proposal out of the queue.
func (fq *fairQueue) remove(pr *Proposal) {
	l := pr.tenantQueue
	if pr.prev == nil {
		l.head = pr.next
	} else {
		pr.prev.next = pr.next
	}
	if pr.next == nil {
		l.tail = pr.prev
	} else {
		pr.next.prev = pr.prev
	}
	pr.tenantQueue, pr.prev, pr.next, pr.waiting = nil, nil, nil, false
	l.requests--
	l.bytes -= int64(len(pr.Encoded))
	if l.requests > 0 {
		return
	}
	delete(fq.byTenant, l.tenant)
	if l.next == l {
		fq.next = nil
	} else {
		l.prev.next, l.next.prev = l.next, l.prev
		if fq.next == l {
			fq.next = l.next
		}
	}
	fq.spare = l
}

// takeLocked takes proposals of one format, round-robin over the tenants, up to about sizeMax bytes
// and costMax units of work. If the shard is contended, it takes at most tenantCostMax and
// tenantBytesMax from each tenant. It takes at least one proposal if there is any.
func (p *Queue) takeLocked(sizeMax int64, costMax uint64, contended bool) []*Proposal {
	batch := make([]*Proposal, 0, p.requests)
	var size int64
	var cost uint64
	fq := &p.queue
	fq.entry++
	for passed := 0; fq.next != nil && passed < len(fq.byTenant); {
		l := fq.next
		pr := l.head
		bytes := int64(len(pr.Encoded))
		if l.entry != fq.entry {
			l.entry, l.cost, l.bytesTaken = fq.entry, 0, 0
		} else if contended && (l.cost+pr.cost > tenantCostMax || l.bytesTaken+bytes > tenantBytesMax) {
			passed++ // checked before the batch's room: one tenant at its limit must not end the batch for the others
			fq.next = l.next
			continue
		}
		if len(batch) > 0 && (size+bytes > sizeMax || cost+pr.cost > costMax || pr.Format != batch[0].Format) {
			break
		}
		passed = 0
		size, cost = size+bytes, cost+pr.cost
		l.cost, l.bytesTaken = l.cost+pr.cost, l.bytesTaken+bytes
		batch = append(batch, pr)
		fq.next = l.next
		p.unlinkLocked(pr)
	}
	return batch
}

// contendedLocked reports whether several tenants use the shard.
func (p *Queue) contendedLocked() bool {
	return !p.queue.contendedAt.IsZero() && time.Since(p.queue.contendedAt) < contendedFor
}

// hasRoomLocked reports whether there is room for one more request of a tenant. A request larger
// than the whole room may enter an empty queue.
func (p *Queue) hasRoomLocked(tenant string, size int64) bool {
	if p.requests < p.cfg.QueueRequestsMax && (p.requests == 0 || p.bytes+size <= p.cfg.QueueBytesMax) {
		return true
	}
	var requests int
	var bytes int64
	if l := p.queue.of(tenant); l != nil {
		requests, bytes = l.requests, l.bytes
	}
	return requests < p.cfg.QueueRequestsMax/ReservedShare && bytes+size <= p.cfg.QueueBytesMax/ReservedShare &&
		p.requests < 2*p.cfg.QueueRequestsMax && p.bytes+size <= 2*p.cfg.QueueBytesMax && len(p.queue.byTenant) > 0 &&
		requests < p.requests
}
