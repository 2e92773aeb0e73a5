package rpc

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Reserve implements QueueService.
func (s *queueService) Reserve(ctx context.Context, req *belfryv1.ReserveRequest) (*belfryv1.ReserveResponse, error) {
	p, err := s.reserve(ctx, req)
	if err != nil {
		return nil, err
	}
	out := &belfryv1.ReserveResponse{Jobs: wireLeased(p.jobs)}
	if len(p.jobs) == 0 {
		out.Witnesses = p.witnesses
	}
	return out, nil
}

// reserve returns the poll that a request asks for, after its end.
func (s *queueService) reserve(ctx context.Context, req *belfryv1.ReserveRequest) (*poll, error) {
	c := s.checker(ctx, tokens.Consume)
	p := &poll{
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
	if err := p.run(ctx, withinDeadline(ctx, wait)); err != nil {
		return nil, err
	}
	if ctx.Err() != nil && p.requestID == "" {
		// Nobody will get the answer. With a request id somebody may come back for it.
		s.releaseAll(ctx, refsOf(p.jobs))
		return nil, faultOfError(ctx.Err())
	}
	return p, nil
}

// A poll answers before its caller's deadline. The time that it leaves for the answer is the time until
// the deadline divided by answerTimeDivisor, within these bounds.
const (
	answerTimeDivisor = 10
	answerTimeMin     = 5 * time.Millisecond
	answerTimeMax     = 250 * time.Millisecond
)

// withinDeadline shortens a wait so that the answer, even an empty one, is there before the caller's deadline.
func withinDeadline(ctx context.Context, wait time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return wait
	}
	left := time.Until(deadline)
	return max(0, min(wait, left-min(max(left/answerTimeDivisor, answerTimeMin), answerTimeMax)))
}

// poll is one attempt to get jobs of several queues. It is used by one goroutine. When the server drains it waits no more, and
// takes what is under way.
type poll struct {
	service   *queueService
	queues    []string
	jobsMax   uint32
	ttr       time.Duration
	requestID string
	// waits is set for a poll that waits: what a namespace may not have now it may have later, so that a quota does not end it.
	waits bool
	// stop is closed when the server drains or queues were altered: then what is waited for may be elsewhere.
	stop <-chan struct{}
	// newer is closed when a repeat of this poll has come: then it waits no more. nil if there cannot be any.
	newer <-chan struct{}

	// rest, if it is not nil, is to be done after the answer and before a repeat has its turn.
	rest func()

	jobs      []leased
	witnesses []*belfryv1.Witness
}

// leased is a job that was granted, with the witness of its grant.
type leased struct {
	*fsm.Job
	witness *belfryv1.Witness
}

// wireLeased converts jobs that were granted.
func wireLeased(jobs []leased) []*belfryv1.Job {
	var tokens leaseWriter
	slots, out := make([]jobSlot, len(jobs)), make([]*belfryv1.Job, len(jobs))
	for i, job := range jobs {
		out[i] = slots[i].fill(job.Job)
		out[i].Lease, out[i].Witness = tokens.format(refOf(job.Job)), job.witness
	}
	return out
}

// refsOf names the reservations of jobs that were granted.
func refsOf(jobs []leased) []fsm.Ref {
	refs := make([]fsm.Ref, len(jobs))
	for i, job := range jobs {
		refs[i] = refOf(job.Job)
	}
	return refs
}

// refsIn is refsOf for jobs on the wire.
func refsIn(jobs []*belfryv1.Job) []fsm.Ref {
	refs := make([]fsm.Ref, 0, len(jobs))
	for _, job := range jobs {
		if ref, err := parseLease(job.GetLease()); err == nil {
			refs = append(refs, ref)
		}
	}
	return refs
}

// step is one Reserve of one shard. key tells the steps of a poll apart in request ids; it depends on the queues only,
// so that a repeated poll makes the same steps.
type step struct {
	shard  uint32
	queues []string
	key    string
}

