package fsm

import (
	"testing"
	"time"
)

// TestRememberingReusesMemory: the answer to a request is made where the one before was, and stays as it is when others follow.
func TestRememberingReusesMemory(t *testing.T) {
	m := New(Config{})
	m.scalars.Clock = Time(time.Hour)
	answer := func(n int) *Answer {
		return &Answer{Caller: "c", ID: string(rune('a' + n%2000)), At: m.scalars.Clock, Results: make([]Result, 1+n%100)}
	}
	n := 0
	remember := func() {
		n++
		m.remember(answer(n))
	}
	for range 300 {
		remember()
	}
	for k := 1; k <= 300; k++ {
		a := answer(k)
		place := m.answers.find(requestKeyHash(m.cfg.Seed, a.Caller, a.ID), a.Caller, a.ID)
		if place == 0 || string(m.answers.at(place)) != string(appendAnswer(nil, a)) {
			t.Fatalf("request %d is remembered at %d otherwise than it was", k, place)
		}
	}
	if allocs := testing.AllocsPerRun(200, remember); allocs > 4 { // the answer itself, its id and results, and now and then a page
		t.Errorf("%v pieces of memory for an answer", allocs)
	}
}
