package checker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// oddity is a run that is unusual and legal.
type oddity struct {
	name string
	live func(s *story) *Run
}

// text is a put with an id and a body.
func text(queue, id, body string) *belfryv1.PutRequest {
	return &belfryv1.PutRequest{Queue: queue, Id: id, Body: &belfryv1.PutRequest_Text{Text: body}}
}

func oddities() []oddity {
	return slices.Concat(oddCalls(), oddRepeats(), oddQueues(), oddLimits(), oddClusters(), oddEnds())
}

func oddCalls() []oddity {
	return []oddity{
		{"nothing happened at all", func(s *story) *Run {
			run := newLab(s.t, 1, 1).run()
			run.Journals = nil
			return run
		}},
		{"a put of unknown outcome took effect half a minute later", func(s *story) *Run {
			c := s.put(text("orders", "slow", "x"), lost)
			s.commit()
			s.wait(30 * time.Second)
			s.log(c.shard, []*fsm.Request{c.request})
			s.takes("slow", "orders")
			s.acks("slow")
			return s.run()
		}},
		{"an ack was sent twice", func(s *story) *Run {
			s.puts("twice", "orders", 0)
			s.takes("twice", "orders")
			s.acks("twice")
			s.acks("twice")
			s.one("batch", s.ackBatch(&belfryv1.AckBatchRequest{Leases: []string{s.leases["twice"], s.leases["twice"]}},
				answered))
			return s.run()
		}},
		{"a reserve was repeated, and told from memory by a reading", func(s *story) *Run {
			s.puts("again", "orders", 0)
			req := &belfryv1.ReserveRequest{Queues: []string{"orders"}, RequestId: "v"}
			s.one("first", s.reserve(req, unheard, nil))
			sh := s.shardOf("orders")
			w := &belfryv1.Witness{Shard: sh.number, Term: sh.term, Index: sh.index, Time: exact(sh.machine.Clock())}
			recalled := sh.machine.Answer(codec.RecallOf(s.logged("first")), s.stamp())
			s.read("orders", req, func(*machine.Machine, *belfryv1.Witness) proto.Message {
				job := wireJob(&recalled.Jobs[0])
				job.Lease, job.Witness = formatLease(fsm.Ref{Queue: "orders", Serial: recalled.Jobs[0].Serial,
					Fence: recalled.Jobs[0].Fence}), w
				s.leases["again"] = job.GetLease()
				return &belfryv1.ReserveResponse{Jobs: []*belfryv1.Job{job}}
			})
			s.acks("again")
			return s.run()
		}},
		{"a reserve was repeated after its leases had lapsed, and reserved anew", func(s *story) *Run {
			s.puts("anew", "orders", 0)
			req := &belfryv1.ReserveRequest{Queues: []string{"orders"}, RequestId: "v",
				Ttr: durationpb.New(50 * time.Millisecond)}
			s.one("first", s.reserve(req, unheard, nil))
			s.wait(time.Second)
			s.one("second", s.reserve(req, answered, func(j *belfryv1.Job) { s.leases["anew"] = j.GetLease() }))
			s.acks("anew")
			return s.run()
		}},
	}
}

func oddRepeats() []oddity {
	return []oddity{
		{"a put was repeated after its job was done", func(s *story) *Run {
			s.puts("done", "orders", 0)
			s.takes("done", "orders")
			s.acks("done")
			s.one("repeat", s.put(s.ops["put done"].Request.(*belfryv1.PutRequest), answered))
			s.one("conflict", s.put(text("orders", "done", "other"), answered))
			return s.run()
		}},
		{"a put was let in again", func(s *story) *Run {
			s.puts("anew", "orders", 0)
			s.takes("anew", "orders")
			s.acks("anew")
			req := text("orders", "anew", "other")
			req.Again = true
			s.one("again", s.put(req, answered))
			s.takes("anew", "orders")
			s.acks("anew")
			return s.run()
		}},
		{"an id was put again after the dedup window", func(s *story) *Run {
			s.puts("old", "orders", 0)
			s.takes("old", "orders")
			s.acks("old")
			s.wait(11 * time.Minute)
			s.one("again", s.put(text("orders", "old", "other"), answered))
			return s.run()
		}},
		{"a nack was answered from memory after the job had gone on", func(s *story) *Run {
			s.puts("poor", "orders", 0)
			s.takes("poor", "orders")
			nack := &belfryv1.NackRequest{Lease: s.leases["poor"], RequestId: "n"}
			s.one("nack", s.nack(nack, unheard))
			s.takes("poor again", "orders")
			s.one("nack again", s.nack(nack, answered))
			s.acks("poor again")
			return s.run()
		}},
		{"a batch of which half are conflicts", func(s *story) *Run {
			s.puts("x", "orders", 0)
			s.one("batch", s.putBatch(&belfryv1.PutBatchRequest{RequestId: "b", Jobs: []*belfryv1.PutRequest{
				text("orders", "x", "other"), text("orders", "y", "y"), text("orders", "y", "other"), text("orders", "z", "z"),
			}}, answered))
			s.one("batch again", s.putBatch(s.ops["batch"].Request.(*belfryv1.PutBatchRequest), answered))
			return s.run()
		}},
		{"a batch of equal puts, sent twice", func(s *story) *Run {
			one := &belfryv1.PutRequest{Queue: "orders", Body: &belfryv1.PutRequest_Text{Text: "x"}}
			req := &belfryv1.PutBatchRequest{RequestId: "b", Jobs: []*belfryv1.PutRequest{one, one, one}}
			s.one("batch", s.putBatch(req, unheard))
			s.one("batch again", s.putBatch(req, answered))
			return s.run()
		}},
		{"calls side by side, answered in any order", func(s *story) *Run {
			for i := range 20 {
				s.put(text("orders", fmt.Sprint("p", i), "x"), answered)
			}
			slices.Reverse(s.pending)
			s.commit()
			return s.run()
		}},
		{"a request id older than what is remembered", func(s *story) *Run {
			req := text("orders", "", "x")
			req.RequestId = "01893a6c-2a4f-7000-8000-000000000000"
			s.one("expired", s.put(req, answered))
			return s.run()
		}},
	}
}

