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
	"github.com/belfrydb/belfry/rpc/auth"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/drain"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// queueService answers belfry.v1.QueueService. Every method checks its request in full before anything is proposed.
type queueService struct {
	router
	limits check.Limits
	now    func() time.Time
	drain  *drain.Signal
	// polls are the polls over several shards that have a request id.
	polls      attempts
	interrupts pollInterrupts
	// putRotation spreads puts without id over the partitions of a queue. rotation says which
	// partition a poll asks first.
	putRotation atomic.Uint32
	rotation    partitionRotation
	fastPath    fastPath
	authorizer  *auth.Authorizer
	// partsAtOnce is how many parts of one call are proposed at a time; 0 means 1.
	partsAtOnce int
}

// checker returns a checker for one request that does an action to the queues that it names.
func (s *queueService) checker(ctx context.Context, action tokens.Action) *check.Request {
	allowed, f := s.authorizer.Permissions(ctx, action)
	return &check.Request{Limits: &s.limits, Now: s.now(), Permissions: allowed, Err: f}
}

// auditEntries logs a line in the audit log if some entries of a call were refused. Each entry of
// such a call has its own answer.
func (s *queueService) auditEntries(ctx context.Context, procedure string, refused auth.RefusedEntries) {
	if refused.Count > 0 {
		s.authorizer.Failures.AuditEntries(ctx, procedure, refused)
	}
}

// answer is the result of one command, with the witness of the request that carried it.
type answer struct {
	// result is nil if the command has none, because it was not proposed or the request failed; it is not changed.
	result *fsm.Result
	// request is the witness of the request that the command was part of; nil if nothing was
	// logged. entry is the index of the command in that request.
	request *node.Witness
	entry   uint32
	// fault is set if the command was not carried out.
	fault *fault.Error
}

// witness returns the witness of the command, nil if nothing was logged.
func (a *answer) witness() *belfryv1.Witness {
	if a.request == nil {
		return nil
	}
	w := *a.request
	w.Entry += a.entry
	return wire.Witness(w)
}

// anyFault reports whether a command was not carried out.
func anyFault(answers []answer) bool {
	return slices.ContainsFunc(answers, func(a answer) bool { return a.fault != nil })
}

// propose proposes one command.
func (s *queueService) propose(ctx context.Context, shard uint32, requestID string, command fsm.Command) answer {
	return s.proposeAll(ctx, shard, requestID, []fsm.Command{command})[0]
}

// proposeAll proposes commands that share a request id as one request. It returns an answer for
// each command.
func (s *queueService) proposeAll(ctx context.Context, shard uint32, requestID string, commands []fsm.Command) []answer {
	part, answers := make([]routedCommand, len(commands)), make([]answer, len(commands))
	for i, c := range commands {
		part[i] = routedCommand{shard: shard, position: i, command: c}
	}
	s.proposeToShard(ctx, requestID, part, answers)
	return answers
}

// routedCommand is a command with the shard it goes to and the position of its answer in the batch.
type routedCommand struct {
	shard    uint32
	position int
	command  fsm.Command
}

// partsAtOnce bounds the parts of one call that are proposed at a time. A batch may have as many
// parts as jobs: one for each queue.
const partsAtOnce = 64

