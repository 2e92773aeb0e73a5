// Package sample asks porcupine about some jobs of a run, with a model of one job that knows
// neither the log nor a ledger.
package sample

import (
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/wire"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// sampleLeast and one in sampleShare calls, up to sampleMost, is how many jobs the second opinion
	// looks at; jobTimeMax is how long at one, and jobCallsMax how many calls about one are too many
	// for it.
	sampleLeast = 200
	sampleShare = 500
	sampleMost  = 2000
	jobTimeMax  = 10 * time.Second
	jobCallsMax = 300
	// shortLease is a length below which a grant may be over before a client hears of it.
	shortLease = 2 * time.Second
)

// idName is a job as clients name it.
type idName struct{ queue, id string }

// sampled is one job of the sample with the calls about it.
type sampled struct {
	name  idName
	put   *belfryv1.PutRequest
	queue *queueTraits
	calls []*jobCall
	// byRequest are the calls with a request id that were answered or are of unknown outcome: all
	// attempts at one are one call.
	byRequest map[string]*jobCall
}

// queueTraits is what happened to a whole queue, by the history.
type queueTraits struct {
	// wide are calls that may have touched any job of the queue.
	wide []*jobCall
	// unheard says that there may have been grants that no client heard of, moved that its settings
	// may have changed due times.
	unheard, moved bool
	// most is how many attempts a job has whose put does not say, window how long ids are remembered.
	most   uint32
	window time.Duration
}

// putName is a put by its request id.
type putName struct {
	requestID string
	entry     int
}

// survey is the history, looked at for the sample. It knows nothing of the log.
type survey struct {
	jobs   map[idName]*sampled
	chosen []*sampled
	// puts are the jobs whose ids the server made, by the request id of the put and its place in the
	// batch: an attempt that was not answered does not say its id.
	puts   map[putName]*sampled
	leases map[string]*sampled
	queues map[string]*queueTraits
}

// Check asks porcupine about some of the jobs, with a model that knows neither the machine nor the
// ledger.
//
// most is the number of jobs; 0 means a number that grows with the calls. parallel calls f for each
// number below n, maybe on several goroutines, each with a set of its own.
func Check(ops []*history.Op, most int, parallel func(n int, f func(i int, found *finding.Set))) {
	s := survey{jobs: map[idName]*sampled{}, puts: map[putName]*sampled{}, leases: map[string]*sampled{},
		queues: map[string]*queueTraits{}}
	s.choose(ops, most)
	for _, o := range ops {
		if req, ok := o.Request.(*belfryv1.ReserveRequest); ok {
			s.reserve(o, req)
		}
	}
	for _, o := range ops {
		s.call(o)
	}
	for _, j := range s.chosen {
		j.queue = s.traits(j.name.queue) // before goroutines look at them
	}
	parallel(len(s.chosen), func(i int, found *finding.Set) {
		if j := s.chosen[i]; j.calls != nil {
			j.judge(found)
		}
	})
}

// judge asks porcupine about one job.
func (j *sampled) judge(found *finding.Set) {
	q := j.queue
	calls := append(j.calls, q.wide...)
	switch {
	case j.put.GetTtl() != nil || q.moved:
		found.Count("sampled jobs whose ends the model does not know", 1)
		return
	case len(calls) > jobCallsMax:
		found.Count("sampled jobs with too many calls", 1)
		return
	}
	found.Look(finding.SecondOpinion)
	model := jobModel{most: q.most, unheard: q.unheard, window: q.window}
	if j.put.MaxAttempts != nil {
		model.most = j.put.GetMaxAttempts()
	}
	operations := make([]porcupine.Operation, len(calls))
	var last time.Duration
	for i, one := range calls {
		end := int64(one.returned)
		if one.unknown {
			end = math.MaxInt64
		}
		last = max(last, one.returned)
		operations[i] = porcupine.Operation{ClientId: i, Input: one, Call: int64(one.invoked), Return: end}
	}
	switch porcupine.CheckOperationsTimeout(model.porcupine(), operations, jobTimeMax) {
	case porcupine.Ok:
	case porcupine.Illegal:
		found.Violated(finding.SecondOpinion, last, "job %q of %s: no order of its %d calls gives these answers", j.name.id,
			j.name.queue, len(calls))
	case porcupine.Unknown:
		found.Violated(finding.SecondOpinion, last, "job %q of %s: no verdict on its %d calls within %v", j.name.id,
			j.name.queue,
			len(calls), jobTimeMax)
	}
}

// put is a job that was put, and its place in the batch.
type put struct {
	idName
	entry int
}

