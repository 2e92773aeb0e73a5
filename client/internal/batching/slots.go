package batching

import (
	"runtime"
	"sync"
	"time"
)

// Limits bound the batches of one kind.
type Limits struct {
	// InFlight is how many batches may be in flight at a time.
	InFlight int
	// MaxCalls is the largest batch.
	MaxCalls int
}

// A Source has the calls of one kind, and makes batches of them.
type Source struct {
	Limits Limits
	// Mu guards the calls. The slots hold it when they call Pending and Take.
	Mu *sync.Mutex
	// Gate is the gate that the batches pass. Nil: none, because a batch waits at the server and would
	// hold up a round, or because Delay has held it back already.
	Gate *Gate
	// Waits is set for batches that wait at the server. A further one leaves also for half as many
	// calls as the last one had. As such a batch may take long, no timer runs for the calls behind it.
	Waits bool
	// Start runs f in a goroutine. It returns false, and does not, if there is to be no more work.
	Start func(f func()) bool
	// Pending returns how many calls are in no batch.
	Pending func() int
	// Take makes a batch of pending calls. It returns the function that sends the batch, and how many
	// calls that are: 0 if no caller waits any more.
	Take func() (send func(), calls int)
	// Delay, if not nil, waits for further calls before each batch.
	Delay func()
	// Expected, if not nil, returns how many calls can be expected to leave together.
	Expected func() int
	// Ended, if not nil, is called after a slot has ended.
	Ended func()
}

// Slots send the batches of one source. Each slot is a goroutine that sends one batch after the
// other until no call is pending, or until another slot will take the rest. All methods are called
// with Source.Mu held.
type Slots struct {
	source Source

	inFlight int // slots that run
	last     lastBatch
	timer    *time.Timer // calls overdue; nil until it is first needed
	armed    bool        // the timer is set
}

// lastBatch describes the batch that was sent last.
type lastBatch struct {
	calls  int
	sentAt time.Time
}

// NewSlots returns the slots of a source.
func NewSlots(source Source) *Slots { return &Slots{source: source} }

// Expect starts a slot, or sets the timer, if one more call than those pending needs that. It
// returns false if there is to be no more work; the call must not become pending then.
func (s *Slots) Expect() bool {
	if s.source.mayLeave(s.inFlight, s.source.Pending()+1, s.last) {
		return s.start()
	}
	s.armTimer()
	return true
}

// Running returns how many slots run.
func (s *Slots) Running() int { return s.inFlight }

// start starts a slot. Called with Mu held.
func (s *Slots) start() bool {
	if !s.source.Start(s.run) {
		return false
	}
	s.inFlight++
	return true
}

// mayLeave reports whether a batch of pending calls may leave while inFlight others are in flight.
// The answers of a batch wake its callers together, and most call again at once. If a second slot
// took some of those calls, every later batch would stay small. So a further batch leaves only when
// it is full, or when the last one has been out for HoldMax: its shard may have no leader. For
// batches that wait at the server, half the size of the last one is enough.
func (s *Source) mayLeave(inFlight, pending int, last lastBatch) bool {
	switch {
	case pending <= 0 || inFlight == 0:
		return pending > 0
	case inFlight >= s.Limits.InFlight:
		return false
	case pending >= s.Limits.MaxCalls || time.Since(last.sentAt) > HoldMax:
		return true
	default:
		return s.Waits && pending >= last.calls/2
	}
}

// GateMinCalls is the smallest batch that passes the gate. Fewer calls would lose more time there
// than they save.
const GateMinCalls = 8

// gateMaxAge is how long after the last batch its callers are expected to call again.
const gateMaxAge = time.Second

// passesGate reports whether a batch of pending calls passes the gate. A full batch leaves at once.
// The size of the last batch counts too: some of its callers are about to call again.
func (s *Source) passesGate(pending int, last lastBatch) bool {
	if s.Gate == nil || pending <= 0 || pending >= s.Limits.MaxCalls {
		return false
	}
	calls := pending
	if time.Since(last.sentAt) <= gateMaxAge {
		calls = max(calls, last.calls)
	}
	if s.Expected != nil {
		calls = max(calls, s.Expected())
	}
	return calls >= GateMinCalls
}

// run holds one slot.
func (s *Slots) run() {
	round := uint64(0)
	for {
		// The answers of a batch wake its callers, which often call again at once. They run first, so
		// that the next batch has their calls instead of being nearly empty.
		runtime.Gosched()
		if s.source.Delay != nil {
			s.source.Delay()
		}
		round = s.passGate(round)
		send := s.next()
		if send == nil {
			s.leaveGate(round)
			if s.source.Ended != nil {
				s.source.Ended()
			}
			return
		}
		send()
	}
}

// passGate ends a batch's part in a round of the gate. If the next batch passes the gate, passGate
// waits for the round that it leaves with and returns its number, else 0.
func (s *Slots) passGate(round uint64) uint64 {
	s.source.Mu.Lock()
	passes := s.source.passesGate(s.source.Pending(), s.last)
	s.source.Mu.Unlock()
	if passes {
		return s.source.Gate.Pass(round)
	}
	s.leaveGate(round)
	return 0
}

// leaveGate ends a batch's part in a round, 0 for none.
func (s *Slots) leaveGate(round uint64) {
	if s.source.Gate != nil {
		s.source.Gate.Leave(round)
	}
}

// next makes the next batch, and returns what sends it. If there is none, or if another slot will
// take the calls, next gives the slot back and returns nil.
func (s *Slots) next() (send func()) {
	s.source.Mu.Lock()
	defer s.source.Mu.Unlock()
	pending := s.source.Pending()
	if !s.source.mayLeave(s.inFlight-1, pending, s.last) {
		if s.inFlight--; pending > 0 {
			s.armTimer() // the other slot may take too long
		}
		return nil
	}
	send, calls := s.source.Take()
	if calls == 0 {
		s.inFlight--
		return nil
	}
	s.last = lastBatch{calls, time.Now()}
	return send
}

// armTimer calls overdue when the last batch has been out for longer than HoldMax, if a slot is
// free then. A batch that waits at the server may take longer. Called with Mu held.
func (s *Slots) armTimer() {
	if s.armed || s.source.Waits || s.inFlight >= s.source.Limits.InFlight {
		return
	}
	s.armed = true
	left := HoldMax - time.Since(s.last.sentAt) + 1
	if s.timer == nil {
		s.timer = time.AfterFunc(left, s.overdue)
		return
	}
	s.timer.Reset(left)
}

// overdue sends calls that were held back for a batch that takes too long.
func (s *Slots) overdue() {
	s.source.Mu.Lock()
	defer s.source.Mu.Unlock()
	s.armed = false
	pending := s.source.Pending()
	switch {
	case pending <= 0 || s.inFlight == 0:
	case s.source.mayLeave(s.inFlight, pending, s.last):
		s.start()
	default:
		s.armTimer() // another batch left in the meantime
	}
}
