package checker

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/checker/wire"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// keyed: a key hands out one job at a time, in order; a job is replaced, and another follows it.
func (s *story) keyed() {
	s.format = fsm.LatestFormat
	s.configure("keyed", 1, fsm.Settings{Keys: fsm.KeySettings{Ordered: true}})
	for _, id := range []string{"k1", "k2"} {
		s.one("put "+id, s.put(&belfryv1.PutRequest{Queue: "keyed", Id: id, Key: "k",
			Body: &belfryv1.PutRequest_Text{Text: id}}, answered))
	}
	s.takes("k1", "keyed")
	s.takes("no key", "keyed")
	s.acks("k1")
	s.takes("k2", "keyed")
	s.acks("k2")
	s.bounces("bounce 1", belfryv1.OnExisting_ON_EXISTING_REPLACE)
	s.bounces("bounce 2", belfryv1.OnExisting_ON_EXISTING_REPLACE)
	s.wait(time.Second)
	s.takes("bounced", "keyed")
	s.bounces("bounce 3", belfryv1.OnExisting_ON_EXISTING_NEXT)
	s.acks("bounced")
	s.wait(time.Second)
	s.takes("follower", "keyed")
	s.acks("follower")
	s.bounces("bounce 4", belfryv1.OnExisting_ON_EXISTING_NEXT)
	s.wait(time.Second)
	s.takes("unwanted", "keyed")
	s.bounces("bounce 5", belfryv1.OnExisting_ON_EXISTING_NEXT)
	s.wait(time.Second)
	for _, name := range []string{"cancel it", "cancel what follows"} {
		s.one(name, s.cancel(&belfryv1.CancelRequest{Queue: "keyed", Id: "bounced", Force: true}, answered))
	}
}

// bounces puts another content of one job, which may wait for half a second.
func (s *story) bounces(name string, on belfryv1.OnExisting) {
	s.one(name, s.put(&belfryv1.PutRequest{Queue: "keyed", Id: "bounced", OnExisting: on,
		Body: &belfryv1.PutRequest_Text{Text: name}, MaxWait: durationpb.New(500 * time.Millisecond),
		When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(400 * time.Millisecond)}}, answered))
}

// scheduled: a schedule of each second fires twice.
func (s *story) scheduled() {
	first := (s.stamp()/fsm.Time(time.Second) + 2) * fsm.Time(time.Second)
	req := &belfryv1.PutScheduleRequest{Queue: "timely", Name: "tick", RequestId: "tick",
		Spec:   &belfryv1.ScheduleSpec{Rule: &belfryv1.ScheduleSpec_Every{Every: durationpb.New(time.Second)}},
		Policy: &belfryv1.SchedulePolicy{CatchUp: belfryv1.CatchUp_CATCH_UP_ALL}}
	put := &fsm.PutSchedule{Queue: "timely", Partitions: 1, Name: "tick", Spec: fsm.ScheduleSpec{Every: time.Second},
		Policy: fsm.SchedulePolicy{CatchUp: fsm.CatchUpAll}, Next: first}
	var serial, version uint64
	s.one("put tick", s.onQueue("timely", "tick", answered, put, req,
		func(r *fsm.Result, w *belfryv1.Witness) proto.Message {
			serial, version = r.Serial, r.Version
			return &belfryv1.PutScheduleResponse{Created: true, Version: version, Next: exact(r.Due), Witness: w}
		}))
	for i, name := range []string{"tick 1", "tick 2"} {
		at := first.Add(time.Duration(i) * time.Second)
		s.wait(at.Sub(s.stamp()) + time.Millisecond)
		s.log(s.shardOf("timely"), []*fsm.Request{{Commands: []fsm.Command{&fsm.Fire{
			Queue: "timely", Name: "tick", Serial: serial, Version: version, Nominal: at, Put: at, Due: at,
			Next: at.Add(time.Second)}}}})
		s.takes(name, "timely")
		s.acks(name)
	}
	w := response[*belfryv1.AckResponse](s, "ack tick 2").GetWitness()
	told := &belfryv1.Schedule{Queue: "timely", Name: "tick", Spec: req.GetSpec(), Policy: req.GetPolicy(),
		Next: exact(first.Add(2 * time.Second)), Counts: &belfryv1.ScheduleCounts{Fired: 2}}
	s.ops["get tick"] = &history.Op{Client: "reader", Node: "n1", Invoked: s.now, Returned: s.now + time.Millisecond,
		Outcome: belfryv1.Outcome_OUTCOME_APPLIED, Request: &belfryv1.GetScheduleRequest{Queue: "timely", Name: "tick"},
		Response: &belfryv1.GetScheduleResponse{Schedule: told, Witness: w}}
	s.history.Add(s.ops["get tick"])
	s.wait(2 * time.Millisecond)
}