// logged is the request that was made of a call.
func (s *story) logged(name string) *fsm.Request {
	req := s.ops[name].Request.(*belfryv1.ReserveRequest)
	return &fsm.Request{ID: req.GetRequestId(),
		Commands: []fsm.Command{&fsm.Reserve{Queues: req.GetQueues(), Max: max(1, req.GetMaxJobs()), Bytes: 4 << 20}}}
}

func oddQueues() []oddity {
	return []oddity{
		{"a queue was purged", func(s *story) *Run {
			for i := range 5 {
				s.puts(fmt.Sprint("p", i), "orders", time.Duration(i)*time.Second)
			}
			s.takes("p0", "orders")
			s.one("purge", s.purge(&belfryv1.PurgeQueueRequest{Queue: "orders"}, answered))
			s.acks("p0")
			return s.run()
		}},
		{"a queue was deleted and came again", func(s *story) *Run {
			s.puts("x", "orders", 0)
			s.takes("x", "orders")
			s.one("delete", s.deleteQueue("orders", answered))
			s.acks("x")
			s.puts("x", "orders", 0)
			s.takes("x again", "orders")
			s.acks("x again")
			return s.run()
		}},
		{"a queue was paused, and jobs were put meanwhile", func(s *story) *Run {
			s.configure("orders", 1, fsm.Settings{Paused: true})
			s.puts("held", "orders", 0)
			s.takes("none", "orders")
			s.wait(time.Minute)
			s.configure("orders", 2, fsm.Settings{})
			s.takes("held", "orders")
			s.acks("held")
			run := s.run()
			run.Healed = time.Millisecond
			return run
		}},
		{"jobs expired, and became dead letters", func(s *story) *Run {
			s.configure("orders", 1, fsm.Settings{ExpireToDead: true})
			for _, queue := range []string{"orders", "mail"} {
				req := text(queue, "brief", "x")
				req.Ttl = durationpb.New(time.Second)
				s.one("put in "+queue, s.put(req, answered))
			}
			s.wait(2 * time.Second)
			s.takes("none", "orders")
			s.takes("none", "mail")
			s.one("redrive", s.redrive(&belfryv1.RedriveRequest{Queue: "orders", Max: 10}, answered))
			s.takes("brief", "orders")
			s.acks("brief")
			return s.run()
		}},
	}
}

