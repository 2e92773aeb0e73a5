package queue

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/auth"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// Reserve implements belfryv1connect.QueueServiceHandler.
func (s *Service) Reserve(ctx context.Context, req *belfryv1.ReserveRequest) (*belfryv1.ReserveResponse, error) {
	p, err := s.reserve(ctx, req)
	if err != nil {
		return nil, err
	}
	out := &belfryv1.ReserveResponse{Jobs: wire.Granted(p.jobs)}
	if len(p.jobs) == 0 {
		out.Witnesses = p.witnesses
	}
	return out, nil
}

// reserve returns the poll that a request asks for, after its end.
func (s *Service) reserve(ctx context.Context, req *belfryv1.ReserveRequest) (*poll, error) {
	c := s.rules.Request(ctx, tokens.Consume)
	p := &poll{
		service:   s,
		queues:    c.Queues("queues", req.GetQueues()),
		jobsMax:   c.Count("maxJobs", req.GetMaxJobs(), 1, uint32(s.rules.Limits.BatchJobsMax)),
		ttr:       c.TTR("ttr", req.GetTtr()),
		requestID: c.RequestID(req.GetRequestId()),
		client:    auth.ClientOf(ctx),
	}
	wait, _ := c.Span("wait", req.GetWait(), 0, s.rules.Limits.WaitMax)
	if c.Err != nil {
		return nil, c.Err
	}
	if s.drain.HasStarted() {
		return nil, fault.New(belfryv1.Reason_REASON_SHUTTING_DOWN)
	}
	if err := p.run(ctx, withinDeadline(ctx, wait)); err != nil {
		return nil, err
	}
	if ctx.Err() != nil && p.requestID == "" {
		// The caller has gone. With a request id, a repeat may still collect the jobs.
		s.releaseAll(ctx, wire.Refs(p.jobs))
		return nil, fault.Of(ctx.Err())
	}
	return p, nil
}

// A poll answers before its caller's deadline. The time that it leaves for the answer is the time
// until the deadline divided by answerTimeDivisor, within these bounds.
const (
	answerTimeDivisor = 10
	answerTimeMin     = 5 * time.Millisecond
	answerTimeMax     = 250 * time.Millisecond
)

// withinDeadline shortens a wait so that the answer, even an empty one, is there before the
// caller's deadline.
func withinDeadline(ctx context.Context, wait time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return wait
	}
	left := time.Until(deadline)
	return max(0, min(wait, left-min(max(left/answerTimeDivisor, answerTimeMin), answerTimeMax)))
}

// poll is one attempt to reserve jobs of several queues. One goroutine uses it. When the server
// drains, it stops waiting and collects the reservations that are in flight.
type poll struct {
	service   *Service
	queues    []string
	jobsMax   uint32
	ttr       time.Duration
	requestID string
	// client is who asks for the jobs.
	client string
	// waits is set for a poll that waits. A quota does not end such a poll: a namespace without
	// quota now may have some later.
	waits bool
	// stop is closed when the server drains or a queue changes. The jobs may be in other shards
	// then.
	stop <-chan struct{}
	// newer is closed when a repeat of this poll arrives. The poll stops waiting then. It is nil if
	// there cannot be a repeat.
	newer <-chan struct{}

	// afterAnswer, if it is not nil, runs after the answer. The next attempt starts once it has
	// returned.
	afterAnswer func()

	jobs      []wire.Grant
	witnesses []*belfryv1.Witness
}

// step is one Reserve of one shard. key distinguishes the steps of a poll in request ids. It
// depends on the queues only, so that a repeated poll makes the same steps.
type step struct {
	shard  uint32
	queues []string
	key    string
}

// attemptWaitMin is how long a poll waits at least for an earlier attempt to end, even a poll that
// does not wait for jobs.
const attemptWaitMin = 2 * inFlightWaitMax

