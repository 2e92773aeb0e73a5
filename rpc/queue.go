package rpc

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// queueService answers belfry.v1.QueueService. Every method checks its request in full before anything is proposed.
type queueService struct {
	router
	limits Limits
	now    func() time.Time
	drain  *drain
	meters *meters
	// openings is held for reading while a record is brought to its shards, and for writing while the catalog deletes one, so
	// that no partition is opened after it was emptied.
	openings sync.RWMutex
	// turn spreads puts without id over the partitions of a queue, and polls over which partition is asked first.
	turn atomic.Uint32
}

// checker returns a checker for one request.
func (s *queueService) checker() *checker { return &checker{limits: &s.limits, now: s.now()} }

// answer is the result of one command, with the place where it was given.
type answer struct {
	result  fsm.Result
	witness *belfryv1.Witness
	// fault is set if the command was not carried out.
	fault *Fault
}

// do proposes one command.
func (s *queueService) do(ctx context.Context, shard uint32, requestID string, command fsm.Command) answer {
	return s.doAll(ctx, shard, requestID, []fsm.Command{command})[0]
}

// doAll proposes commands that share a request id as one request and returns an answer for each.
func (s *queueService) doAll(ctx context.Context, shard uint32, requestID string, commands []fsm.Command) []answer {
	answers := make([]answer, len(commands))
	reply, err := s.node.Do(ctx, shard, &fsm.Request{ID: requestID, Commands: commands})
	witnesses := wireWitnesses(reply.Witness, len(commands))
	for i := range answers {
		if err != nil {
			answers[i].fault = faultOfShard(shard, err)
			continue
		}
		answers[i].result = reply.Results[i]
		answers[i].witness = witnesses[i]
		if reply.Results[i].Code != fsm.OK {
			answers[i].fault = faultOfResult(shard, &reply.Results[i])
			answers[i].fault.Witness = witnesses[i]
		}
	}
	return answers
}

// placed is a command with the shard it goes to and the place of its answer.
type placed struct {
	shard    uint32
	position int
	command  fsm.Command
}

// doPlaced proposes commands shard by shard, side by side, and stores the answers at their positions. One shard, which is
// the rule, needs no other goroutine.
func (s *queueService) doPlaced(ctx context.Context, requestID string, commands []placed, answers []answer) {
	shares := splitByShard(commands)
	if len(shares) == 0 {
		return
	}
	var group sync.WaitGroup
	for _, share := range shares[1:] {
		group.Go(func() { s.doShare(ctx, requestID, share, answers) })
	}
	s.doShare(ctx, requestID, shares[0], answers)
	group.Wait()
}

// doShare proposes the commands of one shard.
func (s *queueService) doShare(ctx context.Context, requestID string, share []placed, answers []answer) {
	list := make([]fsm.Command, len(share))
	for i, c := range share {
		list[i] = c.command
	}
	for i, a := range s.doAll(ctx, share[0].shard, requestID, list) {
		answers[share[i].position] = a
	}
}

// splitByShard groups commands by shard and keeps their order within one.
func splitByShard(commands []placed) [][]placed {
	if len(commands) == 0 {
		return nil
	}
	elsewhere := func(c placed) bool { return c.shard != commands[0].shard }
	if !slices.ContainsFunc(commands, elsewhere) {
		return [][]placed{commands}
	}
	var shares [][]placed
	at := map[uint32]int{}
	for _, c := range commands {
		i, ok := at[c.shard]
		if !ok {
			i = len(shares)
			at[c.shard], shares = i, append(shares, nil)
		}
		shares[i] = append(shares[i], c)
	}
	return shares
}

// Put implements QueueService.
func (s *queueService) Put(ctx context.Context, req *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
	c := s.checker()
	put, _ := c.put(req)
	requestID := c.requestID(req.GetRequestId())
	if c.err != nil {
		return nil, c.err
	}
	answers := make([]answer, 1)
	s.putAll(ctx, requestID, []*fsm.Put{put}, answers)
	if answers[0].fault != nil {
		return nil, answers[0].fault
	}
	out := &belfryv1.PutResponse{}
	fillPut(out, put, &answers[0])
	return out, nil
}