func oddLimits() []oddity {
	return []oddity{
		{"an outage, after which jobs were spread and dropped", func(s *story) *Run {
			s.configure("orders", 1, fsm.Settings{Overdue: fsm.SpreadOverdue, OverduePeriod: time.Minute,
				OverdueAfter: time.Second})
			s.configure("mail", 1, fsm.Settings{Overdue: fsm.DropOverdue, OverdueAfter: time.Second})
			for i := range 20 {
				s.puts(fmt.Sprint("o", i), "orders", time.Duration(i+1)*time.Second)
				s.puts(fmt.Sprint("m", i), "mail", time.Duration(i+1)*time.Second)
			}
			s.wait(10 * time.Second)
			for _, sh := range s.shards {
				s.elect(sh)
			}
			for range 40 {
				s.takes("any", "orders")
				s.takes("other", "mail")
				s.wait(2 * time.Second)
			}
			s.getQueue("mail")
			return s.run()
		}},
		{"more puts than a queue takes in a second", func(s *story) *Run {
			s.configure("orders", 1, fsm.Settings{PutsPerSecond: 3, MaxBytes: 100})
			for i := range 20 {
				s.puts(fmt.Sprint("p", i), "orders", 0)
			}
			s.wait(2 * time.Second)
			s.puts("late", "orders", 0)
			return s.run()
		}},
		{"a limit of jobs under way", func(s *story) *Run {
			s.configure("orders", 1, fsm.Settings{MaxInFlight: 2})
			for i := range 4 {
				s.puts(fmt.Sprint("p", i), "orders", 0)
			}
			for i := range 4 {
				s.takes(fmt.Sprint("p", i), "orders")
			}
			s.acks("p0")
			s.takes("p3", "orders")
			return s.run()
		}},
		{"more jobs due at once than one step moves", func(s *story) *Run {
			for range 6 {
				batch := &belfryv1.PutBatchRequest{}
				for range 1000 {
					batch.Jobs = append(batch.Jobs, &belfryv1.PutRequest{Queue: "orders",
						When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Second)}})
				}
				s.one("batch", s.putBatch(batch, answered))
			}
			first := int64(-5)
			s.wait(2 * time.Second)
			s.one("put first", s.put(&belfryv1.PutRequest{Queue: "orders", Id: "first", Priority: &first}, answered))
			for range 10 {
				s.one("reserve", s.reserve(&belfryv1.ReserveRequest{Queues: []string{"orders"}, MaxJobs: 700}, answered, nil))
			}
			s.expire(s.shardOf("orders"))
			return s.run()
		}},
	}
}

func oddClusters() []oddity {
	return []oddity{
		{"a lease lapsed, and was reserved again; the first holder extended over a leader change", func(s *story) *Run {
			s.puts("x", "orders", 0)
			s.takesFor("x", "orders", 300*time.Millisecond)
			s.wait(250 * time.Millisecond)
			s.elect(s.shardOf("orders"))
			s.wait(200 * time.Millisecond) // the lease would be over without the new leader's grace
			s.one("extend", s.extend(&belfryv1.ExtendRequest{Lease: s.leases["x"]}, answered))
			s.wait(2 * time.Second)
			s.takes("x again", "orders")
			s.acks("x")
			s.acks("x again")
			return s.run()
		}},
		{"a node gave back what a caller that had left was granted", func(s *story) *Run {
			s.puts("x", "orders", 0)
			s.one("left", s.reserve(&belfryv1.ReserveRequest{Queues: []string{"orders"}}, unheard, nil))
			sh := s.shardOf("orders")
			r := sh.machine.Answer(&fsm.ListQuery{Queue: "orders", State: fsm.Reserved, Max: 1}, 0)
			s.log(sh, []*fsm.Request{{Commands: []fsm.Command{
				&fsm.Release{Ref: fsm.Ref{Queue: "orders", Serial: r.Jobs[0].Serial, Fence: r.Jobs[0].Fence}}}}})
			s.takes("x", "orders")
			s.acks("x")
			return s.run()
		}},
		{"a clock far ahead of a minority, and shard time ahead by the bound", func(s *story) *Run {
			s.puts("x", "orders", time.Second)
			s.wait(800 * time.Millisecond)
			ahead := 240 * time.Millisecond
			s.now += ahead
			c := s.put(text("orders", "y", "y"), answered)
			s.commit()
			s.takes("x", "orders")
			run := s.run()
			since := c.op.Invoked
			for i := range run.Journals {
				for k := range run.Journals[i].Entries {
					if e := &run.Journals[i].Entries[k]; e.At > s.labTime(since) {
						e.At -= fsm.Time(ahead)
					}
				}
			}
			for _, o := range run.History.Ops() {
				if o.Invoked >= since {
					o.Invoked, o.Returned = o.Invoked-ahead, o.Returned-ahead
				}
			}
			run.Clocks = []Clock{{Node: "n2", From: 0, To: time.Hour, Least: time.Minute, Most: time.Hour}}
			return run
		}},
		{"a node whose clock was an hour ahead 20 s ago reads as it is", func(s *story) *Run {
			return s.readsAhead(20 * time.Second)
		}},
	}
}

