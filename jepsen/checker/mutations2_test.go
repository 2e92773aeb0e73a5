package checker

import (
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/availability"
	"github.com/belfrydb/belfry/jepsen/checker/finding"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/node/journal"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func mutatedLeases() []mutation {
	stale := func(s *story) { s.answers("ack late", &belfryv1.AckResponse{Witness: s.ops["ack late"].Witness}) }
	return []mutation{
		{"a stale ack was taken", 16, stale},
		{"a stale ack was taken, says the second opinion", finding.SecondOpinion, stale},
		{"a live lease was called stale", 18, func(s *story) {
			s.refuses("ack late again", belfryv1.Reason_REASON_STALE_LEASE,
				response[*belfryv1.AckResponse](s, "ack late again").GetWitness())
		}},
		{"a lease was shorter than was asked for", 18, func(s *story) {
			j := s.job("reserve a")
			j.LeaseUntil = later(j.LeaseUntil, -time.Second)
		}},
		{"another length of lease was asked for", 18, func(s *story) {
			s.ops["reserve a"].Request.(*belfryv1.ReserveRequest).Ttr = durationpb.New(time.Hour)
		}},
		{"an extension was cut short", 18, func(s *story) {
			resp := response[*belfryv1.ExtendResponse](s, "extend")
			resp.LeaseUntil = later(resp.LeaseUntil, -time.Second)
		}},
		{"the delay of a nack was cut short", 24, func(s *story) {
			resp := response[*belfryv1.NackResponse](s, "nack poor")
			resp.DueAt = later(resp.DueAt, -300*time.Millisecond)
		}},
		{"another delay was asked for", 24, func(s *story) {
			s.ops["nack poor"].Request.(*belfryv1.NackRequest).Delay = durationpb.New(time.Hour)
		}},
		{"a nack said to be dead was not", 36, func(s *story) {
			response[*belfryv1.NackResponse](s, "nack poor").State = belfryv1.JobState_JOB_STATE_DEAD
		}},
		{"an ack of another job", 36, func(s *story) {
			s.ops["ack first"].Request.(*belfryv1.AckRequest).Lease = s.leases["second"]
		}},
		{"a release is answered with the witness of an ack", 36, func(s *story) {
			response[*belfryv1.ReleaseResponse](s, "release").Witness = response[*belfryv1.AckResponse](s, "ack a").Witness
		}},
		{"an attempt was skipped, says the second opinion", finding.SecondOpinion, func(s *story) {
			s.job("reserve calm again").Attempt = 5
		}},
	}
}

func mutatedQueues() []mutation {
	return []mutation{
		{"a put into a full queue was said to be done", 37, func(s *story) {
			resp := proto.Clone(s.ops["put only"].Response).(*belfryv1.PutResponse)
			resp.Id, resp.Witness = "too many", s.ops["put too many"].Witness
			s.answers("put too many", resp)
		}},
		{"another reason was told", 36, func(s *story) {
			s.ops["put too many"].Reason = belfryv1.Reason_REASON_RATE_LIMITED
		}},
		{"another state was cancelled", 36, func(s *story) {
			response[*belfryv1.CancelResponse](s, "cancel").State = belfryv1.JobState_JOB_STATE_READY
		}},
		{"another job was cancelled", 23, func(s *story) {
			s.ops["cancel"].Request.(*belfryv1.CancelRequest).Id = "postponed"
		}},
		{"more jobs were redriven than told", 24, func(s *story) {
			response[*belfryv1.RedriveResponse](s, "redrive").Moved = 0
		}},
		{"a reschedule to another time", 24, func(s *story) {
			s.ops["reschedule"].Request.(*belfryv1.RescheduleRequest).When = &belfryv1.RescheduleRequest_Delay{
				Delay: durationpb.New(time.Hour)}
		}},
		{"counters are off", 33, func(s *story) { response[*belfryv1.GetQueueResponse](s, "get queue").Queue.Totals.Acks++ }},
		{"counts are off", 33, func(s *story) {
			response[*belfryv1.GetQueueResponse](s,
				"get queue").Queue.Counts.Delayed++
		}},
		{"a read of another state", 34, func(s *story) {
			response[*belfryv1.GetResponse](s, "get").Job.State = belfryv1.JobState_JOB_STATE_DEAD
		}},
		{"a read of another body", 34, func(s *story) {
			response[*belfryv1.GetResponse](s, "get").Job.Body = &belfryv1.Job_Text{Text: "other"}
		}},
		{"a list leaves a job out", 34, func(s *story) {
			resp := response[*belfryv1.ListResponse](s, "list")
			resp.Jobs = nil
		}},
		{"a list shows a job that is not", 34, func(s *story) {
			resp := response[*belfryv1.ListResponse](s, "list")
			resp.Jobs = append(resp.Jobs, resp.Jobs[0])
			resp.Jobs[1] = proto.Clone(resp.Jobs[0]).(*belfryv1.Job)
			resp.Jobs[1].Id = "never"
		}},
		{"an old read", 34, func(s *story) {
			o := s.ops["get queue"]
			o.Invoked, o.Returned = s.now, s.now+time.Millisecond
		}},
		{"a job that was put is said not to be there", 34, func(s *story) {
			s.history.Add(&history.Op{
				Client: "reader", Node: "n1", Invoked: s.ops["get"].Invoked, Returned: s.ops["get"].Returned,
				Outcome: belfryv1.Outcome_OUTCOME_NOT_APPLIED,
				Reason:  belfryv1.Reason_REASON_JOB_NOT_FOUND, Request: &belfryv1.GetRequest{Queue: "orders", Id: "seen"},
			})
		}},
		{"a partition in two shards", 30, func(s *story) {
			other := s.shards[1-s.shardOf("orders").number]
			put := loggedPut(&belfryv1.PutRequest{Queue: "orders", Id: "there"})
			s.log(other, []*fsm.Request{{Commands: []fsm.Command{put}}})
		}},
	}
}

