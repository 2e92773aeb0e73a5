package checker

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// story is a short legal run in which one of everything happens. Its calls have names, so that a
// test can change what one of them was told.
type story struct {
	*lab
	ops    map[string]*history.Op
	leases map[string]string
	// before is told before the run ends, what is left of it after its last call.
	full *Run
}

// one sends a call by itself and keeps it under a name.
func (s *story) one(name string, c *call) *history.Op {
	s.ops[name] = c.op
	s.commit()
	s.wait(3 * time.Millisecond)
	return c.op
}

func (s *story) puts(name, queue string, delay time.Duration) *belfryv1.PutRequest {
	req := &belfryv1.PutRequest{Queue: queue, Id: name, Body: &belfryv1.PutRequest_Text{Text: "body of " + name}}
	if delay > 0 {
		req.When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(delay)}
	}
	s.one("put "+name, s.put(req, answered))
	return req
}

// takes reserves one job for three seconds.
func (s *story) takes(name, queue string) {
	s.takesFor(name, queue, 3*time.Second)
}

func (s *story) takesFor(name, queue string, ttr time.Duration) {
	req := &belfryv1.ReserveRequest{Queues: []string{queue}, Wait: durationpb.New(time.Second), Ttr: durationpb.New(ttr)}
	s.one("reserve "+name, s.reserve(req, answered, func(j *belfryv1.Job) { s.leases[name] = j.GetLease() }))
}

func (s *story) acks(name string) {
	s.one("ack "+name, s.ack(&belfryv1.AckRequest{Lease: s.leases[name]}, answered))
}

// newStory tells the whole story.
func newStory(t testing.TB) *story {
	s := &story{lab: newLab(t, 2, 99), ops: map[string]*history.Op{}, leases: map[string]string{}}
	s.plain()
	s.redelivered()
	s.failed()
	s.named()
	s.unknown()
	s.limited()
	s.tasked()
	s.mirrored()
	s.keyed()
	s.scheduled()
	s.reads()
	return s
}

// plain: a job is put, handed out and acked; two more leave in their order; a batch.
func (s *story) plain() {
	s.puts("a", "orders", 0)
	s.one("repeat a", s.put(s.ops["put a"].Request.(*belfryv1.PutRequest), answered))
	s.one("conflict a", s.put(&belfryv1.PutRequest{Queue: "orders", Id: "a",
		Body: &belfryv1.PutRequest_Text{Text: "another"}}, answered))
	s.takes("a", "orders")
	s.acks("a")
	s.puts("first", "orders", 0)
	s.puts("second", "orders", 0)
	s.takes("first", "orders")
	s.takes("second", "orders")
	s.acks("first")
	s.acks("second")
	s.one("generated", s.put(&belfryv1.PutRequest{Queue: "orders", Body: &belfryv1.PutRequest_Text{Text: "g"},
		Headers: map[string]string{"k": "v"}, RequestId: "g1"}, answered))
	s.one("generated too", s.put(&belfryv1.PutRequest{Queue: "orders", Body: &belfryv1.PutRequest_Text{Text: "h"},
		RequestId: "h1"}, answered))
	s.takes("generated", "orders")
	s.acks("generated")
	s.takes("generated too", "orders")
	s.acks("generated too")
	s.one("batch", s.putBatch(&belfryv1.PutBatchRequest{Jobs: []*belfryv1.PutRequest{
		{Queue: "orders", Id: "b1"}, {Queue: "orders", Id: "a", Body: &belfryv1.PutRequest_Text{Text: "another"}},
		{Queue: "orders", Id: "b2"},
	}}, answered))
	s.takes("b1", "orders")
	s.takes("b2", "orders")
	s.one("acks", s.ackBatch(&belfryv1.AckBatchRequest{Leases: []string{s.leases["b1"], s.leases["b2"]}}, answered))
}

// redelivered: a lease lapses, the job is handed out again, and the first holder comes too late.
func (s *story) redelivered() {
	s.puts("late", "orders", 0)
	s.takesFor("late", "orders", 100*time.Millisecond)
	s.wait(200 * time.Millisecond)
	s.takes("late again", "orders")
	s.acks("late") // stale
	s.one("extend", s.extend(&belfryv1.ExtendRequest{Lease: s.leases["late again"], Ttr: durationpb.New(4 * time.Second)},
		answered))
	s.acks("late again")
	s.elect(s.shardOf("orders"))
	s.puts("given back", "orders", 0)
	s.takes("given back", "orders")
	s.one("release", s.release(&belfryv1.ReleaseRequest{Lease: s.leases["given back"]}, answered))
	s.takes("given back again", "orders")
	s.acks("given back again")
}

