package checker

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/access"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// tenancy is a short legal run of a cluster that asks every caller for its identity. Its calls have
// names, as those of a story have.
type tenancy struct {
	*story
	roots  []access.Root
	faults []Span
	clocks []Clock
	bodies int
}

// administered adds a call of an operator that no shard's log has.
func (s *tenancy) administered(name string, req, resp proto.Message) *history.Op {
	o := &history.Op{Client: "operator", Node: "n1", Workload: "lab", Token: "root", Invoked: s.now,
		Returned: s.now + time.Millisecond, Request: req, Response: resp, Outcome: belfryv1.Outcome_OUTCOME_APPLIED}
	s.ops[name] = o
	s.history.Add(o)
	s.now += 2 * time.Millisecond
	return o
}

// creates makes a token, which lasts as long as is said, or for ever.
func (s *tenancy) creates(id string, ttl time.Duration, scopes ...string) {
	record := &belfryv1.Token{Id: id, Scopes: scopes}
	if ttl > 0 {
		record.NotAfter = exact(s.stamp().Add(ttl))
	}
	s.administered("create "+id, &belfryv1.CreateTokenRequest{Scopes: scopes},
		&belfryv1.CreateTokenResponse{Record: record})
}

// limited sets the quota of the first tenant.
func (s *tenancy) limited(name string, jobs, bytes, leases uint64) {
	req := &belfryv1.SetNamespaceRequest{Name: "a", MaxJobs: &jobs, MaxBytes: &bytes, MaxInFlight: &leases}
	s.administered(name, req, &belfryv1.SetNamespaceResponse{Namespace: &belfryv1.Namespace{Name: "a", MaxJobs: jobs,
		MaxBytes: bytes, MaxInFlight: leases}})
}

// putsAs puts a job with a token, as a fate has it.
func (s *tenancy) putsAs(token, name, queue string, f fate) *history.Op {
	s.bodies++
	req := &belfryv1.PutRequest{Queue: queue, Body: &belfryv1.PutRequest_Text{Text: fmt.Sprintf("%010d", s.bodies)},
		RequestId: "put-" + name}
	c := s.put(req, f)
	c.op.Token = token
	return s.one("put "+name, c)
}

// refusedAs has a put be turned away.
func (s *tenancy) refusedAs(token, name, queue string, why belfryv1.Reason) *history.Op {
	o := s.putsAs(token, name, queue, refused)
	o.Reason = why
	return o
}

// takesAs reserves jobs with a token.
func (s *tenancy) takesAs(token, name, queue string, most uint32) *history.Op {
	req := &belfryv1.ReserveRequest{Queues: []string{queue}, MaxJobs: most, RequestId: "take-" + name}
	c := s.reserve(req, answered, func(j *belfryv1.Job) { s.leases[name] = j.GetLease() })
	c.op.Token = token
	return s.one("reserve "+name, c)
}

// acksAs acks a job with a token.
func (s *tenancy) acksAs(token, name string) *history.Op {
	c := s.ack(&belfryv1.AckRequest{Lease: s.leases[name], RequestId: "ack-" + name}, answered)
	c.op.Token = token
	return s.one("ack "+name, c)
}

// batchAs puts jobs in one call.
func (s *tenancy) batchAs(token, name, queue string, n int) *history.Op {
	req := &belfryv1.PutBatchRequest{RequestId: "batch-" + name}
	for range n {
		s.bodies++
		req.Jobs = append(req.Jobs, &belfryv1.PutRequest{Queue: queue,
			Body: &belfryv1.PutRequest_Text{Text: fmt.Sprintf("%010d", s.bodies)}})
	}
	c := s.putBatch(req, answered)
	c.op.Token = token
	return s.one("batch "+name, c)
}