// schedule is what was read of the schedule.
func (s *story) schedule() *belfryv1.Schedule {
	return response[*belfryv1.GetScheduleResponse](s, "get tick").GetSchedule()
}

// drains ends the run after a drain.
func (s *story) drains() {
	s.wait(time.Minute)
	s.ends().Drained = s.now
}

// again has a Reserve that was handed nothing be handed a job with a later fence.
func (s *story) again(name string, job *belfryv1.Job, serial uint64) *belfryv1.Job {
	s.adds(name, job)
	added := response[*belfryv1.ReserveResponse](s, name).Jobs[0]
	added.Fence += 1000
	added.Lease = forge(added.Lease, serial, added.Fence)
	return added
}

// mutatedKeys are lies about keys and replaced jobs.
func mutatedKeys() []mutation {
	return []mutation{
		{"a key has two holders", 43, func(s *story) { s.again("reserve no key", s.job("reserve k2"), 0) }},
		{"an ordered key hands out its second job first", 44, func(s *story) {
			x, y := s.job("reserve k1"), s.job("reserve k2")
			x.Lease, y.Lease = forge(y.Lease, 0, x.Fence), forge(x.Lease, 0, y.Fence)
			x.Id, y.Id = y.Id, x.Id
			x.Body, y.Body = y.Body, x.Body
		}},
		{"a replaced job has its first content", 45, func(s *story) {
			s.job("reserve bounced").Body = &belfryv1.Job_Text{Text: "bounce 1"}
		}},
		{"what follows a job has the content of that job", 45, func(s *story) {
			s.job("reserve follower").Body = &belfryv1.Job_Text{Text: "bounce 2"}
		}},
		{"a replacement is answered with the version before", 45, func(s *story) {
			response[*belfryv1.PutResponse](s, "bounce 2").Version = 1
		}},
		{"a replaced job is due later than it may be", 45, func(s *story) {
			resp := response[*belfryv1.PutResponse](s, "bounce 2")
			resp.DueAt = later(resp.DueAt, time.Second)
		}},
		{"what follows a job comes to nobody", 45, func(s *story) {
			s.drop("reserve follower")
			s.drop("ack follower")
			s.lose(response[*belfryv1.ReserveResponse](s, "reserve follower").GetJobs()[0].GetWitness())
			s.lose(response[*belfryv1.AckResponse](s, "ack follower").GetWitness())
			s.drains()
		}},
	}
}

// mutatedSchedules are lies about the jobs of schedules.
func mutatedSchedules() []mutation {
	return []mutation{
		{"a nominal time fired twice", 46, func(s *story) {
			job := s.again("reserve tick 2", s.job("reserve tick 1"), 1_000_000)
			job.Headers = s.job("reserve tick 1").GetHeaders()
		}},
		{"a nominal time fired before it had come", 46, func(s *story) {
			j := s.job("reserve tick 1")
			j.Headers[fsm.HeaderNominal] = fsm.FormatTime(wire.TimeOf(j.GetWitness().GetTime()).Add(time.Minute))
		}},
		{"a schedule says that it fired more often", 47, func(s *story) { s.schedule().Counts.Fired = 3; s.drains() }},
		{"a schedule went on after a time that it does not count", 47, func(s *story) {
			s.schedule().Next = later(s.schedule().GetNext(), time.Second)
			s.drains()
		}},
		{"a job of a schedule came to nobody", 47, func(s *story) {
			s.drop("reserve tick 1")
			s.drop("ack tick 1")
			s.drains()
		}},
	}
}