// failed: a job fails twice, is dead, is redriven and done.
func (s *story) failed() {
	two := uint32(2)
	s.one("put poor", s.put(&belfryv1.PutRequest{Queue: "mail", Id: "poor", MaxAttempts: &two}, answered))
	s.takes("poor", "mail")
	s.one("nack poor", s.nack(&belfryv1.NackRequest{Lease: s.leases["poor"], Error: "e",
		Delay: durationpb.New(500 * time.Millisecond), RequestId: "n1"}, answered))
	s.takes("none", "mail")
	s.wait(time.Second)
	s.takes("poor again", "mail")
	s.one("nack dead", s.nack(&belfryv1.NackRequest{Lease: s.leases["poor again"]}, answered))
	s.takes("none again", "mail")
	s.one("redrive", s.redrive(&belfryv1.RedriveRequest{Queue: "mail", Ids: []string{"poor"}}, answered))
	s.takes("poor anew", "mail")
	s.acks("poor anew")
}

// named: a job is cancelled, one is rescheduled.
func (s *story) named() {
	s.puts("unwanted", "mail", time.Second)
	s.one("cancel", s.cancel(&belfryv1.CancelRequest{Queue: "mail", Id: "unwanted"}, answered))
	s.puts("postponed", "mail", time.Second)
	s.one("reschedule", s.reschedule("mail", "postponed", 2*time.Second, answered))
	s.takes("nothing", "mail")
	s.wait(2 * time.Second)
	s.takes("postponed", "mail")
	s.acks("postponed")
}

// unknown: puts without an answer, puts that were lost, and puts that were refused.
func (s *story) unknown() {
	s.one("unheard", s.put(&belfryv1.PutRequest{Queue: "mail", Body: &belfryv1.PutRequest_Text{Text: "unheard"}}, unheard))
	s.one("lost", s.put(&belfryv1.PutRequest{Queue: "mail", Body: &belfryv1.PutRequest_Text{Text: "lost"},
		RequestId: "lost"}, lost))
	s.one("refused", s.put(&belfryv1.PutRequest{Queue: "mail", Body: &belfryv1.PutRequest_Text{Text: "refused"},
		RequestId: "refused"}, refused))
	s.takes("unheard", "mail")
	s.acks("unheard")
	s.puts("spoken for", "mail", 0)
	s.one("reserve unheard", s.reserve(&belfryv1.ReserveRequest{Queues: []string{"mail"}, RequestId: "u1",
		Ttr: durationpb.New(2 * time.Second)}, unheard, nil))
	s.one("reserve repeated", s.reserve(&belfryv1.ReserveRequest{Queues: []string{"mail"}, RequestId: "u1",
		Ttr: durationpb.New(2 * time.Second)}, answered,
		func(j *belfryv1.Job) { s.leases["spoken for"] = j.GetLease() }))
	s.acks("spoken for")
}

// limited: a queue takes one job.
func (s *story) limited() {
	s.configure("small", 1, fsm.Settings{MaxJobs: 1})
	s.puts("only", "small", 0)
	s.puts("too many", "small", 0)
	s.takes("only", "small")
	s.acks("only")
	s.expire(s.shardOf("small"))
	s.puts("calm", "calm", 0)
	s.takes("calm", "calm")
	s.one("nack calm", s.nack(&belfryv1.NackRequest{Lease: s.leases["calm"]}, answered))
	s.takes("calm again", "calm")
	s.acks("calm again")
}

// reads: what is there is looked at, and taken by the drain.
func (s *story) reads() {
	s.puts("seen", "orders", time.Second)
	s.get("orders", "seen")
	s.ops["get"] = s.last()
	s.list("orders")
	s.ops["list"] = s.last()
	s.getQueue("orders")
	s.ops["get queue"] = s.last()
	s.wait(2 * time.Second)
	s.takes("seen", "orders")
	s.acks("seen")
	s.puts("waited for", "orders", 0)
	s.wait(20 * time.Second)
	s.takes("waited for", "orders")
	s.acks("waited for")
}

// last is the call that ended last.
func (s *story) last() *history.Op {
	ops := s.history.Ops()
	return ops[len(ops)-1]
}

// ends returns the run.
func (s *story) ends() *Run {
	if s.full == nil {
		s.full = s.run()
	}
	return s.full
}

// response returns the answer of a call as its type.
func response[T proto.Message](s *story, name string) T {
	s.t.Helper()
	resp, ok := s.ops[name].Response.(T)
	if !ok {
		s.t.Fatalf("the call %q was answered with a %T, %v", name, s.ops[name].Response, s.ops[name].Reason)
	}
	return resp
}

// TestStory: the story as it is told is a legal one, with nothing left when the drain has ended.
func TestStory(t *testing.T) {
	s := newStory(t)
	s.wait(time.Minute)
	s.ends().Drained = s.now
	v := Check(s.ends())
	complain(t, &v)
	for _, name := range []string{"conflict a", "ack late", "put too many"} {
		if s.ops[name].OK() {
			t.Errorf("%s was done: %+v", name, s.ops[name])
		}
	}
	for _, name := range []string{"ack late again", "ack poor anew", "ack postponed", "ack spoken for", "ack seen", "get",
		"list", "get queue"} {
		if !s.ops[name].OK() {
			t.Errorf("%s was not done: %+v", name, s.ops[name])
		}
	}
}
