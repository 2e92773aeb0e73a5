package rpc

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// queueService answers belfry.v1.QueueService. Every method checks its request in full before anything is proposed.
type queueService struct {
	router
	limits Limits
	now    func() time.Time
	drain  *drain
	// polls are the polls over several shards that have a request id.
	polls attempts
	stops stops
	// openings is held for reading while a record is brought to its shards, and for writing while the catalog deletes one, so
	// that no partition is opened after it was emptied.
	openings sync.RWMutex
	// turn spreads puts without id over the partitions of a queue; turns says which partition a poll asks first.
	turn  atomic.Uint32
	turns turns
	quick quick
	guard *guard
	// partsAtOnce is how many requests one call has under way at a time, 0 for 1.
	partsAtOnce int
}

// checker returns a checker for one request, which is to do an action to the queues that it names.
func (s *queueService) checker(ctx context.Context, action tokens.Action) *checker {
	granted, f := s.guard.grant(ctx, action)
	return &checker{limits: &s.limits, now: s.now(), grant: granted, err: f}
}

// auditEntries leaves a line in the audit if the caller may not do some of what a call asked for, of which each part is answered by itself.
func (s *queueService) auditEntries(ctx context.Context, procedure string, refused refusedEntries) {
	if refused.count > 0 {
		s.guard.seen.entries(ctx, procedure, refused)
	}
}

// answer is the result of one command, with the place where it was given.
type answer struct {
	// result is nil if the command has none, because it was not proposed or the request failed; it is not changed.
	result *fsm.Result
	// request is the witness of the request that the command was part of, nil if nothing was logged; entry is the command's place after it.
	request *node.Witness
	entry   uint32
	// fault is set if the command was not carried out.
	fault *Fault
}

// witness returns the witness of the command, nil if nothing was logged.
func (a *answer) witness() *belfryv1.Witness {
	if a.request == nil {
		return nil
	}
	w := *a.request
	w.Entry += a.entry
	return wireWitness(w)
}

// anyFault reports whether a command was not carried out.
func anyFault(answers []answer) bool {
	return slices.ContainsFunc(answers, func(a answer) bool { return a.fault != nil })
}

// do proposes one command.
func (s *queueService) do(ctx context.Context, shard uint32, requestID string, command fsm.Command) answer {
	return s.doAll(ctx, shard, requestID, []fsm.Command{command})[0]
}

// doAll proposes commands that share a request id as one request and returns an answer for each.
func (s *queueService) doAll(ctx context.Context, shard uint32, requestID string, commands []fsm.Command) []answer {
	share, answers := make([]placed, len(commands)), make([]answer, len(commands))
	for i, c := range commands {
		share[i] = placed{shard: shard, position: i, command: c}
	}
	s.doShare(ctx, requestID, share, answers)
	return answers
}

// placed is a command with the shard it goes to and the place of its answer.
type placed struct {
	shard    uint32
	position int
	command  fsm.Command
}

// partsAtOnce bounds the requests that one call has under way. A batch may have as many as jobs, one for each queue.
const partsAtOnce = 64

// doPlaced proposes commands shard by shard, side by side, and stores the answers at their positions. Those of a shard for which apart gives different names are
// different requests. One request, which is the rule, needs no other goroutine.
func (s *queueService) doPlaced(ctx context.Context, requestID string, commands []placed, apart parting, answers []answer) {
	shares := splitByShard(commands, apart)
	if len(shares) == 0 {
		return
	}
	var group sync.WaitGroup
	var next atomic.Int64
	others := min(len(shares), max(1, s.partsAtOnce)) - 1
	broken := make(chan any, others) // a panic is the call's, wherever it is
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(shares)); i = next.Add(1) - 1 {
			s.doShare(ctx, apart.requestID(requestID, shares[i]), shares[i], answers)
		}
	}
	for range others {
		group.Go(func() {
			defer func() { broken <- recover() }()
			work()
		})
	}
	work()
	group.Wait()
	for range others {
		if p := <-broken; p != nil {
			panic(p)
		}
	}
}

// parting names commands: those of a shard with different names are different requests. Which parting a call has depends on nothing but the call.
type parting func(fsm.Command) string

// together keeps nothing apart.
func together(fsm.Command) string { return "" }

