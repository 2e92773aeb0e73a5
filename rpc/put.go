package rpc

import (
	"context"
	"slices"
	"strconv"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// Put implements QueueService.
func (s *queueService) Put(ctx context.Context, req *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
	c := s.checker(ctx, tokens.Put)
	put := &fsm.Put{}
	c.put(req, put)
	requestID := c.requestID(req.GetRequestId())
	if c.err != nil {
		return nil, c.err
	}
	b := &putBatch{queue: req.GetQueue(), puts: []*fsm.Put{put}, answers: make([]answer, 1)}
	s.putAll(ctx, requestID, b)
	if b.answers[0].fault != nil {
		return nil, b.answers[0].fault
	}
	return wirePut(put, &b.answers[0]), nil
}

// PutBatch implements QueueService.
func (s *queueService) PutBatch(ctx context.Context, req *belfryv1.PutBatchRequest) (*belfryv1.PutBatchResponse, error) {
	c := s.checker(ctx, tokens.Put)
	requestID := c.requestID(req.GetRequestId())
	c.entries("jobs", len(req.GetJobs()), s.limits.BatchJobsMax)
	if c.err != nil {
		return nil, c.err
	}
	b := &putBatch{answers: make([]answer, len(req.GetJobs())), puts: make([]*fsm.Put, len(req.GetJobs()))}
	sum := 0
	for i, job := range req.GetJobs() {
		put := &fsm.Put{}
		b.name(job.GetQueue())
		size, f := c.entry(job, put)
		if sum += size; sum > s.limits.BatchBytesMax {
			return nil, tooLarge("jobs", sum, s.limits.BatchBytesMax)
		}
		if b.answers[i].fault = f; f == nil {
			b.puts[i] = put
		}
	}
	s.auditEntries(ctx, belfryv1connect.QueueServicePutBatchProcedure, c.grant.refusals())
	s.putAll(ctx, requestID, b)
	out := &belfryv1.PutBatchResponse{Results: make([]*belfryv1.PutBatchResult, len(b.puts))}
	for i := range b.answers {
		if out.Results[i] = (&belfryv1.PutBatchResult{}); b.answers[i].fault != nil {
			out.Results[i].Result = &belfryv1.PutBatchResult_Error{Error: b.answers[i].fault.entry()}
		} else {
			out.Results[i].Result = &belfryv1.PutBatchResult_Put{Put: wirePut(b.puts[i], &b.answers[i])}
		}
	}
	return out, nil
}

// wirePut converts the answer to a put.
func wirePut(put *fsm.Put, a *answer) *belfryv1.PutResponse {
	out := &belfryv1.PutResponse{
		Id: put.ID, DueAt: ceilTime(a.result.Due), Created: a.result.Created, State: wireState(a.result.State), Witness: a.witness(),
	}
	if out.Id == "" {
		out.Id = fsm.FormatID(a.result.Partition, a.result.Serial)
	}
	return out
}

// putAll routes and proposes puts; the entries that are nil have their fault already. Puts that went where the queue does not have its
// partitions are routed again, see putAgain.
func (s *queueService) putAll(ctx context.Context, requestID string, b *putBatch) {
	b.commands = slices.Grow(b.commands, len(b.puts))
	known := map[string]route{}
	for i, put := range b.puts {
		if put == nil {
			continue
		}
		if n := len(b.commands); n > 0 && sameHome(b.commands[n-1].command, put) {
			// The hash of the queue's name is most of the work for a small job in a large batch.
			put.Partitions = 1
			b.commands = append(b.commands, placed{shard: b.commands[n-1].shard, position: i, command: put})
			continue
		}
		to := s.route(put.Queue, known)
		if to.deleting {
			b.answers[i].fault = beingDeleted(put.Queue)
			continue
		}
		b.commands = append(b.commands, s.place(put, requestID, i, to))
	}
	s.doPlaced(ctx, requestID, b.commands, b.parting(), b.answers)
	for round := 0; round < reroutings && s.putAgain(ctx, requestID, b); round++ {
	}
	if requestID == "" { // else a repeat must find the answer where it was given
		s.putElsewhere(ctx, b)
	}
	s.nameConflicts(ctx, b)
}

// reroutings is how often puts are routed again: where this node did not know a queue's partitions, and where a shard did not know them yet after that.
const reroutings = 2

// putAgain routes the puts once more that this node has routed by another number of partitions than the shard knows, or than the attempt that the shard
// remembers, and reports whether there were any. A shard refuses all puts into a queue or none for that, and remembers none that it refused: they go again under
// the call's id, which a repeat of the call will use. While this node cannot learn the number, what became of an earlier attempt is unknown: it may have been
// carried out by that number.
func (s *queueService) putAgain(ctx context.Context, requestID string, b *putBatch) bool {
	if !slices.ContainsFunc(b.commands, func(c placed) bool { return astray(&b.answers[c.position]) }) {
		return false
	}
	if err := s.refresh(ctx); err != nil {
		b.leaveUnknown()
		return false
	}
	repaired := map[string]bool{}
	for _, c := range b.commands {
		if put, ok := c.command.(*fsm.Put); ok && changed(&b.answers[c.position]) {
			if _, tried := repaired[put.Queue]; !tried {
				repaired[put.Queue] = s.repair(ctx, put)
			}
		}
	}
	var again []placed
	known := map[string]route{}
	for _, c := range b.commands {
		put, ok := c.command.(*fsm.Put)
		a := &b.answers[c.position]
		if !ok || !astray(a) {
			continue
		}
		switch to := s.route(put.Queue, known); {
		case to.deleting:
			*a = answer{fault: beingDeleted(put.Queue)}
		case repaired[put.Queue] || put.Partitions != to.partitions:
			again = append(again, s.place(put, requestID, c.position, to))
		}
	}
	s.doPlaced(ctx, requestID, again, b.parting(), b.answers)
	return len(again) > 0
}

// placesMax bounds the partitions that a put which may go to any is offered to.
const placesMax = 8

// putElsewhere offers puts that may go to any partition to the next ones while those that had them are full or take no more puts for the moment.
func (s *queueService) putElsewhere(ctx context.Context, b *putBatch) {
	commands := b.commands
	for offered := uint32(1); offered < placesMax; offered++ {
		var again []placed
		for _, c := range commands {
			put, ok := c.command.(*fsm.Put)
			if !ok || put.ID != "" || offered >= put.Partitions || !limited(&b.answers[c.position]) {
				continue
			}
			put.Partition = (put.Partition + 1) % put.Partitions
			again = append(again, placed{shard: s.shard(put.Queue, put.Partition), position: c.position, command: put})
		}
		if len(again) == 0 {
			return
		}
		s.doPlaced(ctx, "", again, b.parting(), b.answers)
		commands = again
	}
}

// limited reports whether a put was refused by a limit of its queue, of which each partition has its share; only the machine says that. Refused for the quota
// of its namespace it was by the node, which had it wait for what other shards have to give: to go to those would be a wait, and one more who wants a share,
// in each of them, to hear the same.
func limited(a *answer) bool {
	return a.fault != nil && a.result != nil && (a.fault.Reason == belfryv1.Reason_REASON_QUEUE_FULL || a.fault.Reason == belfryv1.Reason_REASON_RATE_LIMITED)
}

// astray reports whether a put may have been routed by a wrong number of partitions. If the shard remembers an attempt at the call that was routed otherwise,
// that has other content.
func astray(a *answer) bool { return changed(a) || misused(a) }

// misused reports whether a put was refused because the shard remembers other content under the call's id.
func misused(a *answer) bool { return a.result != nil && a.result.Code == fsm.Invalid }

// leaveUnknown has the puts whose content differs from what the shard remembers end as ones of which an earlier attempt may have been carried out.
func (b *putBatch) leaveUnknown() {
	for i := range b.answers {
		if a := &b.answers[i]; misused(a) {
			shard := a.fault.Shard
			a.fault = fault(belfryv1.Reason_REASON_UNKNOWN_OUTCOME)
			a.fault.Shard = shard
		}
	}
}

// changed reports whether a put was refused because the queue has another number of partitions.
func changed(a *answer) bool {
	return a.fault != nil && a.fault.Reason == belfryv1.Reason_REASON_QUEUE_CHANGED
}

// sameHome reports whether a put goes where the one before it went: to the only partition of the same queue.
func sameHome(before fsm.Command, put *fsm.Put) bool {
	last, ok := before.(*fsm.Put)
	return ok && last.Queue == put.Queue && last.Partitions == 1
}

// route is what this node knows of a queue to put into.
type route struct {
	partitions uint32
	deleting   bool
}

// route returns what this node knows of a queue. known has what it knew before in the same round: all puts into a queue go by one route, also
// if the catalog changes meanwhile, so that a repeat of the call finds them as one request.
func (s *queueService) route(queue string, known map[string]route) route {
	to, ok := known[queue]
	if !ok {
		config, recorded := s.catalog.Queue(queue)
		to = route{partitions: max(1, config.Partitions), deleting: recorded && config.deleting()}
		known[queue] = to
	}
	return to
}

// place chooses the partition of a put. Without an id any will do, but a repeat with the same request id must come to
// the same shard, through whichever node.
func (s *queueService) place(put *fsm.Put, requestID string, position int, to route) placed {
	switch put.Partitions = to.partitions; {
	case put.Partitions == 1:
		put.Partition = 0
	case put.ID != "":
		put.Partition = node.PartitionOf(put.ID, int(put.Partitions))
	case requestID != "":
		put.Partition = node.PartitionOf(requestID+"/"+itoa(position), int(put.Partitions))
	default:
		put.Partition = s.nearest(put.Queue, put.Partitions)
	}
	return placed{shard: s.shard(put.Queue, put.Partition), position: position, command: put}
}

// nearestTries is how many partitions at most are looked at for those whose shard this node serves.
const nearestTries = 16

// nearest returns the partition whose turn it is of those that this node serves itself, for a put that may go to any: there it need not be sent on. Where
// the node seems to serve none, all have their turns.
func (s *queueService) nearest(queue string, partitions uint32) uint32 {
	turn := s.turn.Add(1)
	others, ok := s.node.(Reaching)
	if !ok {
		return turn % partitions
	}
	var room [nearestTries]uint32
	near := room[:0]
	// The same partitions are looked at for nearestTries turns, so that those near have as many turns each.
	for i := range min(partitions, nearestTries) {
		if p := (turn - turn%nearestTries + i) % partitions; others.Serves(s.shard(queue, p)) {
			near = append(near, p)
		}
	}
	if len(near) == 0 {
		return turn % partitions
	}
	return near[turn%uint32(len(near))] //nolint:gosec // a few
}

// appendGeneratedID appends what fsm.FormatID returns, without making a string of it.
func appendGeneratedID(dst []byte, partition uint32, serial uint64) []byte {
	dst = strconv.AppendUint(dst, uint64(partition), 10)
	return strconv.AppendUint(append(dst, '-'), serial, 10)
}