func oddEnds() []oddity {
	return []oddity{
		{"a shard's clock was set back", func(s *story) *Run {
			s.puts("x", "orders", time.Second)
			sh := s.shardOf("orders")
			s.log(sh, []*fsm.Request{{Commands: []fsm.Command{&fsm.ResetClock{To: s.stamp() - fsm.Time(500*time.Millisecond),
				Grace: time.Second}}}})
			s.wait(2 * time.Second)
			s.takes("x", "orders")
			s.acks("x")
			return s.run()
		}},
		{"a node was sent a snapshot, and another was never up", func(s *story) *Run {
			s.plain()
			run := s.run()
			run.Journals = run.Journals[:1]
			last := run.Journals[0].Entries[len(run.Journals[0].Entries)-3:]
			run.Journals = append(run.Journals, Journal{Node: "n2", Entries: slices.Clone(last)}, Journal{Node: "n3"})
			return run
		}},
		{"a shard was taken from a node and came back to it", func(s *story) *Run {
			s.plain()
			run := s.run()
			for _, e := range slices.Clone(run.Journals[0].Entries) {
				e.Opening++
				run.Journals[0].Entries = append(run.Journals[0].Entries, e)
			}
			return run
		}},
		{"a call over several queues takes from the first that has a job", func(s *story) *Run {
			q := []string{"orders", "o2", "o3"}
			for i, name := range []string{"o3", "o2", "o3"} {
				s.lab.shards = s.lab.shards[:1]
				s.puts(fmt.Sprint("p", i), name, 0)
			}
			for range 4 {
				s.one("reserve", s.reserve(&belfryv1.ReserveRequest{Queues: q, MaxJobs: 2}, answered, nil))
			}
			run := s.run()
			run.Journals = slices.DeleteFunc(run.Journals, func(j Journal) bool { return len(j.Entries) == 0 })
			return run
		}},
		{"all was drained", func(s *story) *Run {
			s.plain()
			s.wait(time.Minute)
			run := s.run()
			run.Healed, run.Drained = s.now-40*time.Second, s.now
			run.Elections = []Election{{Node: "n1", Group: "shard-0", Term: 1},
				{Node: "n1", Group: "shard-0", Term: 1}, {Node: "n2", Group: "shard-0", Term: 2}}
			run.Flips = Flips{Injected: 5, Noticed: 3, Unread: 2}
			run.Removals = []Removal{{Node: "n9", From: time.Second}}
			return run
		}},
		{"the whole story", func(s *story) *Run { return newStory(s.t).ends() }},
	}
}

// readsAhead is a run in which a node answers that a job is ready, some time after its clock was an
// hour ahead; the job is due in a minute.
func (s *story) readsAhead(since time.Duration) *Run {
	s.puts("x", "orders", since+time.Minute)
	put := s.now
	s.wait(since)
	s.read("orders", &belfryv1.GetRequest{Queue: "orders", Id: "x", Stale: true},
		func(m *machine.Machine, w *belfryv1.Witness) proto.Message {
			r := m.Answer(&fsm.JobQuery{Queue: "orders", ID: "x"}, s.stamp()+fsm.Time(time.Hour))
			return &belfryv1.GetResponse{Job: wireJob(&r.Jobs[0]), Witness: w, Stale: true, AsOf: w.GetTime()}
		})
	s.wait(time.Minute)
	s.takes("x", "orders")
	s.acks("x")
	run := s.run()
	run.Clocks = []Clock{{Node: "n2", From: 0, To: put, Least: time.Minute, Most: time.Hour}}
	return run
}

// TestReadAheadForTooLong checks that a node has to follow its clock back.
func TestReadAheadForTooLong(t *testing.T) {
	s := &story{lab: newLab(t, 2, 5), ops: map[string]*history.Op{}, leases: map[string]string{}}
	violations := Check(s.readsAhead(clockBack + time.Second)).Violations
	if len(violations) != 1 || violations[0].Invariant != "I34" {
		t.Errorf("the check says %+v", violations)
	}
}

// labTime is a time since the start of the run as a true time.
func (l *lab) labTime(d time.Duration) fsm.Time {
	return fsm.Time(l.history.Start.UnixNano()) + fsm.Time(d)
}

// TestOdd checks that what is odd and legal is valid.
func TestOdd(t *testing.T) {
	for _, odd := range oddities() {
		s := &story{lab: newLab(t, 2, 5), ops: map[string]*history.Op{}, leases: map[string]string{}}
		run := odd.live(s)
		began := time.Now()
		v := Check(run)
		t.Logf("%8s %s", time.Since(began).Round(10*time.Microsecond), odd.name)
		for _, x := range v.Violations {
			t.Errorf("%s: %s at %.3fs: %s", odd.name, x.Invariant, x.At, x.Text)
		}
	}
}

// TestShortWaits are not counted as looked at: no wake-up that was lost could show there.
func TestShortWaits(t *testing.T) {
	s := &story{lab: newLab(t, 1, 1), ops: map[string]*history.Op{}, leases: map[string]string{}}
	s.wait(2 * recovery)
	s.puts("x", "orders", 0)
	s.takes("x", "orders")
	v := Check(s.run())
	for _, c := range v.Checks {
		if c.Invariant == "I11" && c.Looked != 1 || c.Invariant == "I12" && c.Looked != 0 {
			t.Errorf("%s looked at %d", c.Invariant, c.Looked)
		}
	}
}
