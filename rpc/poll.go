package rpc

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// errPollEnded ends the other shards' waits of a poll once one shard granted something.
var errPollEnded = errors.New("the poll found jobs in another shard")

// Reserve implements QueueService.
func (s *queueService) Reserve(ctx context.Context, req *belfryv1.ReserveRequest) (*belfryv1.ReserveResponse, error) {
	c := s.checker()
	p := poll{
		service:   s,
		queues:    c.queues("queues", req.GetQueues()),
		jobsMax:   c.count("maxJobs", req.GetMaxJobs(), 1, uint32(s.limits.BatchJobsMax)),
		ttr:       c.ttr("ttr", req.GetTtr()),
		requestID: c.requestID(req.GetRequestId()),
	}
	wait, _ := c.span("wait", req.GetWait(), 0, s.limits.WaitMax)
	if c.err != nil {
		return nil, c.err
	}
	if s.drain.isBegun() {
		return nil, fault(belfryv1.Reason_REASON_SHUTTING_DOWN)
	}
	polling, stop := s.drain.until(ctx)
	defer stop()
	if err := p.run(polling, withinDeadline(ctx, wait)); err != nil && !endedByDrain(ctx, polling) {
		return nil, err
	}
	if ctx.Err() != nil && p.requestID == "" {
		// Nobody will get the answer. With a request id somebody may come back for it.
		s.releaseAll(ctx, p.jobs)
		return nil, faultOfError(ctx.Err())
	}
	out := &belfryv1.ReserveResponse{Jobs: p.jobs}
	if len(p.jobs) == 0 {
		out.Witnesses = p.witnesses
	}
	return out, nil
}

// The share of the time until a caller's deadline that is kept for the answer to a poll, and its bounds.
const (
	answerShare   = 10
	answerTimeMin = 5 * time.Millisecond
	answerTimeMax = 250 * time.Millisecond
)

// withinDeadline shortens a wait so that the answer, even an empty one, is there before the caller's deadline.
func withinDeadline(ctx context.Context, wait time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return wait
	}
	left := time.Until(deadline)
	return max(0, min(wait, left-min(max(left/answerShare, answerTimeMin), answerTimeMax)))
}

// endedByDrain reports whether a poll was ended because the server stops. Its caller gets what there is: nothing.
func endedByDrain(ctx, polling context.Context) bool { return polling.Err() != nil && ctx.Err() == nil }

// poll is one attempt to get jobs of several queues. It is used by one goroutine, except collect and park's results.
type poll struct {
	service   *queueService
	queues    []string
	jobsMax   uint32
	ttr       time.Duration
	requestID string

	jobs      []*belfryv1.Job
	witnesses []*belfryv1.Witness
}

// step is one Reserve of one shard. key tells the steps of a poll apart in request ids; it depends on the queues only,
// so that a repeated poll makes the same steps.
type step struct {
	shard  uint32
	queues []string
	key    string
}

// run fills p.jobs. One shard needs one call, since the machine itself tries the queues in order and remembers the
// grants of a request. Several shards are asked in the order of the queues without waiting; if none has a job, all are
// waited for together.
func (p *poll) run(ctx context.Context, wait time.Duration) error {
	steps := p.steps()
	if len(steps) == 1 {
		return p.once(ctx, steps[0], wait)
	}
	if p.requestID != "" {
		if err := p.recall(ctx, steps); err != nil || len(p.jobs) > 0 {
			return err
		}
	}
	for _, st := range steps {
		if err := p.once(ctx, st, 0); err != nil || len(p.jobs) > 0 {
			return err
		}
	}
	if wait <= 0 {
		return nil
	}
	return p.park(ctx, p.parkSteps(), wait)
}

// steps returns the Reserves of the first round: the queues in order, the partitions of one in rotation, neighbouring
// queues of one shard together.
func (p *poll) steps() []step {
	var steps []step
	for i, queue := range p.queues {
		shards := p.service.shards(queue)
		if len(shards) == 1 && len(steps) > 0 && steps[len(steps)-1].shard == shards[0] && p.single(steps[len(steps)-1]) {
			last := &steps[len(steps)-1]
			last.queues = append(last.queues, queue)
			continue
		}
		first := 0
		if len(shards) > 1 {
			first = int(p.service.turn.Add(1) % uint32(len(shards)))
		}
		for k := range shards {
			shard := shards[(first+k)%len(shards)]
			steps = append(steps, step{shard: shard, queues: []string{queue}, key: "#" + itoa(i) + "." + itoa(int(shard))})
		}
	}
	if len(steps) == 1 {
		steps[0].key = ""
	}
	return steps
}

// single reports whether the queues of a step have one partition each; only such may share a step.
func (p *poll) single(st step) bool { return p.service.partitions(st.queues[0]) == 1 }

// parkSteps returns the Reserves of the second round: one for each shard concerned, with all its queues in order.
func (p *poll) parkSteps() []step {
	var steps []step
	for _, queue := range p.queues {
		for _, shard := range p.service.shards(queue) {
			i := slices.IndexFunc(steps, func(st step) bool { return st.shard == shard })
			if i < 0 {
				steps, i = append(steps, step{shard: shard, key: "#w." + itoa(int(shard))}), len(steps)
			}
			steps[i].queues = append(steps[i].queues, queue)
		}
	}
	return steps
}