func mutatedTimes() []mutation {
	return []mutation{
		{"shard time went back", 9, func(s *story) {
			w := response[*belfryv1.PutResponse](s, "put seen").Witness
			w.Time = later(w.Time, -time.Minute)
		}},
		{"shard time ahead of true time", 10, func(s *story) {
			s.everywhere(response[*belfryv1.PutResponse](s, "put seen").Witness, func(e *journal.Entry) {
				e.At -= fsm.Time(time.Second)
			})
		}},
		{"a job came to a client before it was due", 10, func(s *story) {
			o := s.ops["reserve seen"]
			o.Invoked, o.Returned = o.Invoked-time.Hour, o.Returned-time.Hour
		}},
		{"a job came late", 11, func(s *story) {
			s.ends().Healed = time.Millisecond
			s.ops["reserve waited for"].Invoked -= 19 * time.Second
		}},
		{"a wake-up was lost", 12, func(s *story) {
			s.ends().Healed = time.Millisecond
			s.history.Add(&history.Op{
				Client: "waiter", Node: "n1", Invoked: s.ops["put waited for"].Returned,
				Returned: s.ops["reserve waited for"].Invoked,
				Request:  &belfryv1.ReserveRequest{Queues: []string{"orders"}, Wait: durationpb.New(20 * time.Second)},
				Response: &belfryv1.ReserveResponse{},
				Outcome:  belfryv1.Outcome_OUTCOME_APPLIED,
			})
		}},
		{"a wake-up was lost for as long as clients of the workload wait", 12, func(s *story) {
			s.ends().Healed = time.Millisecond
			began := s.ops["put waited for"].Returned + recovery
			s.history.Add(&history.Op{
				Client: "waiter", Node: "n1", Invoked: began, Returned: began + 4*time.Second,
				Request:  &belfryv1.ReserveRequest{Queues: []string{"orders"}, Wait: durationpb.New(4 * time.Second)},
				Response: &belfryv1.ReserveResponse{},
				Outcome:  belfryv1.Outcome_OUTCOME_APPLIED,
			})
		}},
		{"the order of calls is not that of the log", 36, func(s *story) {
			o := s.ops["put a"]
			o.Invoked, o.Returned = s.now, s.now+time.Millisecond
		}},
		{"an answer before its call", 36, func(s *story) {
			o := s.ops["ack seen"]
			o.Invoked, o.Returned = 0, time.Millisecond
		}},
	}
}

