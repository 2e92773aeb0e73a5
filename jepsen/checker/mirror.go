package checker

import (
	"strings"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// mirrorQueues begins the names of the queues that the mirror serves, in Redis and in Belfry,
	// mirrorControl those of the queues in which it keeps what it remembers.
	mirrorQueues  = "mirror/"
	mirrorControl = "belfry.mirror/"
)

// ofMirror reports whether a command is about a queue on which the mirror acts, beside the clients
// of the run: what it sends is in no history.
func (c *check) ofMirror(command fsm.Command) bool {
	if k := command.Kind(); k == fsm.KindConfigure || k == fsm.KindOpen {
		return false // the mirror sends neither
	}
	queue := fsm.QueueOf(command)
	return c.mirrored && (strings.HasPrefix(queue, mirrorQueues) || strings.HasPrefix(queue, mirrorControl))
}

// remembered reports whether a job is what the mirror remembers, and never ends.
func (c *check) remembered(a *ledger.Job) bool {
	return c.mirrored && strings.HasPrefix(a.Queue.Name, mirrorControl)
}

// payload is what is known of one payload in the queues of the mirror, each of which is there once.
type payload struct {
	queue string
	// sure says that whoever brought it was told that it is there, due when it is due since the start
	// of the run; timed says that this is known.
	sure, timed bool
	brought     time.Duration
	due         time.Duration
	taken       []time.Duration
	// jobs are those of Belfry that were handed out with it.
	jobs map[jobName]time.Duration
}

// mirror holds what went through Redis against what clients did in Belfry: each payload reaches a
// consumer of one of them.
func (c *check) mirror(found *findings) {
	if !c.mirrored {
		return
	}
	all := map[string]*payload{}
	passages := c.run.History.Passages()
	for i := range passages {
		if p := &passages[i]; !p.Taken {
			all[string(p.Payload)] = &payload{queue: p.Queue, sure: !p.Unknown, timed: true, brought: p.Returned,
				due: p.Due.Sub(c.run.History.Start), jobs: map[jobName]time.Duration{}}
		}
	}
	for _, o := range c.ops {
		if req, ok := o.Request.(*belfryv1.PutRequest); ok && strings.HasPrefix(req.GetQueue(), mirrorQueues) &&
			o.Outcome != belfryv1.Outcome_OUTCOME_NOT_APPLIED {
			all[string(bodyOf(req.GetText(), req.GetData()))] = c.putForRedis(o, req)
		}
	}
	for i := range passages {
		if passages[i].Taken {
			c.taken(found, all, &passages[i])
		}
	}
	for _, o := range c.ops {
		resp, _ := o.Response.(*belfryv1.ReserveResponse)
		for _, job := range resp.GetJobs() {
			ref, ok := parseLease(job.GetLease())
			if p := all[string(bodyOf(job.GetText(), job.GetData()))]; ok && p != nil && ref.Queue == p.queue {
				p.jobs[jobName{ref.Queue, ref.Partition, ref.Serial}] = o.Returned
			}
		}
	}
	for name, p := range all {
		c.reached(found, name, p)
	}
}

// putForRedis is the payload of a job that a client put.
func (c *check) putForRedis(o *history.Op, req *belfryv1.PutRequest) *payload {
	p := &payload{queue: req.GetQueue(), sure: o.OK(), brought: o.Returned, jobs: map[jobName]time.Duration{}}
	due := req.GetDueAt()
	if resp, ok := o.Response.(*belfryv1.PutResponse); ok {
		due = resp.GetDueAt()
	}
	if due != nil {
		p.timed, p.due = true, c.since(timeOf(due))
	}
	return p
}

// taken judges a payload that came off a ready list.
func (c *check) taken(found *findings, all map[string]*payload, passage *history.Passage) {
	found.look(mirrorNowhere)
	p := all[string(passage.Payload)]
	if p == nil || p.queue != passage.Queue {
		found.violated(mirrorNowhere, passage.Returned, "%s took %q from the ready list of %s, where nobody had brought it",
			passage.Client, passage.Payload, passage.Queue)
		return
	}
	p.taken = append(p.taken, passage.Returned)
	if !p.timed {
		return
	}
	found.look(mirrorEarly)
	if ahead := c.ahead.at(passage.Returned); passage.Returned+ahead < p.due {
		found.violated(mirrorEarly, passage.Returned, "%s took %q from the ready list of %s, %v before it was due; %v is "+
			"allowed", passage.Client, passage.Payload, passage.Queue,
			p.due-passage.Returned, ahead)
	}
}

// reached judges where a payload came to.
func (c *check) reached(found *findings, name string, p *payload) {
	times := len(p.taken) + len(p.jobs)
	if times > 0 {
		found.look(mirrorTwice)
	}
	if times > 1 {
		at := p.brought
		for _, t := range p.taken {
			at = max(at, t)
		}
		found.violated(mirrorTwice, at, "%q of %s was taken from the ready list at %v, and as %d jobs from Belfry", name,
			p.queue, p.taken, len(p.jobs))
	}
	if p.sure && c.run.Drained > 0 {
		found.look(mirrorLost)
		if times == 0 {
			found.violated(mirrorLost, p.brought, "%q, brought to %s at %v, came to nobody", name, p.queue,
				p.brought.Round(time.Millisecond))
		}
	}
}