// putNames are the jobs that a call put, as far as it says.
func putNames(o *history.Op) (names []put) {
	switch req := o.Request.(type) {
	case *belfryv1.PutRequest:
		id := req.GetId()
		if resp, ok := o.Response.(*belfryv1.PutResponse); ok {
			id = resp.GetId()
		}
		if id != "" {
			names = append(names, put{idName{req.GetQueue(), id}, 0})
		}
	case *belfryv1.PutBatchRequest:
		resp, _ := o.Response.(*belfryv1.PutBatchResponse)
		for i, job := range req.GetJobs() {
			id := job.GetId()
			if resp != nil && i < len(resp.GetResults()) && resp.GetResults()[i].GetPut() != nil {
				id = resp.GetResults()[i].GetPut().GetId()
			}
			if id != "" {
				names = append(names, put{idName{job.GetQueue(), id}, i})
			}
		}
	}
	return names
}

// choose takes jobs at even distances of the puts.
func (s *survey) choose(ops []*history.Op, most int) {
	if most == 0 {
		most = min(sampleMost, sampleLeast+len(ops)/sampleShare)
	}
	n := 0
	for _, o := range ops {
		switch req := o.Request.(type) {
		case *belfryv1.PutRequest:
			n++
		case *belfryv1.PutBatchRequest:
			n += len(req.GetJobs())
		}
	}
	every, at := max(1, n/most), 0
	for _, o := range ops {
		for _, name := range putNames(o) {
			if at++; at%every != 0 || s.jobs[name.idName] != nil {
				continue
			}
			j := &sampled{name: name.idName, byRequest: map[string]*jobCall{}}
			switch req := o.Request.(type) {
			case *belfryv1.PutRequest:
				j.put = req
				s.puts[putName{req.GetRequestId(), 0}] = j
			case *belfryv1.PutBatchRequest:
				j.put = req.GetJobs()[name.entry]
				s.puts[putName{req.GetRequestId(), name.entry}] = j
			}
			s.jobs[name.idName] = j
			s.chosen = append(s.chosen, j)
		}
	}
}

func (s *survey) traits(queue string) *queueTraits {
	q := s.queues[queue]
	if q == nil {
		q = &queueTraits{most: fsm.DefaultMaxAttempts, window: fsm.DefaultDedupWindow}
		s.queues[queue] = q
	}
	return q
}

// settings takes note of the settings of a queue that the model knows something of.
func (q *queueTraits) settings(set *belfryv1.QueueSettings) {
	q.moved = q.moved || set.GetOverdue() != nil
	q.unheard = q.unheard || set.GetTtr() != nil && set.GetTtr().AsDuration() < shortLease
	if set != nil && set.MaxAttempts != nil {
		q.most = set.GetMaxAttempts()
	}
	if set.GetDedupWindow() != nil {
		q.window = set.GetDedupWindow().AsDuration()
	}
}

// reserve takes note of the jobs that a call was handed.
func (s *survey) reserve(o *history.Op, req *belfryv1.ReserveRequest) {
	for _, queue := range req.GetQueues() {
		if !o.OK() || req.GetTtr() != nil && req.GetTtr().AsDuration() < shortLease {
			s.traits(queue).unheard = true
		}
	}
	resp, _ := o.Response.(*belfryv1.ReserveResponse)
	for _, job := range resp.GetJobs() {
		j := s.jobs[idName{job.GetQueue(), job.GetId()}]
		if j == nil {
			continue
		}
		s.leases[job.GetLease()] = j
		j.calls = append(j.calls, &jobCall{
			kind: callGrant, ok: true, invoked: o.Invoked, returned: o.Returned, time: wire.TimeOf(job.GetWitness().GetTime()),
			fence:   job.GetFence(),
			attempt: job.GetAttempt(), until: wire.TimeOf(job.GetLeaseUntil()),
		})
	}
}

// told fills in what a client was told of a call that was not answered.
func (one *jobCall) told(outcome belfryv1.Outcome, reason belfryv1.Reason, w *belfryv1.Witness) {
	one.reason, one.time = reason, wire.TimeOf(w.GetTime())
	one.unknown = outcome != belfryv1.Outcome_OUTCOME_NOT_APPLIED
}

// add takes a call about a job. What was refused without a look at the job says nothing of it;
// attempts with one request id are one call.
func (j *sampled) add(one *jobCall, requestID string) {
	if j == nil || !one.ok && !one.unknown && one.time == 0 {
		return
	}
	if requestID == "" || !one.ok && !one.unknown {
		j.calls = append(j.calls, one)
		return
	}
	key := string(rune('a'+one.kind)) + requestID
	first := j.byRequest[key]
	if first == nil {
		j.byRequest[key] = one
		j.calls = append(j.calls, one)
		return
	}
	invoked, returned := min(first.invoked, one.invoked), min(first.returned, one.returned)
	switch {
	case first.unknown && one.ok:
		returned = one.returned
		*first = *one
	case one.unknown && first.ok:
		returned = first.returned
	}
	first.invoked, first.returned = invoked, returned
	first.time = 0 // it may have been answered from memory
}