// run fills p.jobs. One shard needs one call: the machine itself tries the queues in order and
// remembers the grants of a request. Several shards are asked in the order of the queues without
// waiting; if none has a job, the poll waits for all of them together. Before that, a repeat waits
// for the end of the earlier attempts, and gets the jobs that they were granted.
//
// If the number of partitions of a queue changes while a poll waits, or this node learns of a
// change, the poll goes on waiting in the current shards. A poll that has waited ends empty, not
// with an error, if its namespaces have used up their quotas.
func (p *poll) run(ctx context.Context, wait time.Duration) error {
	p.waits = wait > 0
	if err := p.runStrict(ctx, wait); err != nil && (!p.waits || !outOfQuota(err)) {
		return err
	}
	return nil
}

// runStrict is run, but fails if a namespace has used up its quota.
func (p *poll) runStrict(ctx context.Context, wait time.Duration) error {
	until := time.Now().Add(wait)
	for left := wait; ; left = time.Until(until) {
		p.stop = p.service.nextInterrupt()
		steps := p.steps()
		if len(steps) > 1 {
			return p.runAll(ctx, steps, left)
		}
		if err := p.reserveStep(ctx, steps[0], left); err != nil || len(p.jobs) > 0 || !p.shouldRetry(ctx, until) {
			return err
		}
	}
}

// runAll is runStrict for several shards.
func (p *poll) runAll(ctx context.Context, steps []step, wait time.Duration) error {
	until := time.Now().Add(wait)
	if p.requestID != "" {
		newer, end, err := p.beginAttempt(ctx, withinDeadline(ctx, max(wait, attemptWaitMin)))
		if err != nil {
			return err
		}
		defer func() { p.service.polls.finish(p.afterAnswer, end) }()
		p.newer = newer
		if err := p.recall(ctx, steps); err != nil || len(p.jobs) > 0 {
			return err
		}
	}
	for {
		if err := p.try(ctx, steps, time.Until(until)); err != nil || len(p.jobs) > 0 || !p.shouldRetry(ctx, until) {
			return err
		}
		p.stop = p.service.nextInterrupt()
		steps = p.steps()
	}
}

// shouldRetry reports whether a poll that found nothing looks again because queues have changed.
func (p *poll) shouldRetry(ctx context.Context, until time.Time) bool {
	select {
	case <-p.stop:
	default:
		return false
	}
	select {
	case <-p.newer:
		return false
	default:
		return ctx.Err() == nil && !p.service.drain.HasStarted() && time.Until(until) > 0
	}
}

// beginAttempt waits until this attempt may run, at the leader of the first shard concerned. All
// attempts at the request meet there, through whichever nodes they come.
func (p *poll) beginAttempt(ctx context.Context, wait time.Duration) (newer <-chan struct{}, end func(), err error) {
	shard := p.service.router.Shard(p.queues[0], 0)
	if newer, end, err = p.service.router.Node.LockRequest(ctx, shard, p.name(), wait); err != nil {
		return nil, nil, p.service.router.FaultAt(shard, err)
	}
	return newer, end, nil
}

// try asks the shards that have jobs one after the other, and waits for all of them if none grants
// a job. A shard that cannot serve for now is skipped: the poll fails only if all shards are like
// that, or if it found nothing. A shard in which a namespace has used up its quota counts as empty.
// A poll that does not wait fails for the quota if all shards refuse for it.
func (p *poll) try(ctx context.Context, steps []step, wait time.Duration) error {
	began := time.Now()
	var failed, full error
	failures, fulls := 0, 0
	for _, st := range p.offered(ctx, steps, wait) {
		err := p.reserveStep(ctx, st, 0)
		switch {
		case len(p.jobs) > 0 || err != nil && !passes(err):
			return err
		case err != nil && outOfQuota(err):
			full = err
			fulls++
		case err != nil:
			failed = worseError(failed, err)
			failures++
		}
	}
	if wait -= time.Since(began); failures == len(steps) || wait <= 0 {
		if failed == nil && fulls == len(steps) {
			failed = full
		}
		return failed
	}
	return p.park(ctx, p.parkSteps(), wait)
}