// PutBatch implements QueueService.
func (s *queueService) PutBatch(ctx context.Context, req *belfryv1.PutBatchRequest) (*belfryv1.PutBatchResponse, error) {
	c := s.checker()
	requestID := c.requestID(req.GetRequestId())
	c.entries("jobs", len(req.GetJobs()), s.limits.BatchJobsMax)
	if c.err != nil {
		return nil, c.err
	}
	puts := make([]*fsm.Put, len(req.GetJobs()))
	answers := make([]answer, len(puts))
	sum := 0
	for i, job := range req.GetJobs() {
		entry := checker{limits: c.limits, now: c.now}
		put, size := entry.put(job)
		if job.GetRequestId() != "" {
			entry.fail(invalid("requestId", "in a batch only the batch itself has a requestId"))
		}
		if sum += size; sum > s.limits.BatchBytesMax {
			return nil, tooLarge("jobs", sum, s.limits.BatchBytesMax)
		}
		if puts[i] = put; entry.err != nil {
			puts[i], answers[i].fault = nil, entry.err
		}
	}
	s.putAll(ctx, requestID, puts, answers)
	// Each kind of message is made for all entries at once: one by one they are most of the garbage of a batch.
	entries := make([]struct {
		result   belfryv1.PutBatchResult
		put      belfryv1.PutBatchResult_Put
		response belfryv1.PutResponse
	}, len(puts))
	out := &belfryv1.PutBatchResponse{Results: make([]*belfryv1.PutBatchResult, len(puts))}
	for i := range answers {
		e := &entries[i]
		if f := answers[i].fault; f != nil {
			e.result.Result = &belfryv1.PutBatchResult_Error{Error: f.entry()}
		} else {
			fillPut(&e.response, puts[i], &answers[i])
			e.put.Put = &e.response
			e.result.Result = &e.put
		}
		out.Results[i] = &e.result
	}
	return out, nil
}

// putAll routes and proposes puts; the entries that are nil have their fault already. Puts that were refused because the
// queue has another number of partitions are routed once more: nothing was applied.
func (s *queueService) putAll(ctx context.Context, requestID string, puts []*fsm.Put, answers []answer) {
	commands := make([]placed, 0, len(puts))
	for i, put := range puts {
		if put == nil {
			continue
		}
		if n := len(commands); n > 0 && sameHome(commands[n-1].command, put) {
			// The hash of the queue's name is most of the work for a small job in a large batch.
			put.Partitions = 1
			commands = append(commands, placed{shard: commands[n-1].shard, position: i, command: put})
			continue
		}
		if s.deleting(put.Queue) {
			answers[i].fault = beingDeleted(put.Queue)
			continue
		}
		commands = append(commands, s.place(put, requestID, i))
	}
	s.doPlaced(ctx, requestID, commands, answers)
	s.putAgain(ctx, requestID, commands, answers)
	s.meterPuts(puts, answers)
}