// byNamespace names the namespace of a put, "" if it has none.
func byNamespace(c fsm.Command) string {
	if put, ok := c.(*fsm.Put); ok {
		return fsm.NamespaceOf(put.Queue)
	}
	return ""
}

// byQueue names the queue of a put, with a prefix, so that it equals no namespace; "" for what is no put.
func byQueue(c fsm.Command) string {
	if put, ok := c.(*fsm.Put); ok {
		return "queue/" + put.Queue
	}
	return ""
}

// requestID returns the request id of a share: a shard takes an id for one request only, so what is kept apart has ids of its own. Whatever else
// is in the call does not change it: a repeat, of which other parts are refused or go elsewhere, must find what was done.
func (apart parting) requestID(ofCall string, share []placed) string {
	part := apart(share[0].command)
	if ofCall == "" || part == "" {
		return ofCall
	}
	return ofCall + "#/" + part
}

// doShare proposes the commands of one shard as one request and stores the answers at their positions.
func (s *queueService) doShare(ctx context.Context, requestID string, share []placed, answers []answer) {
	shard, commands := share[0].shard, make([]fsm.Command, len(share))
	for i := range share {
		commands[i] = share[i].command
	}
	reply, err := s.node.Do(ctx, shard, &fsm.Request{ID: requestID, Commands: commands})
	if err != nil {
		for i := range share {
			answers[share[i].position] = answer{fault: s.faultAt(shard, err)}
		}
		return
	}
	var witness *node.Witness
	if reply.Witness != (node.Witness{}) {
		witness = &reply.Witness
	}
	for i := range share {
		a := &answers[share[i].position]
		*a = answer{result: &reply.Results[i], request: witness, entry: uint32(i)} //nolint:gosec // the commands of a request
		if a.result.Code != fsm.OK {
			a.fault = faultOfResult(shard, a.result)
			a.fault.Witness = a.witness()
		}
	}
}

// partKey tells a share of a call from its others.
type partKey struct {
	shard uint32
	apart string
}

// of returns the part of a call that a command belongs to.
func (apart parting) of(c placed) partKey { return partKey{c.shard, apart(c.command)} }

// splitByShard groups commands by their parts, and keeps their order within one. A shard refuses a request as a whole: the puts into a queue that may not be
// made, or whose namespace has used up its quota, must not take others with them.
func splitByShard(commands []placed, apart parting) [][]placed {
	if len(commands) == 0 {
		return nil
	}
	first := apart.of(commands[0])
	if !slices.ContainsFunc(commands, func(c placed) bool { return apart.of(c) != first }) {
		return [][]placed{commands}
	}
	var shares [][]placed
	at := map[partKey]int{}
	for _, c := range commands {
		of := apart.of(c)
		i, ok := at[of]
		if !ok {
			i = len(shares)
			at[of], shares = i, append(shares, nil)
		}
		shares[i] = append(shares[i], c)
	}
	return shares
}

// Ack implements QueueService.
func (s *queueService) Ack(ctx context.Context, req *belfryv1.AckRequest) (*belfryv1.AckResponse, error) {
	a, err := s.act(ctx, func(c *checker) (fsm.Ref, fsm.Command, string) {
		ref := c.lease("lease", req.GetLease())
		return ref, &fsm.Ack{Ref: ref}, req.GetRequestId()
	})
	if err != nil {
		return nil, err
	}
	return &belfryv1.AckResponse{Witness: a.witness()}, nil
}

// act checks and proposes a command on a lease.
func (s *queueService) act(ctx context.Context, build func(*checker) (fsm.Ref, fsm.Command, string)) (answer, error) {
	c := s.checker(ctx, tokens.Consume)
	ref, command, requestID := build(c)
	c.requestID(requestID)
	if c.err != nil {
		return answer{}, c.err
	}
	a := s.do(ctx, s.shard(ref.Queue, ref.Partition), requestID, command)
	if a.fault != nil {
		return answer{}, a.fault
	}
	return a, nil
}