// outOfQuota reports whether an error says that a namespace has as many jobs in flight as its quota
// allows.
func outOfQuota(err error) bool { return fault.Of(err).Reason == belfryv1.Reason_REASON_QUOTA }

// offered returns the steps that would be granted a job, in their order. All shards are asked at
// once: one after the other they would take so long that a job which becomes due meanwhile is late.
// Shards that do not answer come last if the poll does not wait or has no other shards; else the
// poll waits there as well.
func (p *poll) offered(ctx context.Context, steps []step, wait time.Duration) []step {
	type offer struct {
		some bool
		err  error
	}
	offers := make([]offer, len(steps))
	var group sync.WaitGroup
	for i, st := range steps {
		group.Go(func() { offers[i].some, offers[i].err = p.service.router.Node.Offers(ctx, st.shard, st.queues) })
	}
	group.Wait()
	var some, silent []step
	for i, st := range steps {
		switch {
		case offers[i].err != nil:
			silent = append(silent, st)
		case offers[i].some:
			some = append(some, st)
		}
	}
	if wait > 0 && len(silent) < len(steps) {
		return some
	}
	return append(some, silent...)
}

// passes reports whether an error says that a shard did nothing, and that it may do it later.
func passes(err error) bool {
	f := fault.Of(err)
	return f.Outcome() == belfryv1.Outcome_OUTCOME_NOT_APPLIED && f.RetryAfter > 0
}

// steps returns the Reserves of the first round, in the order of the queues. The partitions of one
// queue rotate. Neighbouring queues of one shard share a step.
func (p *poll) steps() []step {
	var steps []step
	for i, queue := range p.queues {
		shards := p.service.router.Shards(queue)
		if len(shards) == 1 && len(steps) > 0 && steps[len(steps)-1].shard == shards[0] && p.single(steps[len(steps)-1]) {
			last := &steps[len(steps)-1]
			last.queues = append(last.queues, queue)
			continue
		}
		first := 0
		if len(shards) > 1 {
			first = p.service.pollRotation.nextIndex(queue, len(shards))
		}
		for k := range shards {
			shard := shards[(first+k)%len(shards)]
			steps = append(steps, step{
				shard: shard, queues: []string{queue}, key: "#" + strconv.Itoa(i) + "." + strconv.Itoa(int(shard)),
			})
		}
	}
	if len(steps) == 1 {
		steps[0].key = ""
	}
	return steps
}

// single reports whether the queues of a step have one partition each. Only such queues may be
// together in a step.
func (p *poll) single(st step) bool { return p.service.router.Partitions(st.queues[0]) == 1 }

// parkSteps returns the Reserves of the second round: one for each shard concerned, with all its
// queues in order.
func (p *poll) parkSteps() []step {
	var steps []step
	for _, queue := range p.queues {
		for _, shard := range p.service.router.Shards(queue) {
			i := slices.IndexFunc(steps, func(st step) bool { return st.shard == shard })
			if i < 0 {
				steps, i = append(steps, step{shard: shard, key: "#w." + strconv.Itoa(int(shard))}), len(steps)
			}
			steps[i].queues = append(steps[i].queues, queue)
		}
	}
	return steps
}

// request returns the machine's request for a step.
func (p *poll) request(st step) *fsm.Request {
	req := &fsm.Request{Client: p.client, Commands: []fsm.Command{&fsm.Reserve{
		Queues: st.queues, Max: p.jobsMax, TTR: p.ttr, Bytes: uint64(p.service.rules.Limits.ReserveBytesMax),
	}}}
	if p.requestID != "" {
		req.Caller, req.ID = fsm.NamespaceOf(p.queues[0]), p.requestID+st.key
	}
	return req
}