// request returns the machine's request for a step.
func (p *poll) request(st step) *fsm.Request {
	req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: st.queues, Max: p.jobsMax, TTR: p.ttr, Bytes: uint64(p.service.limits.ReserveBytesMax)}}}
	if p.requestID != "" {
		req.ID = p.requestID + st.key
	}
	return req
}

// once makes one step and collects what it granted.
func (p *poll) once(ctx context.Context, st step, wait time.Duration) error {
	reply, err := p.service.node.Reserve(ctx, st.shard, p.request(st), wait)
	if err != nil {
		return faultOfShard(st.shard, err)
	}
	return p.collect(st.shard, reply)
}

// recall collects the grants of an earlier run with this request id that are still held, from all shards.
func (p *poll) recall(ctx context.Context, steps []step) error {
	for _, st := range append(steps, p.parkSteps()...) {
		var grants []fsm.Grant
		w, err := p.service.node.Read(ctx, st.shard, func(m *fsm.Machine, now fsm.Time) {
			grants = slices.Clone(m.Recall("", p.requestID+st.key, now))
		})
		if err != nil {
			return faultOfShard(st.shard, err)
		}
		if len(grants) > 0 {
			if err := p.collect(st.shard, node.Reply{Witness: w, Results: []fsm.Result{{Grants: grants}}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// collect reads the jobs of a step's grants. A grant that is not held any more, because its lease was short or a repeat
// of this call has finished it, is left out: its token would be stale.
func (p *poll) collect(shard uint32, reply node.Reply) error {
	w := wireWitness(reply.Witness)
	if w != nil {
		p.witnesses = append(p.witnesses, w)
	}
	if len(reply.Results) != 1 {
		return nil
	}
	result := &reply.Results[0]
	if result.Code != fsm.OK {
		return faultOfResult(shard, result)
	}
	if len(result.Grants) == 0 {
		return nil
	}
	settings := map[string]*fsm.Settings{}
	_, err := p.service.node.View(shard, func(m *fsm.Machine, now fsm.Time) {
		for i := range result.Grants {
			g := &result.Grants[i]
			job, ok := m.Held(fsm.Ref{Queue: g.Queue, Partition: g.Partition, Serial: g.Serial, Fence: g.Fence})
			if !ok {
				continue
			}
			if settings[g.Queue] == nil {
				q, _ := m.Queue(g.Queue, now)
				settings[g.Queue] = &q.Settings
			}
			p.jobs = append(p.jobs, wireGrant(g, &job, settings[g.Queue], w))
		}
	})
	if err != nil {
		return faultOfShard(shard, err)
	}
	for i := range result.Grants {
		p.service.meters.grant(&result.Grants[i], reply.Witness.Time)
	}
	return nil
}

// parked is what one shard answered to a waiting step.
type parked struct {
	step  step
	reply node.Reply
	err   error
}

// park waits at all shards at once. The first grant ends the others' waits; what they granted meanwhile is added up to
// the number of jobs asked for, and the rest is given back without counting an attempt.
func (p *poll) park(ctx context.Context, steps []step, wait time.Duration) error {
	waiting, end := context.WithCancelCause(ctx)
	defer end(nil)
	results := make(chan parked, len(steps))
	var group sync.WaitGroup
	for _, st := range steps {
		group.Go(func() {
			reply, err := p.service.node.Reserve(waiting, st.shard, p.request(st), wait)
			if err != nil || granted(reply) {
				end(errPollEnded)
			}
			results <- parked{step: st, reply: reply, err: err}
		})
	}
	group.Wait()
	close(results)
	var failed error
	for r := range results {
		switch {
		case errors.Is(r.err, node.ErrCanceled) && errors.Is(context.Cause(waiting), errPollEnded):
			// Its wait was ended by us.
		case r.err != nil:
			failed = errors.Join(failed, faultOfShard(r.step.shard, r.err))
		default:
			failed = errors.Join(failed, p.collect(r.step.shard, r.reply))
		}
	}
	p.giveBack(ctx)
	if len(p.jobs) > 0 || failed == nil {
		return nil
	}
	return faultOfError(failed)
}

// granted reports whether a reply hands out jobs.
func granted(reply node.Reply) bool {
	return slices.ContainsFunc(reply.Results, func(r fsm.Result) bool { return len(r.Grants) > 0 })
}

// giveBack releases the jobs beyond the number asked for. If that fails their leases lapse, which is the price of a
// crash at this moment as well.
func (p *poll) giveBack(ctx context.Context) {
	if len(p.jobs) <= int(p.jobsMax) {
		return
	}
	p.service.releaseAll(ctx, p.jobs[p.jobsMax:])
	p.jobs = p.jobs[:p.jobsMax]
}

// releaseWait bounds how long jobs that nobody will work on are tried to be given back.
const releaseWait = 5 * time.Second

// releaseAll gives jobs back, also if ctx has ended: then most of all.
func (s *queueService) releaseAll(ctx context.Context, jobs []*belfryv1.Job) {
	if len(jobs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
	defer cancel()
	commands := make([]placed, 0, len(jobs))
	for i, job := range jobs {
		ref, err := parseLease(job.GetLease())
		if err != nil {
			continue
		}
		commands = append(commands, placed{shard: s.shard(ref.Queue, ref.Partition), position: i, command: &fsm.Release{Ref: ref}})
	}
	s.doPlaced(ctx, "", commands, make([]answer, len(jobs)))
}