// proposeRouted proposes the parts of a batch concurrently and stores the answers at their
// positions. Most batches have one part, which needs no other goroutine.
func (s *queueService) proposeRouted(ctx context.Context, requestID string, commands []routedCommand, by split, answers []answer) {
	parts := splitBatch(commands, by)
	if len(parts) == 0 {
		return
	}
	var group sync.WaitGroup
	var next atomic.Int64
	others := min(len(parts), max(1, s.partsAtOnce)) - 1
	broken := make(chan any, others) // a panic is the call's, wherever it is
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(parts)); i = next.Add(1) - 1 {
			s.proposeToShard(ctx, by.requestID(requestID, parts[i]), parts[i], answers)
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

// split says which commands of one shard are different parts of a batch, and different requests. It
// depends on nothing but the call. A part never has commands of two namespaces, since request ids
// belong to a namespace.
type split int

const (
	byNamespace split = iota
	byQueue
)

// keyOf returns a string for a command. Commands with different strings are different parts.
func (s split) keyOf(c fsm.Command) string {
	if s == byQueue {
		return fsm.QueueOf(c)
	}
	return fsm.NamespaceOf(fsm.QueueOf(c))
}

// RequestID returns the request id of a part. A shard accepts an id for one request of a namespace
// only, so each part has an id of its own. The id depends on nothing else in the call: a repeat must
// find the earlier answer, although other parts may be refused or routed elsewhere by then.
func (s split) requestID(ofCall string, part []routedCommand) string {
	if ofCall == "" || s == byNamespace {
		return ofCall
	}
	return ofCall + "#/queue/" + fsm.QueueOf(part[0].command)
}

// proposeToShard proposes the commands of one part as one request and stores the answers at their
// positions.
func (s *queueService) proposeToShard(ctx context.Context, requestID string, part []routedCommand, answers []answer) {
	shard, commands := part[0].shard, make([]fsm.Command, len(part))
	for i := range part {
		commands[i] = part[i].command
	}
	req := &fsm.Request{ID: requestID, Commands: commands}
	if requestID != "" {
		req.Caller = fsm.NamespaceOf(fsm.QueueOf(commands[0]))
	}
	reply, err := s.node.Do(ctx, shard, req)
	if err != nil {
		for i := range part {
			answers[part[i].position] = answer{fault: s.faultAt(shard, err)}
		}
		return
	}
	var witness *node.Witness
	if reply.Witness != (node.Witness{}) {
		witness = &reply.Witness
	}
	for i := range part {
		a := &answers[part[i].position]
		*a = answer{result: &reply.Results[i], request: witness, entry: uint32(i)} //nolint:gosec // the commands of a request
		if a.result.Code != fsm.OK {
			a.fault = fault.OfResult(shard, a.result)
			a.fault.Witness = a.witness()
		}
	}
}

// partKey identifies a part of a batch.
type partKey struct {
	shard uint32
	split string
}

// partOf returns the key of the part that a command belongs to.
func (s split) partOf(c routedCommand) partKey { return partKey{c.shard, s.keyOf(c.command)} }

// splitBatch groups commands by their parts and keeps their order within each part. A shard refuses
// a request as a whole. So puts into a queue that may not be created, or whose namespace has used
// up its quota, must not fail the other puts.
func splitBatch(commands []routedCommand, by split) [][]routedCommand {
	if len(commands) == 0 {
		return nil
	}
	first := by.partOf(commands[0])
	if !slices.ContainsFunc(commands, func(c routedCommand) bool { return by.partOf(c) != first }) {
		return [][]routedCommand{commands}
	}
	var parts [][]routedCommand
	at := map[partKey]int{}
	for _, c := range commands {
		of := by.partOf(c)
		i, ok := at[of]
		if !ok {
			i = len(parts)
			at[of], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], c)
	}
	return parts
}

// Ack implements QueueService.
func (s *queueService) Ack(ctx context.Context, req *belfryv1.AckRequest) (*belfryv1.AckResponse, error) {
	a, err := s.act(ctx, func(c *check.Request) (fsm.Ref, fsm.Command, string) {
		ref := c.Lease("lease", req.GetLease())
		return ref, &fsm.Ack{Ref: ref}, req.GetRequestId()
	})
	if err != nil {
		return nil, err
	}
	return &belfryv1.AckResponse{Witness: a.witness()}, nil
}

// act checks and proposes a command on a lease.
func (s *queueService) act(ctx context.Context, build func(*check.Request) (fsm.Ref, fsm.Command, string)) (answer, error) {
	c := s.checker(ctx, tokens.Consume)
	ref, command, requestID := build(c)
	c.RequestID(requestID)
	if c.Err != nil {
		return answer{}, c.Err
	}
	a := s.propose(ctx, s.shard(ref.Queue, ref.Partition), requestID, command)
	if a.fault != nil {
		return answer{}, a.fault
	}
	return a, nil
}

