package queue

import (
	"context"
	"slices"
	"strconv"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// Put implements belfryv1connect.QueueServiceHandler.
func (s *Service) Put(ctx context.Context, req *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
	c := s.rules.Request(ctx, tokens.Put)
	put := &fsm.Put{}
	c.Put(req, put)
	requestID := c.RequestID(req.GetRequestId())
	if c.Err != nil {
		return nil, c.Err
	}
	b := &putBatch{queue: req.GetQueue(), puts: []*fsm.Put{put}, answers: make([]shardcall.Answer, 1)}
	s.putAll(ctx, requestID, b)
	if b.answers[0].Fault != nil {
		return nil, b.answers[0].Fault
	}
	return wirePut(put, &b.answers[0]), nil
}

// PutBatch implements belfryv1connect.QueueServiceHandler.
func (s *Service) PutBatch(ctx context.Context,
	req *belfryv1.PutBatchRequest) (*belfryv1.PutBatchResponse, error) {
	c := s.rules.Request(ctx, tokens.Put)
	requestID := c.RequestID(req.GetRequestId())
	c.Entries("jobs", len(req.GetJobs()), s.rules.Limits.BatchJobsMax)
	if c.Err != nil {
		return nil, c.Err
	}
	b := &putBatch{answers: make([]shardcall.Answer, len(req.GetJobs())), puts: make([]*fsm.Put, len(req.GetJobs()))}
	sum := 0
	for i, job := range req.GetJobs() {
		put := &fsm.Put{}
		b.name(job.GetQueue())
		size, f := c.Entry(job, put)
		if sum += size; sum > s.rules.Limits.BatchBytesMax {
			return nil, fault.TooLarge("jobs", sum, s.rules.Limits.BatchBytesMax)
		}
		if b.answers[i].Fault = f; f == nil {
			b.puts[i] = put
		}
	}
	s.auditEntries(ctx, belfryv1connect.QueueServicePutBatchProcedure, c.Permissions.Refusals())
	s.putAll(ctx, requestID, b)
	out := &belfryv1.PutBatchResponse{Results: make([]*belfryv1.PutBatchResult, len(b.puts))}
	for i := range b.answers {
		if out.Results[i] = (&belfryv1.PutBatchResult{}); b.answers[i].Fault != nil {
			out.Results[i].Result = &belfryv1.PutBatchResult_Error{Error: b.answers[i].Fault.Entry()}
		} else {
			out.Results[i].Result = &belfryv1.PutBatchResult_Put{Put: wirePut(b.puts[i], &b.answers[i])}
		}
	}
	return out, nil
}

// wirePut converts the answer to a put.
func wirePut(put *fsm.Put, a *shardcall.Answer) *belfryv1.PutResponse {
	out := &belfryv1.PutResponse{
		Id: put.ID, DueAt: wire.CeilTime(a.Result.Due), Created: a.Result.Created, State: wire.State(a.Result.State),
		Witness: a.Witness(), Replaced: a.Result.Replaced, Version: wire.PutVersion(a.Result),
	}
	if out.Id == "" {
		out.Id = fsm.FormatID(a.Result.Partition, a.Result.Serial)
	}
	return out
}

// putAll routes and proposes puts. An entry that is nil has its fault already. Puts that were
// routed by a wrong number of partitions are routed again, see reroutePuts.
func (s *Service) putAll(ctx context.Context, requestID string, b *putBatch) {
	b.commands = slices.Grow(b.commands, len(b.puts))
	known := map[string]route{}
	for i, put := range b.puts {
		if put == nil {
			continue
		}
		if n := len(b.commands); n > 0 && samePartition(b.commands[n-1].Command, put) {
			// The hash of the queue's name is most of the work for a small job in a large batch.
			put.Partitions = 1
			b.commands = append(b.commands, shardcall.Command{Shard: b.commands[n-1].Shard, Position: i, Command: put})
			continue
		}
		to := s.routeOf(put.Queue, known)
		if to.deleting {
			b.answers[i].Fault = shardcall.BeingDeleted(put.Queue)
			continue
		}
		b.commands = append(b.commands, s.routePut(put, requestID, i, to))
	}
	s.router.ProposeRouted(ctx, requestID, b.commands, b.split(), b.answers)
	for round := 0; round < reroutesMax && s.reroutePuts(ctx, requestID, b); round++ {
	}
	if requestID == "" { // else a repeat must find the answer in the shard that gave it
		s.offerOtherPartitions(ctx, b)
	}
	s.nameConflicts(ctx, b)
}

// reroutesMax is how often puts are routed again: once if this node did not know the partitions of
// a queue, and once more if a shard did not know them yet after that.
const reroutesMax = 2

// reroutePuts routes puts once more and reports whether there were any. It does so for puts that
// this node routed by a wrong number of partitions: the shard knows another number, or remembers an
// attempt with another number. For that reason a shard refuses all puts into a queue or none, and
// it does not remember the refused ones. So they keep the id of the call, which a repeat of the
// call will use. While this node cannot learn the number, the outcome of the call is unknown: an
// earlier attempt may have been applied under the right number.
func (s *Service) reroutePuts(ctx context.Context, requestID string, b *putBatch) bool {
	if !slices.ContainsFunc(b.commands, func(c shardcall.Command) bool { return maybeMisrouted(&b.answers[c.Position]) }) {
		return false
	}
	if err := s.router.Refresh(ctx); err != nil {
		b.markUnknown()
		return false
	}
	repaired := map[string]bool{}
	for _, c := range b.commands {
		if put, ok := c.Command.(*fsm.Put); ok && queueChanged(&b.answers[c.Position]) {
			if _, tried := repaired[put.Queue]; !tried {
				repaired[put.Queue] = s.reconcileForPut(ctx, put)
			}
		}
	}
	var again []shardcall.Command
	known := map[string]route{}
	for _, c := range b.commands {
		put, ok := c.Command.(*fsm.Put)
		a := &b.answers[c.Position]
		if !ok || !maybeMisrouted(a) {
			continue
		}
		switch to := s.routeOf(put.Queue, known); {
		case to.deleting:
			*a = shardcall.Answer{Fault: shardcall.BeingDeleted(put.Queue)}
		case repaired[put.Queue] || put.Partitions != to.partitions:
			again = append(again, s.routePut(put, requestID, c.Position, to))
		}
	}
	s.router.ProposeRouted(ctx, requestID, again, b.split(), b.answers)
	return len(again) > 0
}

// offeredPartitionsMax bounds the partitions that are tried for a put that may go to any partition.
const offeredPartitionsMax = 8

// offerOtherPartitions proposes puts that may go to any partition to the next partitions. It does
// so while the partitions tried before are full, or accept no more puts for the moment.
func (s *Service) offerOtherPartitions(ctx context.Context, b *putBatch) {
	commands := b.commands
	for offered := uint32(1); offered < offeredPartitionsMax; offered++ {
		var again []shardcall.Command
		for _, c := range commands {
			put, ok := c.Command.(*fsm.Put)
			if !ok || put.ID != "" || put.Key != "" || offered >= put.Partitions || !partitionLimited(&b.answers[c.Position]) {
				continue
			}
			put.Partition = (put.Partition + 1) % put.Partitions
			again = append(again, shardcall.Command{
				Shard: s.router.Shard(put.Queue, put.Partition), Position: c.Position, Command: put,
			})
		}
		if len(again) == 0 {
			return
		}
		s.router.ProposeRouted(ctx, "", again, b.split(), b.answers)
		commands = again
	}
}

// partitionLimited reports whether a put was refused by a limit of its queue, which is divided
// among the partitions; only the machine refuses for that. A refusal for the quota of the namespace
// comes from the node, and does not count: the node has already waited for quota from other shards.
// Each further partition would wait as long, ask for quota too, and refuse as well.
func partitionLimited(a *shardcall.Answer) bool {
	return a.Fault != nil && a.Result != nil &&
		(a.Fault.Reason == belfryv1.Reason_REASON_QUEUE_FULL || a.Fault.Reason == belfryv1.Reason_REASON_RATE_LIMITED)
}

// maybeMisrouted reports whether a put may have been routed by a wrong number of partitions. If the
// shard remembers an attempt at the call that was routed otherwise, that attempt has other content.
func maybeMisrouted(a *shardcall.Answer) bool { return queueChanged(a) || requestIDReused(a) }

// requestIDReused reports whether a put was refused because the shard remembers other content under
// the id of the call.
func requestIDReused(a *shardcall.Answer) bool {
	return a.Result != nil && a.Result.Code == fsm.Invalid
}

// markUnknown gives UNKNOWN_OUTCOME to the puts whose content differs from what the shard
// remembers: an earlier attempt may have applied them.
func (b *putBatch) markUnknown() {
	for i := range b.answers {
		if a := &b.answers[i]; requestIDReused(a) {
			shard := a.Fault.Shard
			a.Fault = fault.New(belfryv1.Reason_REASON_UNKNOWN_OUTCOME)
			a.Fault.Shard = shard
		}
	}
}

// queueChanged reports whether a put was refused because the queue has another number of
// partitions.
func queueChanged(a *shardcall.Answer) bool {
	return a.Fault != nil && a.Fault.Reason == belfryv1.Reason_REASON_QUEUE_CHANGED
}

// samePartition reports whether a put goes where the one before it went: to the only partition of
// the same queue.
func samePartition(before fsm.Command, put *fsm.Put) bool {
	last, ok := before.(*fsm.Put)
	return ok && last.Queue == put.Queue && last.Partitions == 1
}

// route is what this node knows of a queue for puts.
type route struct {
	partitions uint32
	deleting   bool
}

// routeOf returns the route of a queue. known holds the routes of the same round: all puts into a
// queue use one route, even if the catalog changes meanwhile. So a repeat of the call finds them as
// one request.
func (s *Service) routeOf(queue string, known map[string]route) route {
	to, ok := known[queue]
	if !ok {
		config, recorded := s.router.Catalog.Queue(queue)
		to = route{partitions: max(1, config.Partitions), deleting: recorded && config.Deleting()}
		known[queue] = to
	}
	return to
}

// routePut chooses the partition of a put. All jobs of a key are in one partition, so that the key's
// limits are exact. A put with neither key nor id may go to any partition, but a repeat with the same
// request id must reach the same shard, through whichever node.
func (s *Service) routePut(put *fsm.Put, requestID string, position int, to route) shardcall.Command {
	switch put.Partitions = to.partitions; {
	case put.Partitions == 1:
		put.Partition = 0
	case put.Key != "":
		put.Partition = node.PartitionOf(put.Key, int(put.Partitions))
	case put.ID != "":
		put.Partition = node.PartitionOf(put.ID, int(put.Partitions))
	case requestID != "":
		put.Partition = node.PartitionOf(requestID+"/"+strconv.Itoa(position), int(put.Partitions))
	default:
		put.Partition = s.localPartition(put.Queue, put.Partitions)
	}
	return shardcall.Command{Shard: s.router.Shard(put.Queue, put.Partition), Position: position, Command: put}
}

// localPartitionTries is how many partitions at most are checked for one whose shard this node
// serves.
const localPartitionTries = 16

// localPartition returns the next partition, in rotation, of those that this node serves itself. It
// is for a put that may go to any partition: such a put need not be forwarded. If the node seems to
// serve none, all partitions rotate.
func (s *Service) localPartition(queue string, partitions uint32) uint32 {
	n := s.putRotation.Add(1)
	var room [localPartitionTries]uint32
	local := room[:0]
	// localPartitionTries puts in a row check the same partitions, so that each local one gets as many
	// of them.
	for i := range min(partitions, localPartitionTries) {
		if p := (n - n%localPartitionTries + i) % partitions; s.router.Node.Serves(s.router.Shard(queue, p)) {
			local = append(local, p)
		}
	}
	if len(local) == 0 {
		return n % partitions
	}
	return local[n%uint32(len(local))] //nolint:gosec // a few
}

// reconcileForPut updates the shards of a queue from its record after one of them refused a put,
// because the shard and the sender of the put knew the queue differently. The catalog has been
// refreshed by then. reconcileForPut reports whether the put may be routed again.
func (s *Service) reconcileForPut(ctx context.Context, put *fsm.Put) bool {
	config, ok := s.router.Catalog.Queue(put.Queue)
	switch {
	case !ok:
		return put.Partitions != 1 // it was routed by a record that is gone
	case put.Partitions != config.Partitions && !config.Deleting():
		return true // it was routed by an older record
	case config.Deleting():
		return false
	}
	_, pending, err := s.router.Configure(ctx, put.Queue)
	return err == nil && len(pending) == 0
}
