package queue

import (
	"context"
	"fmt"
	"slices"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// named is the job that a call names.
type named struct{ queue, id, key string }

// query returns the query for the job. It also finds a job that has ended.
func (n named) query() *fsm.JobQuery {
	return &fsm.JobQuery{Queue: n.queue, ID: n.id, Key: n.key, Ended: true}
}

// in returns the job of a reading, nil if the reading has none. A node before fsm.KeysFormat leaves
// the key out of the query, and then answers a job without a key.
func (n named) in(r *fsm.Reading) *fsm.Job {
	if len(r.Jobs) == 0 || n.key != "" && r.Jobs[0].Key != n.key {
		return nil
	}
	return &r.Jobs[0]
}

// missing returns the fault of a call whose job is not held. ended is what is remembered of the job,
// nil for nothing.
func missing(shard uint32, ended *fsm.Job) *fault.Error {
	f := fault.New(belfryv1.Reason_REASON_JOB_NOT_FOUND)
	if f.Shard = &shard; ended != nil {
		f.State, f.Message = ended.State, "the job has ended: it is "+endText(ended)
	}
	return f
}

// notFound reports whether a shard holds no job of the id.
func notFound(f *fault.Error) bool {
	return f != nil && f.Reason == belfryv1.Reason_REASON_JOB_NOT_FOUND
}

// jobReading is a job with the reading that shows it.
type jobReading struct {
	job     *fsm.Job
	reading fsm.Reading
	witness *belfryv1.Witness
	shard   uint32
	// known is set if the shard remembers the request of the call.
	known bool
}

// holds reports whether the job is held.
func (r *jobReading) holds() bool { return r.job != nil && r.job.State.Held() }

// readJob reads the job that a call names. It asks the partition of the key or the id first, and all
// others only if that does not hold the job. The first that holds it counts, else the first that
// remembers its end, else the first asked, with a nil job.
func (s *Service) readJob(ctx context.Context, from shardcall.Reader, job named) (jobReading, error) {
	first, others, ok := s.router.PartitionsOfJob(job.queue, job.id, job.key)
	if !ok {
		return jobReading{}, fault.New(belfryv1.Reason_REASON_JOB_NOT_FOUND)
	}
	all, err := s.readJobIn(ctx, from, job, "", []uint32{first})
	if err != nil || all[0].holds() || len(others) == 0 {
		return firstReading(all), err
	}
	more, err := s.readJobIn(ctx, from, job, "", others)
	return firstReading(append(all, more...)), err
}

// firstReading returns the reading that counts, as readJob says.
func firstReading(all []jobReading) jobReading {
	if len(all) == 0 {
		return jobReading{}
	}
	if i := slices.IndexFunc(all, func(r jobReading) bool { return r.holds() }); i >= 0 {
		return all[i]
	}
	if i := slices.IndexFunc(all, func(r jobReading) bool { return r.job != nil }); i >= 0 {
		return all[i]
	}
	return all[0]
}

// readJobIn reads a job in some shards side by side. If requestID is not empty, it also finds out
// which of them remember that request.
func (s *Service) readJobIn(ctx context.Context, from shardcall.Reader, job named, requestID string,
	partitions []uint32) ([]jobReading, error) {
	all := make([]jobReading, len(partitions))
	shards := make([]uint32, len(partitions))
	for i, p := range partitions {
		shards[i] = s.router.Shard(job.queue, p)
	}
	_, _, err := from.AskAll(ctx, shards, func(ctx context.Context, i int) (fsm.Reading, node.Witness, error) {
		r, w, err := from.Read(ctx, shards[i], job.query())
		all[i] = jobReading{job: job.in(&r), reading: r, witness: wire.Witness(w), shard: shards[i]}
		if err == nil && requestID != "" && !all[i].holds() {
			// This comes second: a job that an attempt ended before the first read is remembered by now.
			all[i].known, err = s.remembers(ctx, shards[i], job.queue, requestID)
		}
		return r, w, err
	})
	return all, err
}

// remembers reports whether a shard remembers a request of a queue's namespace, whatever its content.
func (s *Service) remembers(ctx context.Context, shard uint32, queue, requestID string) (bool, error) {
	// No request has this content, so the shard says Invalid of one that it remembers.
	r, _, err := s.router.Node.Query(ctx, shard, &fsm.RecallQuery{Caller: fsm.NamespaceOf(queue), RequestID: requestID})
	if err != nil {
		return false, fmt.Errorf("asking for an earlier attempt: %w", err)
	}
	return r.Code == fsm.Invalid, nil
}

// onJobIn proposes a command to the partition of a job: that of the key or the id first. If the job is
// not there, it reads all others, and proposes to the first that holds the job. A repeat goes where
// the first attempt was carried out, since that shard remembers it.
func (s *Service) onJobIn(ctx context.Context, job named, requestID string,
	command fsm.Command) (shardcall.Answer, error) {
	first, others, ok := s.router.PartitionsOfJob(job.queue, job.id, job.key)
	if !ok {
		return shardcall.Answer{}, fault.New(belfryv1.Reason_REASON_JOB_NOT_FOUND)
	}
	a := s.router.Propose(ctx, s.router.Shard(job.queue, first), requestID, command)
	if !notFound(a.Fault) || len(others) == 0 {
		return carriedOut(a)
	}
	from := shardcall.Reader{Router: s.router}
	readings, err := s.readJobIn(ctx, from, job, requestID, others)
	if err != nil {
		return shardcall.Answer{}, err
	}
	slices.SortStableFunc(readings, func(x, y jobReading) int { return rank(y) - rank(x) })
	for i := range readings {
		if !readings[i].known && !readings[i].holds() {
			if a.Fault.State == fsm.StateNone && readings[i].job != nil {
				return shardcall.Answer{}, missing(readings[i].shard, readings[i].job)
			}
			continue
		}
		if next := s.router.Propose(ctx, readings[i].shard, requestID, command); !notFound(next.Fault) {
			return carriedOut(next)
		}
	}
	return carriedOut(a)
}

// rank orders readings: those that remember the request come first, then those that hold the job.
func rank(r jobReading) int {
	switch {
	case r.known:
		return 2
	case r.holds():
		return 1
	default:
		return 0
	}
}

// carriedOut returns the answer to a command, or its fault as an error.
func carriedOut(a shardcall.Answer) (shardcall.Answer, error) {
	if a.Fault != nil {
		return shardcall.Answer{}, a.Fault
	}
	return a, nil
}
