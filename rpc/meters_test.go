package rpc

import (
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func TestMetersForget(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	m := newMeters(func() time.Time { return now })
	for i := range metersMax {
		m.put("q"+itoa(i), 1)
	}
	if m.put("one too many", 1); m.rates("one too many") != nil {
		t.Error("there is no bound")
	}
	now = now.Add(59 * time.Second)
	if m.rates("q7") == nil {
		t.Error("forgotten within the minute")
	}
	now = now.Add(2 * time.Second)
	if m.rates("q7") != nil {
		t.Error("remembered after a minute")
	}
	if m.put("new", 1); m.rates("new") == nil || len(m.queues) != 1 {
		t.Errorf("%d queues", len(m.queues))
	}
}

func TestMetersLateness(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	m := newMeters(func() time.Time { return now })
	for i := range 100 {
		m.grants([]fsm.Grant{{Queue: "a", Attempt: 1, Due: 1000}}, fsm.Time(1000+time.Duration(i)*time.Millisecond))
	}
	m.grants([]fsm.Grant{{Queue: "c", Attempt: 2}, {Queue: "c", Attempt: 2}, {Queue: "a", Attempt: 2, Due: 1}, {Queue: "c", Attempt: 2}}, fsm.Time(time.Hour))
	got := m.lateness("a")
	if got.GetJobs() != 100 || got.GetP50().AsDuration() != 64*time.Millisecond || got.GetP99().AsDuration() != 99*time.Millisecond || got.GetMax().AsDuration() != 99*time.Millisecond {
		t.Errorf("%v", got)
	}
	if a, c := m.rates("a"), m.rates("c"); a.GetReservesPerSecond() != 101.0/60 || c.GetReservesPerSecond() != 3.0/60 || m.lateness("c") != nil {
		t.Errorf("%v, %v", a, c)
	}
	if strings.Contains(m.rates("a").String(), "puts") || m.lateness("b") != nil {
		t.Errorf("%v", m.rates("a"))
	}
}

// TestRepeatsAreNotHandedOutAgain: jobs that a repeat of a Reserve collects were counted before, and are not late by the time
// between the two.
func TestRepeatsAreNotHandedOutAgain(t *testing.T) {
	s := serve(t)
	q := s.server.handler.queues
	for name, queues := range map[string][]string{
		"one shard": {s.queueIn(1, "a")}, "two shards": {s.queueIn(0, "b"), s.queueIn(2, "c")},
	} {
		last := queues[len(queues)-1]
		if got := s.post("/v1/put", `{"queue":"`+last+`"}`); got.status != 200 {
			t.Fatal(got.body)
		}
		for range 3 {
			res, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: queues, RequestId: name})
			if err != nil || len(res.GetJobs()) != 1 {
				t.Fatalf("%s: %v, %v", name, res, err)
			}
		}
		if got := q.meters.rates(last).GetReservesPerSecond(); got != 1.0/60 || q.meters.lateness(last).GetJobs() != 1 {
			t.Errorf("%s: %v jobs per second, lateness %v", name, got, q.meters.lateness(last))
		}
	}
}