// putAgain routes the puts once more that were refused because the queue has another number of partitions. A shard that
// made a job of some of the call's puts remembers the answer to all of them under the request id, so that the others need
// an id of their own. Elsewhere the whole share goes again under the call's id, which a repeat of the call will use: the
// share was not remembered, and doing the puts again that made nothing changes nothing.
func (s *queueService) putAgain(ctx context.Context, requestID string, commands []placed, answers []answer) {
	made, refused, repaired := map[uint32]bool{}, map[uint32]bool{}, map[string]bool{}
	for _, c := range commands {
		a := &answers[c.position]
		made[c.shard] = made[c.shard] || a.result.Created
		put, ok := c.command.(*fsm.Put)
		if !ok || !changed(a) {
			continue
		}
		if _, tried := repaired[put.Queue]; !tried {
			repaired[put.Queue] = s.repair(ctx, put)
		}
		refused[c.shard] = refused[c.shard] || repaired[put.Queue]
	}
	var whole, rest []placed
	for _, c := range commands {
		put, ok := c.command.(*fsm.Put)
		switch {
		case !ok || !refused[c.shard]:
		case !made[c.shard]:
			whole = append(whole, s.place(put, requestID, c.position))
		case changed(&answers[c.position]):
			rest = append(rest, s.place(put, requestID, c.position))
		}
	}
	s.doPlaced(ctx, requestID, whole, answers)
	if requestID != "" {
		requestID += "~"
	}
	s.doPlaced(ctx, requestID, rest, answers)
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

// meterPuts counts the jobs made, neighbours of one queue together.
func (s *queueService) meterPuts(puts []*fsm.Put, answers []answer) {
	var queue string
	var n uint32
	for i, put := range puts {
		if put == nil || answers[i].fault != nil || !answers[i].result.Created {
			continue
		}
		if put.Queue != queue && n > 0 {
			s.meters.put(queue, n)
			n = 0
		}
		queue, n = put.Queue, n+1
	}
	if n > 0 {
		s.meters.put(queue, n)
	}
}

// place chooses the partition of a put. Without an id any will do, but a repeat with the same request id must come to
// the same shard, through whichever node.
func (s *queueService) place(put *fsm.Put, requestID string, position int) placed {
	put.Partitions = s.partitions(put.Queue)
	switch {
	case put.Partitions == 1:
		put.Partition = 0
	case put.ID != "":
		put.Partition = node.PartitionOf(put.ID, int(put.Partitions))
	case requestID != "":
		put.Partition = node.PartitionOf(requestID+"/"+itoa(position), int(put.Partitions))
	default:
		put.Partition = s.turn.Add(1) % put.Partitions
	}
	return placed{shard: s.shard(put.Queue, put.Partition), position: position, command: put}
}

// fillPut converts the answer to a put.
func fillPut(out *belfryv1.PutResponse, put *fsm.Put, a *answer) {
	out.Id = put.ID
	if out.Id == "" {
		out.Id = fsm.FormatID(a.result.Partition, a.result.Serial)
	}
	out.DueAt, out.Created, out.State, out.Witness = ceilTime(a.result.Due), a.result.Created, wireState(a.result.State), a.witness
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
	return &belfryv1.AckResponse{Witness: a.witness}, nil
}

// act checks and proposes a command on a lease.
func (s *queueService) act(ctx context.Context, build func(*checker) (fsm.Ref, fsm.Command, string)) (answer, error) {
	c := s.checker()
	ref, command, requestID := build(c)
	c.requestID(requestID)
	if c.err != nil {
		return answer{}, c.err
	}
	a := s.do(ctx, s.shard(ref.Queue, ref.Partition), requestID, command)
	if a.fault != nil {
		return answer{}, a.fault
	}
	if command.Kind() == fsm.KindAck {
		s.meters.ack(ref.Queue)
	}
	return a, nil
}

// AckBatch implements QueueService.
func (s *queueService) AckBatch(ctx context.Context, req *belfryv1.AckBatchRequest) (*belfryv1.AckBatchResponse, error) {
	c := s.checker()
	requestID := c.requestID(req.GetRequestId())
	c.entries("leases", len(req.GetLeases()), s.limits.BatchJobsMax)
	if c.err != nil {
		return nil, c.err
	}
	answers := make([]answer, len(req.GetLeases()))
	commands := make([]placed, 0, len(answers))
	for i, token := range req.GetLeases() {
		entry := checker{limits: c.limits, now: c.now}
		ref := entry.lease("lease", token)
		if entry.err != nil {
			answers[i].fault = entry.err
			continue
		}
		commands = append(commands, placed{shard: s.shard(ref.Queue, ref.Partition), position: i, command: &fsm.Ack{Ref: ref}})
	}
	s.doPlaced(ctx, requestID, commands, answers)
	for _, c := range commands {
		if ack, ok := c.command.(*fsm.Ack); ok && answers[c.position].fault == nil {
			s.meters.ack(ack.Queue)
		}
	}
	out := &belfryv1.AckBatchResponse{Results: make([]*belfryv1.AckBatchResult, len(answers))}
	for i := range answers {
		if f := answers[i].fault; f != nil {
			out.Results[i] = &belfryv1.AckBatchResult{Result: &belfryv1.AckBatchResult_Error{Error: f.entry()}}
			continue
		}
		ack := &belfryv1.AckResponse{Witness: answers[i].witness}
		out.Results[i] = &belfryv1.AckBatchResult{Result: &belfryv1.AckBatchResult_Ack{Ack: ack}}
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
	out := &belfryv1.NackResponse{State: wireState(a.result.State), Witness: a.witness}
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
	out := &belfryv1.ReleaseResponse{State: wireState(a.result.State), Witness: a.witness}
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
	return &belfryv1.ExtendResponse{LeaseUntil: floorTime(a.result.Until), Witness: a.witness}
}
