package checker

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/mirror"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// bridged is the queue of the story that the mirror serves.
const bridged = mirror.Queues + "out"

// offers has a process of Redisson offer a payload.
func (s *story) offers(payload string, delay time.Duration) {
	began := s.now
	s.wait(time.Millisecond)
	s.history.Pass(history.Passage{Client: "r1", Queue: bridged, Payload: []byte(payload),
		Due: s.history.Start.Add(began + delay), Invoked: began, Returned: s.now})
}

// rings has a process of Redisson take a payload from the ready list.
func (s *story) rings(payload string) {
	began := s.now
	s.wait(time.Millisecond)
	s.history.Pass(history.Passage{Client: "r2", Queue: bridged, Payload: []byte(payload), Taken: true, Invoked: began,
		Returned: s.now})
}

// unseen has the mirror do something, which is in no history.
func (s *story) unseen(queue string, c fsm.Command) {
	s.log(s.shardOf(queue), []*fsm.Request{{Commands: []fsm.Command{c}}})
}

// mirrored: Redisson delivers a payload by itself, the mirror brings one to Belfry, and puts one
// from there on the ready list.
func (s *story) mirrored() {
	const control = mirrorControl + "0011"
	s.unseen(control, &fsm.Put{Queue: control, Partitions: 1, ID: "hold"})
	s.offers("alone", 500*time.Millisecond)
	s.wait(500 * time.Millisecond)
	s.rings("alone")
	s.offers("brought", 0)
	s.unseen(bridged, &fsm.Put{Queue: bridged, Partitions: 1, ID: "redisson:1", Body: []byte("brought")})
	s.takes("brought", bridged)
	s.acks("brought")
	s.puts("sent", bridged, 0)
	s.rings("body of sent")
	s.unseen(bridged, &fsm.Cancel{Queue: bridged, ID: "sent"})
}

// passing changes the passage of a payload, of its offer or of its end.
func passing(payload string, taken bool, change func(history.Passage) []history.Passage) func(*story) {
	return func(s *story) {
		s.retell(nil, func(p history.Passage) []history.Passage {
			if string(p.Payload) == payload && p.Taken == taken {
				return change(p)
			}
			return []history.Passage{p}
		})
		s.ends().Drained = s.now
	}
}

// mutatedPassages are lies about what went through Redis.
func mutatedPassages() []mutation {
	twice := func(p history.Passage) []history.Passage { return []history.Passage{p, p} }
	as := func(change func(*history.Passage)) func(history.Passage) []history.Passage {
		return func(p history.Passage) []history.Passage {
			change(&p)
			return []history.Passage{p}
		}
	}
	return []mutation{
		{"a payload that was offered came to nobody", finding.MirrorLost,
			passing("alone", true, func(history.Passage) []history.Passage { return nil })},
		{"a job that was put for Redisson's consumers came to nobody", finding.MirrorLost,
			passing("body of sent", true, func(history.Passage) []history.Passage { return nil })},
		{"a payload was taken twice from the ready list", finding.MirrorTwice, passing("body of sent", true, twice)},
		{"a payload came to both sides", finding.MirrorTwice,
			passing("brought", false, func(p history.Passage) []history.Passage {
				other := p
				other.Taken, other.Returned = true, p.Returned+time.Millisecond
				return []history.Passage{p, other}
			})},
		{"a payload was on the ready list before it was due", finding.MirrorEarly,
			passing("alone", false, as(func(p *history.Passage) { p.Due = p.Due.Add(20 * time.Millisecond) }))},
		{"a job was on the ready list before it was due", finding.MirrorEarly, func(s *story) {
			put := response[*belfryv1.PutResponse](s, "put sent")
			put.DueAt = later(put.GetDueAt(), time.Second)
		}},
		{"a payload was on the list that nobody had brought", finding.MirrorNowhere,
			passing("alone", true, as(func(p *history.Passage) { p.Payload = []byte("alon") }))},
		{"a payload was on the list of another queue", finding.MirrorNowhere,
			passing("alone", true, as(func(p *history.Passage) { p.Queue = mirror.Queues + "in" }))},
	}
}

// TestUnknownOffer: an offer that was not answered may be there or not.
func TestUnknownOffer(t *testing.T) {
	for name, there := range map[string][]history.Passage{"it is": nil, "it is not": {}} {
		s := newStory(t)
		s.retell(nil, func(p history.Passage) []history.Passage {
			p.Unknown = string(p.Payload) == "alone" && !p.Taken
			if there != nil && string(p.Payload) == "alone" && p.Taken {
				return there
			}
			return []history.Passage{p}
		})
		s.wait(time.Minute)
		s.ends().Drained = s.now
		v := Check(s.ends())
		t.Log(name)
		complain(t, &v)
	}
}

// TestWithoutMirror: a job that no client sent is from nowhere in a run without the mirror,
// whatever the name of the queue. The mirror's promises are not among the checks.
func TestWithoutMirror(t *testing.T) {
	s := newStory(t)
	s.retell(nil, func(history.Passage) []history.Passage { return nil })
	v := Check(s.ends())
	if !caughtBy(&v, 2) {
		t.Error("the commands of the mirror were taken for those of clients")
	}
	for _, c := range v.Checks {
		if c.Invariant[0] == 'M' {
			t.Errorf("%s is among the checks", c.Invariant)
		}
	}
}