// turnTimeMin is how long also a poll that does not wait itself waits for an earlier attempt at it to end.
const turnTimeMin = 2 * crossingTimeMax

// run fills p.jobs. One shard needs one call, since the machine itself tries the queues in order and remembers the
// grants of a request. Several shards are asked in the order of the queues without waiting; if none has a job, all are
// waited for together. Before that, a repeat waits for the end of the attempts before it, and collects what they were granted.
//
// A poll that waits while the number of partitions of one of its queues changes, or this node hears of it, goes on waiting in the shards of now. One that
// found its namespaces to have all that their quotas allow, and has waited, ends as one that found nothing.
func (p *poll) run(ctx context.Context, wait time.Duration) error {
	p.waits = wait > 0
	if err := p.seek(ctx, wait); err != nil && (!p.waits || !outOfQuota(err)) {
		return err
	}
	return nil
}

// seek is run without regard to quotas.
func (p *poll) seek(ctx context.Context, wait time.Duration) error {
	until := time.Now().Add(wait)
	for left := wait; ; left = time.Until(until) {
		p.stop = p.service.stops.next(p.service)
		steps := p.steps()
		if len(steps) > 1 {
			return p.runAll(ctx, steps, left)
		}
		if err := p.once(ctx, steps[0], left); err != nil || len(p.jobs) > 0 || !p.goesOn(ctx, until) {
			return err
		}
	}
}

// runAll is run for several shards.
func (p *poll) runAll(ctx context.Context, steps []step, wait time.Duration) error {
	until := time.Now().Add(wait)
	if p.requestID != "" {
		newer, end, err := p.begin(ctx, withinDeadline(ctx, max(wait, turnTimeMin)))
		if err != nil {
			return err
		}
		defer func() { p.service.polls.finish(p.rest, end) }()
		p.newer = newer
		if err := p.recall(ctx, steps); err != nil || len(p.jobs) > 0 {
			return err
		}
	}
	for {
		if err := p.try(ctx, steps, time.Until(until)); err != nil || len(p.jobs) > 0 || !p.goesOn(ctx, until) {
			return err
		}
		p.stop = p.service.stops.next(p.service)
		steps = p.steps()
	}
}

// goesOn reports whether a poll that found nothing is to look again because it was stopped by an alteration of queues.
func (p *poll) goesOn(ctx context.Context, until time.Time) bool {
	select {
	case <-p.stop:
	default:
		return false
	}
	select {
	case <-p.newer:
		return false
	default:
		return ctx.Err() == nil && !p.service.drain.isBegun() && time.Until(until) > 0
	}
}

// begin takes the turn of this attempt at its request, at the leader of the first shard concerned: there all attempts meet, through whichever nodes they
// come.
func (p *poll) begin(ctx context.Context, patience time.Duration) (newer <-chan struct{}, end func(), err error) {
	n, ok := p.service.node.(Arbiter)
	if !ok {
		return p.service.polls.begin(ctx, p.name(), patience)
	}
	shard := p.service.shard(p.queues[0], 0)
	if newer, end, err = n.Attempt(ctx, shard, p.name(), patience); err != nil {
		return nil, nil, p.service.faultAt(shard, err)
	}
	return newer, end, nil
}

