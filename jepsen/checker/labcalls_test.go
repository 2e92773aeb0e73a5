package checker

import (
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The calls that the lab's clients make.

// loggedPut is what the edge makes of a put.
func loggedPut(req *belfryv1.PutRequest) *fsm.Put {
	put := &fsm.Put{Queue: req.GetQueue(), Partitions: 1, ID: req.GetId(), Again: req.GetAgain(), Key: req.GetKey(),
		OnExisting: wire.OnExistingOf(req.GetOnExisting()), MaxWait: req.GetMaxWait().AsDuration(),
		Body: wire.BodyOf(req.GetText(), req.GetData())}
	if req.GetDelay() != nil {
		put.Given, put.Delay = put.Given|fsm.GivenDelay, wire.CeilDelay(req.GetDelay())
	}
	if req.GetDueAt() != nil {
		put.Given, put.DueAt = put.Given|fsm.GivenDueAt, wire.DueOf(req.GetDueAt())
	}
	if req.GetTtr() != nil {
		put.Given, put.TTR = put.Given|fsm.GivenTTR, req.GetTtr().AsDuration()
	}
	if req.Priority != nil {
		put.Given, put.Priority = put.Given|fsm.GivenPriority, int64(req.GetPriority())
	}
	if req.MaxAttempts != nil {
		put.Given, put.MaxAttempts = put.Given|fsm.GivenMaxAttempts, req.GetMaxAttempts()
	}
	for _, d := range req.GetRetryDelays() {
		put.Given, put.RetryDelays = put.Given|fsm.GivenRetryDelays, append(put.RetryDelays, d.AsDuration())
	}
	if req.GetTtl() != nil {
		put.Given, put.TTL = put.Given|fsm.GivenTTL, req.GetTtl().AsDuration()
	}
	for name, value := range req.GetHeaders() {
		put.Headers = append(put.Headers, fsm.Header{Name: name, Value: value})
	}
	slices.SortFunc(put.Headers, func(a, b fsm.Header) int { return strings.Compare(a.Name, b.Name) })
	return put
}

func wirePut(put *fsm.Put, r *fsm.Result, w *belfryv1.Witness) *belfryv1.PutResponse {
	id := put.ID
	if id == "" {
		id = fsm.FormatID(r.Partition, r.Serial)
	}
	version := r.Version
	if r.Created {
		version = max(1, version)
	}
	return &belfryv1.PutResponse{
		Id: id, DueAt: ceiled(r.Due), Created: r.Created, State: wire.StateOf(r.State), Witness: w, Replaced: r.Replaced,
		Version: version,
	}
}

// put sends a put.
func (l *lab) put(req *belfryv1.PutRequest, f fate) *call {
	put := loggedPut(req)
	return l.send(&call{
		shard: l.shardOf(put.Queue), request: &fsm.Request{ID: req.GetRequestId(), Commands: []fsm.Command{put}}, fate: f,
		answer: func(results []fsm.Result, w *belfryv1.Witness) proto.Message { return wirePut(put, &results[0], w) },
	}, req)
}

// at is the witness of a later command of a request.
func at(w *belfryv1.Witness, i int) *belfryv1.Witness {
	c := proto.Clone(w).(*belfryv1.Witness)
	c.Entry += uint32(i)
	return c
}

func entryError(r *fsm.Result, w *belfryv1.Witness) *belfryv1.EntryError {
	return &belfryv1.EntryError{Reason: wire.ReasonOf(r.Code), Outcome: belfryv1.Outcome_OUTCOME_NOT_APPLIED, Witness: w}
}

// putBatch sends a batch of puts to one shard.
func (l *lab) putBatch(req *belfryv1.PutBatchRequest, f fate) *call {
	request := &fsm.Request{ID: req.GetRequestId()}
	for _, job := range req.GetJobs() {
		request.Commands = append(request.Commands, loggedPut(job))
	}
	return l.send(&call{
		shard: l.shardOf(req.GetJobs()[0].GetQueue()), request: request, fate: f,
		answer: func(results []fsm.Result, w *belfryv1.Witness) proto.Message {
			out := &belfryv1.PutBatchResponse{}
			for i := range results {
				one := &belfryv1.PutBatchResult{}
				if results[i].Code == fsm.OK {
					one.Result = &belfryv1.PutBatchResult_Put{Put: wirePut(request.Commands[i].(*fsm.Put), &results[i], at(w, i))}
				} else {
					one.Result = &belfryv1.PutBatchResult_Error{Error: entryError(&results[i], at(w, i))}
				}
				out.Results = append(out.Results, one)
			}
			return out
		},
	}, req)
}

// reserve sends a Reserve; taken gets the jobs.
func (l *lab) reserve(req *belfryv1.ReserveRequest, f fate, taken func(*belfryv1.Job)) *call {
	s := l.shardOf(req.GetQueues()[0])
	return l.send(&call{
		shard: s, fate: f,
		request: &fsm.Request{ID: req.GetRequestId(), Commands: []fsm.Command{&fsm.Reserve{
			Queues: req.GetQueues(), Max: max(1, req.GetMaxJobs()), TTR: req.GetTtr().AsDuration(), Bytes: 4 << 20,
		}}},
		answer: func(results []fsm.Result, w *belfryv1.Witness) proto.Message {
			out := &belfryv1.ReserveResponse{}
			reading := s.machine.Answer(&fsm.HeldQuery{Grants: results[0].Grants}, 0)
			for i := range reading.Jobs {
				j := &reading.Jobs[i]
				job := wireJob(j)
				job.Lease = formatLease(fsm.Ref{Queue: j.Queue, Partition: j.Partition, Serial: j.Serial, Fence: j.Fence})
				job.Witness = w
				out.Jobs = append(out.Jobs, job)
			}
			if len(out.Jobs) == 0 {
				out.Witnesses = []*belfryv1.Witness{w}
			}
			return out
		},
		done: func(resp proto.Message) {
			for _, job := range resp.(*belfryv1.ReserveResponse).GetJobs() {
				if taken != nil {
					taken(job)
				}
			}
		},
	}, req)
}

// onLease sends a command on a lease.
func (l *lab) onLease(token, requestID string, f fate, command fsm.Command, req proto.Message,
	answer func(r *fsm.Result, w *belfryv1.Witness) proto.Message) *call {
	ref, _ := wire.ParseLease(token)
	return l.send(&call{
		shard: l.shardOf(ref.Queue), request: &fsm.Request{ID: requestID, Commands: []fsm.Command{command}}, fate: f,
		answer: func(results []fsm.Result, w *belfryv1.Witness) proto.Message { return answer(&results[0], w) },
	}, req)
}

func (l *lab) ack(req *belfryv1.AckRequest, f fate) *call {
	ref, _ := wire.ParseLease(req.GetLease())
	return l.onLease(req.GetLease(), req.GetRequestId(), f, &fsm.Ack{Ref: ref}, req,
		func(_ *fsm.Result, w *belfryv1.Witness) proto.Message { return &belfryv1.AckResponse{Witness: w} })
}

// ackBatch sends a batch of acks to one shard.
func (l *lab) ackBatch(req *belfryv1.AckBatchRequest, f fate) *call {
	request := &fsm.Request{ID: req.GetRequestId()}
	var shard *labShard
	for _, token := range req.GetLeases() {
		ref, _ := wire.ParseLease(token)
		shard = l.shardOf(ref.Queue)
		request.Commands = append(request.Commands, &fsm.Ack{Ref: ref})
	}
	return l.send(&call{
		shard: shard, request: request, fate: f,
		answer: func(results []fsm.Result, w *belfryv1.Witness) proto.Message {
			out := &belfryv1.AckBatchResponse{}
			for i := range results {
				one := &belfryv1.AckBatchResult{Result: &belfryv1.AckBatchResult_Ack{Ack: &belfryv1.AckResponse{Witness: at(w, i)}}}
				if results[i].Code != fsm.OK {
					one.Result = &belfryv1.AckBatchResult_Error{Error: entryError(&results[i], at(w, i))}
				}
				out.Results = append(out.Results, one)
			}
			return out
		},
	}, req)
}

func dueIfWaiting(r *fsm.Result) fsm.Time {
	if r.State == fsm.Delayed || r.State == fsm.Ready {
		return r.Due
	}
	return 0
}

func (l *lab) nack(req *belfryv1.NackRequest, f fate) *call {
	ref, _ := wire.ParseLease(req.GetLease())
	return l.onLease(req.GetLease(), req.GetRequestId(), f,
		&fsm.Nack{Ref: ref, Delay: wire.CeilDelay(req.GetDelay()), DelayGiven: req.GetDelay() != nil, Error: req.GetError(),
			Dead: req.GetDead()}, req,
		func(r *fsm.Result, w *belfryv1.Witness) proto.Message {
			return &belfryv1.NackResponse{State: wire.StateOf(r.State), DueAt: ceiled(dueIfWaiting(r)), Witness: w}
		})
}

func (l *lab) release(req *belfryv1.ReleaseRequest, f fate) *call {
	ref, _ := wire.ParseLease(req.GetLease())
	return l.onLease(req.GetLease(), req.GetRequestId(), f, &fsm.Release{
		Ref: ref, Delay: wire.CeilDelay(req.GetDelay()),
	}, req,
		func(r *fsm.Result, w *belfryv1.Witness) proto.Message {
			return &belfryv1.ReleaseResponse{State: wire.StateOf(r.State), DueAt: ceiled(dueIfWaiting(r)), Witness: w}
		})
}

func (l *lab) extend(req *belfryv1.ExtendRequest, f fate) *call {
	ref, _ := wire.ParseLease(req.GetLease())
	return l.onLease(req.GetLease(), req.GetRequestId(), f, &fsm.Extend{Ref: ref, TTR: req.GetTtr().AsDuration()}, req,
		func(r *fsm.Result, w *belfryv1.Witness) proto.Message {
			return &belfryv1.ExtendResponse{LeaseUntil: floored(r.Until), Witness: w}
		})
}

// onQueue sends a command that names a queue.
func (l *lab) onQueue(queue, requestID string, f fate, command fsm.Command, req proto.Message,
	answer func(r *fsm.Result, w *belfryv1.Witness) proto.Message) *call {
	return l.send(&call{
		shard: l.shardOf(queue), request: &fsm.Request{ID: requestID, Commands: []fsm.Command{command}}, fate: f,
		answer: func(results []fsm.Result, w *belfryv1.Witness) proto.Message { return answer(&results[0], w) },
	}, req)
}

func (l *lab) cancel(req *belfryv1.CancelRequest, f fate) *call {
	return l.onQueue(req.GetQueue(), req.GetRequestId(),
		f, &fsm.Cancel{Queue: req.GetQueue(), ID: req.GetId(), Force: req.GetForce()}, req,
		func(r *fsm.Result, w *belfryv1.Witness) proto.Message {
			return &belfryv1.CancelResponse{State: wire.StateOf(r.State), Witness: w}
		})
}

func (l *lab) reschedule(queue, id string, delay time.Duration, f fate) *call {
	req := &belfryv1.RescheduleRequest{Queue: queue, Id: id,
		When: &belfryv1.RescheduleRequest_Delay{Delay: durationpb.New(delay)}}
	return l.onQueue(queue, "", f, &fsm.Reschedule{Queue: queue, ID: id, Given: fsm.GivenDelay,
		Delay: wire.CeilDelay(req.GetDelay())}, req,
		func(r *fsm.Result, w *belfryv1.Witness) proto.Message {
			return &belfryv1.RescheduleResponse{State: wire.StateOf(r.State), DueAt: ceiled(r.Due), Witness: w}
		})
}

func (l *lab) redrive(req *belfryv1.RedriveRequest, f fate) *call {
	return l.onQueue(req.GetQueue(), req.GetRequestId(),
		f, &fsm.Redrive{Queue: req.GetQueue(), IDs: req.GetIds(), Max: req.GetMax()}, req,
		func(r *fsm.Result, w *belfryv1.Witness) proto.Message {
			return &belfryv1.RedriveResponse{Moved: uint32(r.Count), Witnesses: []*belfryv1.Witness{w}}
		})
}

func (l *lab) purge(req *belfryv1.PurgeQueueRequest, f fate) *call {
	most := req.GetMax()
	if most == 0 {
		most = fsm.StepMax
	}
	return l.onQueue(req.GetQueue(), req.GetRequestId(),
		f, &fsm.Purge{Queue: req.GetQueue(), States: fsm.Set(fsm.Delayed, fsm.Ready, fsm.Dead), Max: most}, req,
		func(r *fsm.Result, w *belfryv1.Witness) proto.Message {
			return &belfryv1.PurgeQueueResponse{Purged: uint32(r.Count), Witnesses: []*belfryv1.Witness{w}}
		})
}

func (l *lab) deleteQueue(queue string, f fate) *call {
	return l.onQueue(queue, "", f, &fsm.DeleteQueue{Queue: queue}, &belfryv1.DeleteQueueRequest{Queue: queue},
		func(r *fsm.Result, w *belfryv1.Witness) proto.Message {
			return &belfryv1.DeleteQueueResponse{Purged: uint32(r.Count), Witnesses: []*belfryv1.Witness{w}}
		})
}

// configure has the catalog set a queue's settings.
func (l *lab) configure(queue string, version uint64, s fsm.Settings) {
	l.log(l.shardOf(queue), []*fsm.Request{{Commands: []fsm.Command{
		&fsm.Open{Queue: queue, Partitions: 1}, &fsm.Configure{Queue: queue, Partitions: 1, Version: version, Settings: s},
	}}})
}

// get reads a job.
func (l *lab) get(queue, id string) proto.Message {
	return l.read(queue, &belfryv1.GetRequest{Queue: queue, Id: id},
		func(m *machine.Machine, w *belfryv1.Witness) proto.Message {
			r := m.Answer(&fsm.JobQuery{Queue: queue, ID: id}, l.stamp())
			if len(r.Jobs) == 0 {
				return nil
			}
			return &belfryv1.GetResponse{Job: wireJob(&r.Jobs[0]), Witness: w, AsOf: w.GetTime()}
		})
}

// list reads the delayed jobs of a queue.
func (l *lab) list(queue string) proto.Message {
	return l.read(queue, &belfryv1.ListRequest{Queue: queue, PageSize: 1000},
		func(m *machine.Machine, w *belfryv1.Witness) proto.Message {
			r := m.Answer(&fsm.ListQuery{Queue: queue, State: fsm.Delayed, Max: 1000}, l.stamp())
			out := &belfryv1.ListResponse{Witnesses: []*belfryv1.Witness{w}, AsOf: w.GetTime()}
			for i := range r.Jobs {
				out.Jobs = append(out.Jobs, wireJob(&r.Jobs[i]))
			}
			if r.More {
				out.NextPageToken = "more"
			}
			return out
		})
}

// getQueue reads a queue's counters.
func (l *lab) getQueue(queue string) proto.Message {
	return l.read(queue, &belfryv1.GetQueueRequest{Queue: queue},
		func(m *machine.Machine, w *belfryv1.Witness) proto.Message {
			q, ok := m.Queue(queue, m.Clock())
			if !ok {
				return nil
			}
			c, k := q.Counts, q.Counters
			return &belfryv1.GetQueueResponse{Witnesses: []*belfryv1.Witness{w}, Queue: &belfryv1.Queue{
				Name: queue, Partitions: 1, Bytes: c.Bytes,
				Counts: &belfryv1.JobCounts{Delayed: uint32(c.Delayed), Ready: uint32(c.Ready), Reserved: uint32(c.Reserved),
					Dead: uint32(c.Dead)},
				Totals: &belfryv1.QueueTotals{
					Puts: k.Put, Reserves: k.Granted, Acks: k.Acked, Nacks: k.Nacked, Lapses: k.Lapsed, Releases: k.Released,
					Deaths:  k.Died,
					Cancels: k.Cancelled + k.Purged, Expiries: k.Expired, Redrives: k.Redriven,
				},
			}}
		})
}