// AckBatch implements QueueService.
func (s *queueService) AckBatch(ctx context.Context, req *belfryv1.AckBatchRequest) (*belfryv1.AckBatchResponse, error) {
	c := s.checker(ctx, tokens.Consume)
	requestID := c.RequestID(req.GetRequestId())
	c.Entries("leases", len(req.GetLeases()), s.limits.BatchJobsMax)
	if c.Err != nil {
		return nil, c.Err
	}
	b := &ackBatch{}
	for _, token := range req.GetLeases() {
		b.add(c, []byte(token))
	}
	s.auditEntries(ctx, belfryv1connect.QueueServiceAckBatchProcedure, c.Permissions.Refusals())
	s.ackAll(ctx, requestID, b)
	out := &belfryv1.AckBatchResponse{Results: make([]*belfryv1.AckBatchResult, len(b.answers))}
	for i := range b.answers {
		a := &b.answers[i]
		if out.Results[i] = (&belfryv1.AckBatchResult{}); a.fault != nil {
			out.Results[i].Result = &belfryv1.AckBatchResult_Error{Error: a.fault.Entry()}
		} else {
			out.Results[i].Result = &belfryv1.AckBatchResult_Ack{Ack: &belfryv1.AckResponse{Witness: a.witness()}}
		}
	}
	return out, nil
}

// Nack implements QueueService.
func (s *queueService) Nack(ctx context.Context, req *belfryv1.NackRequest) (*belfryv1.NackResponse, error) {
	a, err := s.act(ctx, func(c *check.Request) (fsm.Ref, fsm.Command, string) {
		nack := c.Nack(req)
		return nack.Ref, nack, req.GetRequestId()
	})
	if err != nil {
		return nil, err
	}
	return wireNack(&a), nil
}

// wireNack converts the answer to a nack.
func wireNack(a *answer) *belfryv1.NackResponse {
	out := &belfryv1.NackResponse{State: wire.State(a.result.State), Witness: a.witness()}
	if a.result.State == fsm.Delayed || a.result.State == fsm.Ready {
		out.DueAt = wire.CeilTime(a.result.Due)
	}
	return out
}

// Release implements QueueService.
func (s *queueService) Release(ctx context.Context, req *belfryv1.ReleaseRequest) (*belfryv1.ReleaseResponse, error) {
	a, err := s.act(ctx, func(c *check.Request) (fsm.Ref, fsm.Command, string) {
		release := c.Release(req)
		return release.Ref, release, req.GetRequestId()
	})
	if err != nil {
		return nil, err
	}
	return wireRelease(&a), nil
}

// wireRelease converts the answer to a release.
func wireRelease(a *answer) *belfryv1.ReleaseResponse {
	out := &belfryv1.ReleaseResponse{State: wire.State(a.result.State), Witness: a.witness()}
	if a.result.State == fsm.Delayed || a.result.State == fsm.Ready {
		out.DueAt = wire.CeilTime(a.result.Due)
	}
	return out
}

// Extend implements QueueService.
func (s *queueService) Extend(ctx context.Context, req *belfryv1.ExtendRequest) (*belfryv1.ExtendResponse, error) {
	a, err := s.act(ctx, func(c *check.Request) (fsm.Ref, fsm.Command, string) {
		extend := c.Extend(req)
		return extend.Ref, extend, req.GetRequestId()
	})
	if err != nil {
		return nil, err
	}
	return wireExtend(&a), nil
}

// wireExtend converts the answer to an extend.
func wireExtend(a *answer) *belfryv1.ExtendResponse {
	return &belfryv1.ExtendResponse{LeaseUntil: wire.FloorTime(a.result.Until), Witness: a.witness()}
}