// try asks the shards that offer something in turn, and waits for all of them if none has a job. One that answers nobody for now is passed over: the
// poll fails only if all are such, or if nothing was found. One in which a namespace has all that its quota allows is passed over as if it had nothing; a poll
// that does not wait is told of it if all are such.
func (p *poll) try(ctx context.Context, steps []step, wait time.Duration) error {
	began := time.Now()
	var failed, full error
	failures, fulls := 0, 0
	for _, st := range p.offered(ctx, steps, wait) {
		err := p.once(ctx, st, 0)
		switch {
		case len(p.jobs) > 0 || err != nil && !passes(err):
			return err
		case err != nil && outOfQuota(err):
			full = err
			fulls++
		case err != nil:
			failed = graver(failed, err)
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

// outOfQuota reports whether an error says that a namespace has all the jobs in flight that it may have.
func outOfQuota(err error) bool { return faultOfError(err).Reason == belfryv1.Reason_REASON_QUOTA }

// offered returns the steps that would find something, in their order. All shards are asked at once: one after the other they would take so long
// that a job which becomes due meanwhile is late. Shards that do not answer are asked again when all others were, by a poll that does not wait or has no
// others; else it waits there as well.
func (p *poll) offered(ctx context.Context, steps []step, wait time.Duration) []step {
	node, ok := p.service.node.(Offering)
	if !ok {
		return steps
	}
	type offer struct {
		some bool
		err  error
	}
	offers := make([]offer, len(steps))
	var group sync.WaitGroup
	for i, st := range steps {
		group.Go(func() { offers[i].some, offers[i].err = node.Offers(ctx, st.shard, st.queues) })
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
	f := faultOfError(err)
	return f.Outcome() == belfryv1.Outcome_OUTCOME_NOT_APPLIED && f.RetryAfter > 0
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
			first = p.service.rotation.nextIndex(queue, len(shards))
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

// single reports whether the queues of a step have one partition each. Only such queues may be
// together in a step.
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
	until := node.Wait{For: wait}
	if wait > 0 {
		until.Stop = p.stop
	}
	reply, err := p.service.node.Reserve(ctx, st.shard, p.request(st), until)
	if err != nil {
		return p.service.faultAt(st.shard, err)
	}
	return p.collect(st.shard, reply)
}

// recall collects the grants of an earlier run of this poll that are still held, from all shards. They are too many if that
// run ended before it had given the rest back. Nothing is given back if a shard remembers another poll under the request id.
// A shard that answers nobody for now is passed over: most polls are no repeats, and must not fail for it.
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
			a.reading, a.witness, a.err = p.service.node.Query(ctx, st.shard, fsm.RecallOf(p.request(st)))
		})
	}
	group.Wait()
	for i, st := range all {
		a := &answers[i]
		if a.err != nil && passes(a.err) {
			continue
		}
		if a.err != nil {
			return p.service.faultAt(st.shard, a.err)
		}
		if len(a.reading.Jobs) == 0 && a.reading.Code == fsm.OK {
			continue
		}
		remembered := node.Reply{Witness: a.witness, Results: []fsm.Result{{Code: a.reading.Code, Replayed: true}}, Jobs: a.reading.Jobs}
		if err := p.collect(st.shard, remembered); err != nil {
			return err
		}
	}
	p.giveBack(ctx)
	return nil
}

// collect adds the jobs that a step was answered. A grant that is not held any more is not among them: its token would be stale.
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
	p.jobs = slices.Grow(p.jobs, len(reply.Jobs))
	for i := range reply.Jobs {
		p.jobs = append(p.jobs, leased{&reply.Jobs[i], w})
	}
	return nil
}

// refOf names the reservation that a job was handed out under.
func refOf(job *fsm.Job) fsm.Ref {
	return fsm.Ref{Queue: job.Queue, Partition: job.Partition, Serial: job.Serial, Fence: job.Fence}
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
	p.service.releaseAll(ctx, refsOf(p.jobs[p.jobsMax:]))
	p.jobs = p.jobs[:p.jobsMax]
}

// releaseWait bounds how long jobs that nobody will work on are tried to be given back.
const releaseWait = 5 * time.Second

// releaseAll gives jobs back, also if ctx has ended: then most of all.
func (s *queueService) releaseAll(ctx context.Context, refs []fsm.Ref) {
	if len(refs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
	defer cancel()
	commands := make([]routedCommand, len(refs))
	for i, ref := range refs {
		commands[i] = routedCommand{shard: s.shard(ref.Queue, ref.Partition), position: i, command: &fsm.Release{Ref: ref}}
	}
	s.proposeRouted(ctx, "", commands, noSplit, make([]answer, len(refs)))
}
