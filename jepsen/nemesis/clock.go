package nemesis

import (
	"context"
	"fmt"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/jepsen/lab"
)

// ClockError is a span of time in which a node's clock was wrong, by between Least and Most.
type ClockError struct {
	Node        string
	From, To    time.Duration
	Least, Most time.Duration
}

// ClockBook keeps how wrong clocks were.
type ClockBook struct {
	mu     sync.Mutex
	errors []ClockError
}

// Errors returns what was kept.
func (b *ClockBook) Errors() []ClockError {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]ClockError(nil), b.errors...)
}

func (b *ClockBook) add(e ClockError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errors = append(b.errors, e)
}

func clockFaults() []Fault {
	return []Fault{
		{Number: 40, Name: "clock-forward", What: "one node's clock steps forward, by up to an hour", Inject: stepClock(1)},
		{Number: 41, Name: "clock-back", What: "one node's clock steps back, by up to an hour", Inject: stepClock(-1)},
		{Number: 42, Name: "clock-strobe", What: "one node's clock jumps to and fro", Inject: strobeClock},
		{Number: 43, Name: "clock-drift", What: "one node's clock runs up to a tenth too fast or too slow",
			Inject: driftClock},
		{Number: 44, Name: "suspend", What: "one node stands still, and its monotonic clock misses that time",
			Inject: suspend},
		{Number: 45, Name: "clock-skew-transfer", What: "the clocks of all nodes are wrong by less than half the bound, " +
			"and leaderships move between them", Inject: skewTransfer},
	}
}

// wrongBy returns by how much a clock is to be wrong: a few milliseconds as often as minutes.
func (s *Scene) wrongBy() time.Duration {
	return time.Duration(float64(10*time.Millisecond) * math.Exp2(18.4*s.Rand.Float64())) // up to an hour
}

// wrong sets the clock of a node wrong and returns what sets it right.
func (s *Scene) wrong(n *lab.Node, off time.Duration) Heal {
	from := s.Now()
	n.Clock.Set(off, 0)
	return func(context.Context) error {
		n.Clock.Reset()
		s.Clocks.add(ClockError{Node: n.Name, From: from, To: s.Now(), Least: min(off, 0), Most: max(off, 0)})
		return nil
	}
}

func stepClock(sign time.Duration) func(context.Context, *Scene) (string, Heal, error) {
	return func(_ context.Context, s *Scene) (string, Heal, error) {
		n, err := s.anyone()
		if err != nil {
			return "", nil, err
		}
		off := sign * s.wrongBy()
		return fmt.Sprintf("the clock of %s is wrong by %v", n.Name, off), s.wrong(n, off), nil
	}
}

func strobeClock(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	off, every := s.wrongBy(), s.between(time.Millisecond, 300*time.Millisecond)
	from := s.Now()
	heal := background(ctx, func(ctx context.Context) error {
		for {
			n.Clock.Set(off, 0)
			more := pause(ctx, every)
			n.Clock.Reset()
			if !more || !pause(ctx, every) {
				return nil
			}
		}
	})
	return fmt.Sprintf("the clock of %s jumps by %v every %v", n.Name, off, every), func(ctx context.Context) error {
		err := heal(ctx) // it jumps until then
		s.Clocks.add(ClockError{Node: n.Name, From: from, To: s.Now(), Most: off})
		return err
	}, nil
}

func driftClock(_ context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	rate := (s.Rand.Float64() - 0.5) / 5
	from := s.Now()
	n.Clock.Set(0, rate)
	return fmt.Sprintf("the clock of %s gains %.1f ms a second", n.Name, rate*1000), func(context.Context) error {
		n.Clock.Reset()
		to := s.Now()
		off := time.Duration(rate * float64(to-from))
		s.Clocks.add(ClockError{Node: n.Name, From: from, To: to, Least: min(off, 0), Most: max(off, 0)})
		return nil
	}, nil
}

func suspend(_ context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	from := s.Now()
	if err := n.Signal(syscall.SIGSTOP); err != nil {
		return "", nil, err
	}
	return "suspended " + n.Name, func(context.Context) error {
		n.Clock.Miss(s.Now() - from)
		return n.Signal(syscall.SIGCONT)
	}, nil
}

// skewMost is the most by which every clock may be wrong at once: half the clock bound is where
// promises end, and stamps have to travel.
const skewMost = 100 * time.Millisecond

func skewTransfer(ctx context.Context, s *Scene) (string, Heal, error) {
	text := "clocks wrong by"
	var heals []Heal
	for _, n := range s.Lab.Running() {
		off := s.between(-skewMost, skewMost)
		heals = append(heals, s.wrong(n, off))
		text += fmt.Sprintf(" %s %v", n.Name, off.Round(time.Millisecond))
	}
	storm := background(ctx, s.apart().transferStorm)
	return text, func(ctx context.Context) error {
		err := storm(ctx)
		for _, h := range heals {
			_ = h(ctx) // it sets a clock right, which cannot fail
		}
		return err
	}, nil
}