// newTenancy tells how two tenants share a cluster. The first may have four jobs, of ten bytes, and
// two leases.
func newTenancy(t testing.TB) *tenancy {
	s := &tenancy{
		story: &story{lab: newLab(t, 2, 5), ops: map[string]*history.Op{}, leases: map[string]string{}},
		roots: []access.Root{
			{ID: "root"},
			{ID: "old root", Ending: 500 * time.Millisecond, Ended: time.Second},
		}, faults: []Span{},
	}
	s.creates("ta", 0, "put,consume:a/*")
	s.creates("tb", 0, "put,consume:b/*", "view:a/1")
	s.creates("short", 10*time.Second, "put:a/*")
	s.limited("limit", 4, 40, 2)
	s.wait(5 * time.Second)
	s.putsAs("short", "in time", "a/1", answered)
	s.putsAs("ta", "one", "a/1", answered)
	s.putsAs("ta", "two", "a/2", answered)
	s.putsAs("tb", "other", "b/1", answered)
	s.takesAs("ta", "one", "a/1", 1)
	s.acksAs("ta", "one")
	s.batchAs("ta", "pair", "a/1", 2)
	s.takesAs("ta", "two", "a/2", 1)
	s.takesAs("tb", "other", "b/1", 1)
	s.acksAs("tb", "other")
	s.putsAs("root", "root's", "b/1", answered)
	s.refusedAs("", "nobody's", "a/1", belfryv1.Reason_REASON_UNAUTHENTICATED)
	s.refusedAs("tx", "stranger's", "a/1", belfryv1.Reason_REASON_UNAUTHENTICATED)
	s.refusedAs("tb", "neighbour's", "a/1", belfryv1.Reason_REASON_FORBIDDEN)
	s.refusedAs("ta", "too many", "a/1", belfryv1.Reason_REASON_QUOTA)
	s.wait(10 * time.Second)
	s.refusedAs("short", "too late", "a/1", belfryv1.Reason_REASON_UNAUTHENTICATED)
	s.administered("delete tb", &belfryv1.DeleteTokenRequest{Id: "tb"}, &belfryv1.DeleteTokenResponse{})
	s.refusedAs("tb", "ended", "b/1", belfryv1.Reason_REASON_UNAUTHENTICATED)
	s.acksAs("ta", "two")
	s.putsAs("ta", "last", "a/2", answered)
	return s
}

// judged is what the checker says of it.
func (s *tenancy) judged() Verdict {
	run := s.run()
	run.Secured, run.Roots, run.Faults, run.Clocks = true, s.roots, s.faults, s.clocks
	return Check(run)
}

// TestTenancy: it is legal, and nothing of it was left out.
func TestTenancy(t *testing.T) {
	s := newTenancy(t)
	v := s.judged()
	complain(t, &v)
	if v.Counts["calls without a good token"] != 4 || v.Counts["calls that their token did not allow"] != 1 {
		t.Errorf("it counted %v", v.Counts)
	}
}

// TestTenancyLies has I37 find what must not be: wrong callers and wrong amounts.
func TestTenancyLies(t *testing.T) {
	for name, lie := range map[string]func(s *tenancy){
		"no token":               func(s *tenancy) { s.ops["put one"].Token = "" },
		"a token that never was": func(s *tenancy) { s.ops["put one"].Token = "tx" },
		"a forged token":         func(s *tenancy) { s.ops["put one"].Forged = true },
		"an expired token":       func(s *tenancy) { s.ops["put last"].Token = "short" },
		"a deleted token":        func(s *tenancy) { s.putsAs("tb", "after", "b/1", answered) },
		"a deleted token at another node": func(s *tenancy) {
			s.wait(4 * time.Second)
			s.putsAs("tb", "after", "b/1", answered).Node = "n2"
		},
		"a root token that was taken away": func(s *tenancy) { s.ops["put root's"].Token = "old root" },
		"the other tenant's token":         func(s *tenancy) { s.ops["put one"].Token = "tb" },
		"a job handed to the other tenant": func(s *tenancy) { s.ops["reserve one"].Token = "tb" },
		"an ack by the other tenant":       func(s *tenancy) { s.ops["ack one"].Token = "tb" },
		"a batch of the other tenant's":    func(s *tenancy) { s.ops["batch pair"].Token = "tb" },
		"an operator's call by a tenant":   func(s *tenancy) { s.ops["limit"].Token = "ta" },
		"settings seen are not allowed": func(s *tenancy) {
			s.ops["put other"].Request.(*belfryv1.PutRequest).Queue = "a/1"
		},
		"it took effect and nobody heard":   func(s *tenancy) { s.putsAs("tx", "unheard", "b/1", unheard) },
		"its neighbour's, and nobody heard": func(s *tenancy) { s.putsAs("ta", "unheard", "b/1", unheard) },
		"a stranger hears of quotas": func(s *tenancy) {
			s.ops["put stranger's"].Reason = belfryv1.Reason_REASON_QUOTA
		},
		"an ended token is told its scopes": func(s *tenancy) {
			s.ops["put ended"].Reason = belfryv1.Reason_REASON_FORBIDDEN
		},
		"a good token is turned away": func(s *tenancy) {
			s.ops["put too many"].Reason = belfryv1.Reason_REASON_UNAUTHENTICATED
		},
		"a scope is forgotten": func(s *tenancy) { s.ops["put too many"].Reason = belfryv1.Reason_REASON_FORBIDDEN },
		"two jobs, and one may be under way": func(s *tenancy) {
			s.putsAs("ta", "more", "a/2", answered)
			s.putsAs("ta", "still more", "a/2", answered)
		},
		"too many after the quota was low": func(s *tenancy) {
			s.limited("lower", 2, 40, 2)
			s.wait(4 * time.Second)
			s.putsAs("ta", "more", "a/2", answered)
			s.putsAs("ta", "still more", "a/2", answered)
		},
		"a byte too many": func(s *tenancy) {
			s.limited("raise", 99, 40, 2)
			for i := range 4 { // of which some may be under way
				s.putsAs("ta", fmt.Sprint("more", i), "a/2", answered)
			}
		},
		"a lease too many": func(s *tenancy) {
			s.takesAs("ta", "first", "a/1", 1)
			s.takesAs("ta", "second", "a/1", 1)
			s.takesAs("ta", "third", "a/1", 1)
		},
	} {
		s := newTenancy(t)
		lie(s)
		if v := s.judged(); !caughtBy(&v, 37) {
			t.Errorf("%s: I37 did not find it", name)
		}
	}
}