// AckBatch implements QueueService.
func (s *queueService) AckBatch(ctx context.Context, req *belfryv1.AckBatchRequest) (*belfryv1.AckBatchResponse, error) {
	c := s.checker(ctx, tokens.Consume)
	requestID := c.requestID(req.GetRequestId())
	c.entries("leases", len(req.GetLeases()), s.limits.BatchJobsMax)
	if c.err != nil {
		return nil, c.err
	}
	b := &ackBatch{}
	for _, token := range req.GetLeases() {
		b.add(c, []byte(token))
	}
	s.auditEntries(ctx, belfryv1connect.QueueServiceAckBatchProcedure, c.grant.refusals())
	s.ackAll(ctx, requestID, b)
	out := &belfryv1.AckBatchResponse{Results: make([]*belfryv1.AckBatchResult, len(b.answers))}
	for i := range b.answers {
		a := &b.answers[i]
		if out.Results[i] = (&belfryv1.AckBatchResult{}); a.fault != nil {
			out.Results[i].Result = &belfryv1.AckBatchResult_Error{Error: a.fault.entry()}
		} else {
			out.Results[i].Result = &belfryv1.AckBatchResult_Ack{Ack: &belfryv1.AckResponse{Witness: a.witness()}}
		}
	}
	return out, nil
}

// Nack implements QueueService.
func (s *queueService) Nack(ctx context.Context, req *belfryv1.NackRequest) (*belfryv1.NackResponse, error) {
	a, err := s.act(ctx, func(c *checker) (fsm.Ref, fsm.Command, string) {
		nack := c.nack(req)
		return nack.Ref, nack, req.GetRequestId()
	})
	if err != nil {
		return nil, err
	}
	return wireNack(&a), nil
}

// nack converts a nack.
func (c *checker) nack(req *belfryv1.NackRequest) *fsm.Nack {
	nack := &fsm.Nack{Ref: c.lease("lease", req.GetLease()), Error: cut(req.GetError(), c.limits.ErrorBytesMax), Dead: req.GetDead()}
	nack.Delay, nack.DelayGiven = c.delay("delay", req.GetDelay())
	nack.Delay = ceilMillis(nack.Delay)
	if nack.Dead && nack.DelayGiven {
		c.fail(invalid("delay", "a job that is to be dead has no delay"))
	}
	return nack
}

// wireNack converts the answer to a nack.
func wireNack(a *answer) *belfryv1.NackResponse {
	out := &belfryv1.NackResponse{State: wireState(a.result.State), Witness: a.witness()}
	if a.result.State == fsm.Delayed || a.result.State == fsm.Ready {
		out.DueAt = ceilTime(a.result.Due)
	}
	return out
}

// Release implements QueueService.
func (s *queueService) Release(ctx context.Context, req *belfryv1.ReleaseRequest) (*belfryv1.ReleaseResponse, error) {
	a, err := s.act(ctx, func(c *checker) (fsm.Ref, fsm.Command, string) {
		release := c.release(req)
		return release.Ref, release, req.GetRequestId()
	})
	if err != nil {
		return nil, err
	}
	return wireRelease(&a), nil
}

// release converts a release.
func (c *checker) release(req *belfryv1.ReleaseRequest) *fsm.Release {
	release := &fsm.Release{Ref: c.lease("lease", req.GetLease())}
	delay, _ := c.delay("delay", req.GetDelay())
	release.Delay = ceilMillis(delay)
	return release
}

// wireRelease converts the answer to a release.
func wireRelease(a *answer) *belfryv1.ReleaseResponse {
	out := &belfryv1.ReleaseResponse{State: wireState(a.result.State), Witness: a.witness()}
	if a.result.State == fsm.Delayed || a.result.State == fsm.Ready {
		out.DueAt = ceilTime(a.result.Due)
	}
	return out
}

// Extend implements QueueService.
func (s *queueService) Extend(ctx context.Context, req *belfryv1.ExtendRequest) (*belfryv1.ExtendResponse, error) {
	a, err := s.act(ctx, func(c *checker) (fsm.Ref, fsm.Command, string) {
		extend := c.extend(req)
		return extend.Ref, extend, req.GetRequestId()
	})
	if err != nil {
		return nil, err
	}
	return wireExtend(&a), nil
}

// extend converts an extend.
func (c *checker) extend(req *belfryv1.ExtendRequest) *fsm.Extend {
	return &fsm.Extend{Ref: c.lease("lease", req.GetLease()), TTR: c.ttr("ttr", req.GetTtr())}
}

// wireExtend converts the answer to an extend.
func wireExtend(a *answer) *belfryv1.ExtendResponse {
	return &belfryv1.ExtendResponse{LeaseUntil: floorTime(a.result.Until), Witness: a.witness()}
}
