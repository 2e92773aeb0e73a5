package rpc

import (
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
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
		m.grant(&fsm.Grant{Queue: "a", Attempt: 1, Due: 1000}, fsm.Time(1000+time.Duration(i)*time.Millisecond))
	}
	m.grant(&fsm.Grant{Queue: "a", Attempt: 2, Due: 1}, fsm.Time(time.Hour))
	got := m.lateness("a")
	if got.GetJobs() != 100 || got.GetP50().AsDuration() != 64*time.Millisecond || got.GetP99().AsDuration() != 99*time.Millisecond || got.GetMax().AsDuration() != 99*time.Millisecond {
		t.Errorf("%v", got)
	}
	if strings.Contains(m.rates("a").String(), "puts") || m.lateness("b") != nil {
		t.Errorf("%v", m.rates("a"))
	}
}