// TestTenancyOdd lives through what is unusual and allowed.
func TestTenancyOdd(t *testing.T) {
	for name, live := range map[string]func(s *tenancy){
		"another node has not heard yet that a token ended": func(s *tenancy) {
			s.faults = append(s.faults, Span{s.now - time.Second, s.now + time.Minute})
			s.wait(20 * time.Second)
			s.putsAs("tb", "unaware", "b/1", answered).Node = "n2"
		},
		"another node has not heard yet of a token": func(s *tenancy) {
			s.creates("fresh", 0, "put:b/*")
			s.refusedAs("fresh", "fresh", "b/1", belfryv1.Reason_REASON_UNAUTHENTICATED).Node = "n2"
		},
		"a call was under way when its token ended": func(s *tenancy) {
			s.administered("delete ta", &belfryv1.DeleteTokenRequest{Id: "ta"}, &belfryv1.DeleteTokenResponse{})
			s.ops["delete ta"].Invoked, s.ops["delete ta"].Returned = s.ops["put last"].Invoked, s.ops["put last"].Returned
		},
		"nobody knows whether a token was ended": func(s *tenancy) {
			o := s.administered("delete ta", &belfryv1.DeleteTokenRequest{Id: "ta"}, nil)
			o.Response, o.Outcome = nil, belfryv1.Outcome_OUTCOME_UNKNOWN
			s.refusedAs("ta", "perhaps", "a/1", belfryv1.Reason_REASON_UNAUTHENTICATED)
		},
		"a token ends later": func(s *tenancy) {
			s.administered("delete ta", &belfryv1.DeleteTokenRequest{Id: "ta", After: durationpb.New(time.Minute)},
				&belfryv1.DeleteTokenResponse{})
			s.wait(10 * time.Second)
			s.takesAs("ta", "still", "a/2", 1)
		},
		"a clock that is slow keeps a token for longer": func(s *tenancy) {
			s.clocks = append(s.clocks, Clock{Node: "n1", From: 0, To: time.Hour, Least: -time.Minute})
			s.ops["put too late"].Reason = belfryv1.Reason_REASON_QUOTA
		},
		"one batch too many in each shard": func(s *tenancy) {
			s.takesAs("ta", "room", "a/2", 1)
			s.acksAs("ta", "room")
			s.batchAs("ta", "large", "a/1", 3)
		},
		"what was there when a quota was lowered": func(s *tenancy) {
			s.limited("lower", 1, 10, 1)
			s.wait(4 * time.Second)
			s.takesAs("ta", "again", "a/2", 1)
			s.acksAs("ta", "again")
		},
		"a quota that was raised":  func(s *tenancy) { s.limited("raise", 9, 90, 9); s.batchAs("ta", "more", "a/1", 4) },
		"a quota that was removed": func(s *tenancy) { s.limited("raise", 0, 0, 0); s.batchAs("ta", "more", "a/1", 40) },
		"a quota that does not hold everywhere yet": func(s *tenancy) {
			s.limited("lower", 1, 10, 1)
			response[*belfryv1.SetNamespaceResponse](s.story, "lower").Namespace.PendingShards = []uint32{1}
			s.wait(time.Minute)
			s.takesAs("ta", "again", "a/2", 1)
			s.acksAs("ta", "again")
			s.putsAs("ta", "more", "a/2", answered)
		},
	} {
		s := newTenancy(t)
		live(s)
		if v := s.judged(); !v.Valid() {
			t.Errorf("%s: %v", name, v.Violations[0])
		}
	}
}

// TestQuietAfter moves a moment out of the faults.
func TestQuietAfter(t *testing.T) {
	c := &check{run: &Run{Faults: []Span{{10, 20}, {22, 30}, {50, 60}}}}
	for at, want := range map[time.Duration]time.Duration{0: 5, 6: 35, 10: 35, 25: 35, 44: 49, 46: 65, 70: 75} {
		if got := c.quietAfter(at, 5); got != want {
			t.Errorf("after %d: %d, should be %d", at, got, want)
		}
	}
	c.run = &Run{Healed: 40}
	if got := c.quietAfter(7, 5); got != 45 {
		t.Errorf("where faults are not known: %d", got)
	}
}