// call takes note of a call about jobs of the sample.
func (s *survey) call(o *history.Op) {
	switch req := o.Request.(type) {
	case *belfryv1.PutRequest:
		var result *belfryv1.PutBatchResult
		if resp, ok := o.Response.(*belfryv1.PutResponse); ok {
			result = &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Put{Put: resp}}
		}
		s.put(o, putName{req.GetRequestId(), 0}, req, result)
	case *belfryv1.PutBatchRequest:
		resp, _ := o.Response.(*belfryv1.PutBatchResponse)
		for i, job := range req.GetJobs() {
			var one *belfryv1.PutBatchResult
			if resp != nil && i < len(resp.GetResults()) {
				one = resp.GetResults()[i]
			}
			s.put(o, putName{req.GetRequestId(), i}, job, one)
		}
	case *belfryv1.CancelRequest:
		one := &jobCall{kind: callCancel, force: req.GetForce(), invoked: o.Invoked, returned: o.Returned}
		if resp, ok := o.Response.(*belfryv1.CancelResponse); ok {
			one.ok, one.time = true, wire.TimeOf(resp.GetWitness().GetTime())
		} else {
			one.told(o.Outcome, o.Reason, o.Witness)
		}
		s.jobs[idName{req.GetQueue(), req.GetId()}].add(one, req.GetRequestId())
	case *belfryv1.RescheduleRequest:
		one := &jobCall{kind: callReschedule, invoked: o.Invoked, returned: o.Returned}
		if resp, ok := o.Response.(*belfryv1.RescheduleResponse); ok {
			one.ok, one.time, one.due = true, wire.TimeOf(resp.GetWitness().GetTime()), wire.TimeOf(resp.GetDueAt())
		} else {
			one.told(o.Outcome, o.Reason, o.Witness)
		}
		s.jobs[idName{req.GetQueue(), req.GetId()}].add(one, req.GetRequestId())
	default:
		s.callOnLease(o)
		s.callOnQueue(o)
	}
}

// put takes note of one put.
func (s *survey) put(o *history.Op, name putName, req *belfryv1.PutRequest, result *belfryv1.PutBatchResult) {
	resp, failed := result.GetPut(), result.GetError()
	if req.GetTtr() != nil && req.GetTtr().AsDuration() < shortLease {
		s.traits(req.GetQueue()).unheard = true
	}
	if req.GetKey() != "" || req.GetOnExisting() > belfryv1.OnExisting_ON_EXISTING_RETURN {
		s.traits(req.GetQueue()).moved = true // the model knows of no keys, and of one content
	}
	one := &jobCall{kind: callPut, again: req.GetAgain(), invoked: o.Invoked, returned: o.Returned}
	id := req.GetId()
	switch {
	case resp != nil:
		id = resp.GetId()
		one.ok, one.created, one.due, one.time = true, resp.GetCreated(), wire.TimeOf(resp.GetDueAt()),
			wire.TimeOf(resp.GetWitness().GetTime())
	case failed != nil:
		one.told(failed.GetOutcome(), failed.GetReason(), failed.GetWitness())
	default:
		one.told(o.Outcome, o.Reason, o.Witness)
	}
	j := s.jobs[idName{req.GetQueue(), id}]
	if id == "" && name.requestID != "" {
		j = s.puts[name]
	}
	j.add(one, name.requestID)
}

// callOnQueue takes note of a call that may touch any job of a queue.
func (s *survey) callOnQueue(o *history.Op) {
	switch req := o.Request.(type) {
	case *belfryv1.StartTaskRequest: // in steps, of which no client hears
		q := s.traits(req.GetQueue())
		q.moved = q.moved || req.GetAct() != belfryv1.TaskAct_TASK_ACT_COUNT
		return
	case *belfryv1.RedriveRequest, *belfryv1.PurgeQueueRequest, *belfryv1.DeleteQueueRequest, *belfryv1.CreateQueueRequest,
		*belfryv1.UpdateQueueRequest:
	default:
		return
	}
	one := &jobCall{invoked: o.Invoked, returned: o.Returned, unknown: !o.OK()}
	if !o.OK() && o.Outcome == belfryv1.Outcome_OUTCOME_NOT_APPLIED {
		return
	}
	var queue string
	switch req := o.Request.(type) {
	case *belfryv1.RedriveRequest:
		queue, one.kind = req.GetQueue(), callRedrive
	case *belfryv1.PurgeQueueRequest:
		queue, one.kind = req.GetQueue(), callRemove
	case *belfryv1.DeleteQueueRequest:
		queue, one.kind = req.GetQueue(), callRemove
		s.traits(queue).moved = true // ids may be put again
		return
	case *belfryv1.CreateQueueRequest:
		s.traits(req.GetQueue()).settings(req.GetSettings())
		return
	case *belfryv1.UpdateQueueRequest:
		q := s.traits(req.GetQueue())
		if q.settings(req.GetSettings()); req.GetSettings() != nil && req.GetSettings().MaxAttempts != nil {
			q.moved = true // some jobs have failed by the old number
		}
		if req.GetSettings().GetDedupWindow() != nil {
			q.window = 0
		}
		return
	default:
		return
	}
	s.traits(queue).wide = append(s.traits(queue).wide, one)
}
