// Package mirror judges the promises M1 to M4 of the mirror, by what went through Redis and what
// clients did in Belfry.
package mirror

import (
	"strings"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/wire"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Queues begins the names of the queues that the mirror serves, in Redis and in Belfry.
const Queues = "mirror/"

// jobName is a job of Belfry.
type jobName struct {
	queue     string
	partition uint32
	serial    uint64
}

// payload is what is known of one payload in the queues of the mirror, each of which is there once.
type payload struct {
	queue string
	// sure says that the sender was told that the payload is there, due when it is due since the start
	// of the run; timed says that this is known.
	sure, timed bool
	brought     time.Duration
	due         time.Duration
	taken       []time.Duration
	// jobs are those of Belfry that were handed out with it.
	jobs map[jobName]time.Duration
}

// Run is what is judged. Times are since its start.
type Run struct {
	Ops      []*history.Op
	Passages []history.Passage
	Start    time.Time
	// Drained says that all queues were emptied in the end, so that a payload which came to no
	// consumer is lost.
	Drained bool
	// Ahead returns by how much shard time may be ahead of true time at a moment.
	Ahead func(at time.Duration) time.Duration
}

// Check holds what went through Redis against what clients did in Belfry: each payload reaches a
// consumer of one of them.
func Check(run *Run, found *finding.Set) {
	all := map[string]*payload{}
	passages := run.Passages
	for i := range passages {
		if p := &passages[i]; !p.Taken {
			all[string(p.Payload)] = &payload{queue: p.Queue, sure: !p.Unknown, timed: true, brought: p.Returned,
				due: p.Due.Sub(run.Start), jobs: map[jobName]time.Duration{}}
		}
	}
	for _, o := range run.Ops {
		if req, ok := o.Request.(*belfryv1.PutRequest); ok && strings.HasPrefix(req.GetQueue(), Queues) &&
			o.Outcome != belfryv1.Outcome_OUTCOME_NOT_APPLIED {
			all[string(wire.BodyOf(req.GetText(), req.GetData()))] = run.putForRedis(o, req)
		}
	}
	for i := range passages {
		if passages[i].Taken {
			run.taken(found, all, &passages[i])
		}
	}
	for _, o := range run.Ops {
		resp, _ := o.Response.(*belfryv1.ReserveResponse)
		for _, job := range resp.GetJobs() {
			ref, ok := wire.ParseLease(job.GetLease())
			if p := all[string(wire.BodyOf(job.GetText(), job.GetData()))]; ok && p != nil && ref.Queue == p.queue {
				p.jobs[jobName{ref.Queue, ref.Partition, ref.Serial}] = o.Returned
			}
		}
	}
	for name, p := range all {
		run.reached(found, name, p)
	}
}

// putForRedis is the payload of a job that a client put.
func (run *Run) putForRedis(o *history.Op, req *belfryv1.PutRequest) *payload {
	p := &payload{queue: req.GetQueue(), sure: o.OK(), brought: o.Returned, jobs: map[jobName]time.Duration{}}
	due := req.GetDueAt()
	if resp, ok := o.Response.(*belfryv1.PutResponse); ok {
		due = resp.GetDueAt()
	}
	if due != nil {
		p.timed, p.due = true, time.Duration(wire.TimeOf(due)-fsm.Time(run.Start.UnixNano()))
	}
	return p
}

// taken judges a payload that came off a ready list.
func (run *Run) taken(found *finding.Set, all map[string]*payload, passage *history.Passage) {
	found.Look(finding.MirrorNowhere)
	p := all[string(passage.Payload)]
	if p == nil || p.queue != passage.Queue {
		found.Violated(finding.MirrorNowhere, passage.Returned,
			"%s took %q from the ready list of %s, where nobody had brought it",
			passage.Client, passage.Payload, passage.Queue)
		return
	}
	p.taken = append(p.taken, passage.Returned)
	if !p.timed {
		return
	}
	found.Look(finding.MirrorEarly)
	if ahead := run.Ahead(passage.Returned); passage.Returned+ahead < p.due {
		found.Violated(finding.MirrorEarly, passage.Returned,
			"%s took %q from the ready list of %s, %v before it was due; %v is "+
				"allowed", passage.Client, passage.Payload, passage.Queue,
			p.due-passage.Returned, ahead)
	}
}

// reached judges where a payload came to.
func (run *Run) reached(found *finding.Set, name string, p *payload) {
	times := len(p.taken) + len(p.jobs)
	if times > 0 {
		found.Look(finding.MirrorTwice)
	}
	if times > 1 {
		at := p.brought
		for _, t := range p.taken {
			at = max(at, t)
		}
		found.Violated(finding.MirrorTwice, at, "%q of %s was taken from the ready list at %v, and as %d jobs from Belfry",
			name,
			p.queue, p.taken, len(p.jobs))
	}
	if p.sure && run.Drained {
		found.Look(finding.MirrorLost)
		if times == 0 {
			found.Violated(finding.MirrorLost, p.brought, "%q, brought to %s at %v, came to nobody", name, p.queue,
				p.brought.Round(time.Millisecond))
		}
	}
}