func mutatedGivens() []mutation {
	return []mutation{
		{"a job was lost: the drain did not get it", 1, func(s *story) {
			s.puts("left", "orders", 0)
			s.wait(time.Minute)
			s.puts("end", "mail", 0)
			s.ends().Drained = s.now
		}},
		{"two leaders in a term", 29, func(s *story) {
			s.ends().Elections = []Election{{Node: "n1", Group: "shard-0", Term: 4},
				{Node: "n2", Group: "shard-1", Term: 4}, {Node: "n2", Group: "shard-0", Term: 4}}
		}},
		{"a node that was removed answered", 31, func(s *story) {
			s.ends().Removals = []Removal{{Node: "n1", From: time.Second}}
		}},
		{"a flipped bit was not noticed", 32, func(s *story) { s.ends().Flips = Flips{Injected: 10, Noticed: 8, Unread: 1} }},
		{"a shard did not come back in time", 35, func(s *story) {
			s.ends().Probes = []Probe{{Name: "shard 0 serves", Took: 11 * time.Second, Limit: 10 * time.Second}}
		}},
		{"a queue was not served by a node that a fault spared", 39, func(s *story) { // more of these in availability_test.go
			put := s.ops["put a"]
			put.Workload = availability.Workload
			struck := put.Returned + time.Millisecond
			s.history.AddStatus(history.Status{Node: put.Node, Asked: put.Invoked, Answered: put.Returned})
			s.history.Add(&history.Op{
				Client: "prober", Node: put.Node, Workload: availability.Workload, Invoked: struck + 6*time.Second,
				Returned: struck + 7*time.Second,
				Request:  put.Request, Outcome: belfryv1.Outcome_OUTCOME_NOT_APPLIED,
			})
			s.ends().Strikes = []availability.Strike{{Name: "lost", From: struck, Began: struck, Struck: struck,
				Healing: struck + 10*time.Second, To: struck + 10*time.Second, Healthy: []string{put.Node}}}
		}},
		{"replicas did not converge", 35, func(s *story) {
			s.ends().Probes = []Probe{{Name: "digests are equal", Failure: "they are not"}}
		}},
	}
}

// TestMutations tells each lie by itself: the check that claims it must find it. The table has how
// long that took.
func TestMutations(t *testing.T) {
	all := mutations()
	if len(all) < 35 {
		t.Errorf("%d mutations are too few", len(all))
	}
	claimed := map[finding.Invariant]bool{}
	for _, m := range all {
		s := newStory(t)
		m.lie(s)
		began := time.Now()
		v := Check(s.ends())
		took := time.Since(began)
		var by []string
		for _, c := range v.Checks {
			if c.Violations > 0 {
				by = append(by, c.Invariant)
			}
			claimed[m.claims] = claimed[m.claims] || c.Violations > 0 && c.Invariant == m.claims.String()
		}
		t.Logf("%-10s %-70s %8s, by %s", m.claims, m.name, took.Round(10*time.Microsecond), strings.Join(by, " "))
		if !caughtBy(&v, m.claims) {
			t.Errorf("%s: %v did not find it", m.name, m.claims)
		}
	}
	for i, title := range finding.Titles() {
		if !claimed[i] && i != 26 { // a snapshot is taken by the checker itself: see TestSnapshotDiffers
			t.Errorf("%v (%s) found no lie", i, title[0])
		}
	}
}

func caughtBy(v *Verdict, i finding.Invariant) bool {
	for _, c := range v.Checks {
		if c.Invariant == i.String() && c.Violations > 0 {
			return true
		}
	}
	return false
}

// TestSnapshotDiffers has the copy that was restored from a snapshot be another machine.
func TestSnapshotDiffers(t *testing.T) {
	s := newStory(t)
	c := newCheck(s.ends())
	c.merge()
	l := c.shards[0]
	l.found = c.found
	c.decode(l)
	m := copies{machine: machine.New(fsm.Config{Seed: 1}), twin: machine.New(fsm.Config{Seed: 2}), left: tailEntries}
	other := codec.AppendEntry(nil, 7, [][]byte{codec.AppendRequest(nil,
		&fsm.Request{Commands: []fsm.Command{&fsm.Open{Queue: "x", Partitions: 1}}})})
	if _, err := m.twin.Apply(1, other); err != nil {
		t.Fatal(err)
	}
	e := &l.entries[0]
	results, err := m.machine.Apply(e.Index, e.data)
	if err != nil {
		t.Fatal(err)
	}
	for k := range results {
		l.commands[e.first+k].Result = results[k]
	}
	c.checkDigest(l, &m, e)
	if v := c.verdict(); !caughtBy(&v, 26) {
		t.Errorf("it was not found: %v", v.Violations)
	}
}