// reserveStep makes one step and collects what it granted.
func (p *poll) reserveStep(ctx context.Context, st step, wait time.Duration) error {
	until := node.Wait{For: wait}
	if wait > 0 {
		until.Stop = p.stop
	}
	reply, err := p.service.router.Node.Reserve(ctx, st.shard, p.request(st), until)
	if err != nil {
		return p.service.router.FaultAt(st.shard, err)
	}
	return p.collect(st.shard, reply)
}

// recall collects the grants of an earlier attempt that still hold, from all shards. They are too
// many if that attempt ended before it released the excess. Nothing is released if a shard
// remembers another poll under the request id. A shard that cannot serve for now is skipped: most
// polls are no repeats, and must not fail for it.
func (p *poll) recall(ctx context.Context, steps []step) error {
	all := slices.Concat(steps, p.parkSteps())
	type recalled struct {
		reading fsm.Reading
		witness node.Witness
		err     error
	}
	answers := make([]recalled, len(all))
	var group sync.WaitGroup
	for i, st := range all {
		group.Go(func() {
			a := &answers[i]
			a.reading, a.witness, a.err = p.service.router.Node.Query(ctx, st.shard, codec.RecallOf(p.request(st)))
		})
	}
	group.Wait()
	for i, st := range all {
		a := &answers[i]
		if a.err != nil && passes(a.err) {
			continue
		}
		if a.err != nil {
			return p.service.router.FaultAt(st.shard, a.err)
		}
		if len(a.reading.Jobs) == 0 && a.reading.Code == fsm.OK {
			continue
		}
		remembered := node.Reply{
			Witness: a.witness, Results: []fsm.Result{{Code: a.reading.Code, Replayed: true}}, Jobs: a.reading.Jobs,
		}
		if err := p.collect(st.shard, remembered); err != nil {
			return err
		}
	}
	p.giveBack(ctx)
	return nil
}

// collect adds the jobs that a step returned. A grant that no longer holds is not among them: its
// token would be stale.
func (p *poll) collect(shard uint32, reply node.Reply) error {
	w := wire.Witness(reply.Witness)
	if w != nil {
		p.witnesses = append(p.witnesses, w)
	}
	if len(reply.Results) != 1 {
		return nil
	}
	result := &reply.Results[0]
	if result.Code != fsm.OK {
		return fault.OfResult(shard, result)
	}
	p.jobs = slices.Grow(p.jobs, len(reply.Jobs))
	for i := range reply.Jobs {
		p.jobs = append(p.jobs, wire.Grant{Job: &reply.Jobs[i], Witness: w})
	}
	return nil
}

// giveBack releases the jobs beyond the number that was asked for. If that fails their leases
// lapse, as after a crash at this moment.
func (p *poll) giveBack(ctx context.Context) {
	if len(p.jobs) <= int(p.jobsMax) {
		return
	}
	p.service.releaseAll(ctx, wire.Refs(p.jobs[p.jobsMax:]))
	p.jobs = p.jobs[:p.jobsMax]
}

// releaseWait bounds the time in which jobs without a consumer are released.
const releaseWait = 5 * time.Second

// ReleaseUnsent releases jobs of an answer that did not reach its caller, even if ctx has ended. If
// that fails, their leases lapse.
func (s *Service) ReleaseUnsent(ctx context.Context, jobs []*belfryv1.Job) {
	s.releaseAll(ctx, wire.JobRefs(jobs))
}

// releaseAll releases jobs, even if ctx has ended.
func (s *Service) releaseAll(ctx context.Context, refs []fsm.Ref) {
	if len(refs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
	defer cancel()
	commands := make([]shardcall.Command, len(refs))
	for i, ref := range refs {
		commands[i] = shardcall.Command{
			Shard: s.router.Shard(ref.Queue, ref.Partition), Position: i, Command: &fsm.Release{Ref: ref},
		}
	}
	s.router.ProposeRouted(ctx, "", commands, shardcall.ByNamespace, make([]shardcall.Answer, len(refs)))
}
