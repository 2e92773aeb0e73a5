package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belfrydb/belfry/jepsen/network"
)

// momentFaults end a process at a moment that is chosen by what it does, or by what it takes.
func momentFaults() []Fault {
	return []Fault{
		{Number: 21, Name: "kill-at-answer", What: "one node killed exactly before or after an answer to a client passes, " +
			"again and again", Inject: killAtAnswer},
		{Number: 23, Name: "memory-cap", What: "one node gets hardly more memory than it has, and needs more",
			Inject: memoryCap},
	}
}

// ambush waits at the links between clients and a node for an answer, and kills the node there.
type ambush struct {
	node string
	kill func()
	// after says that the answer passes first. Otherwise the node dies before the answer passes, and
	// the connection breaks.
	after bool
	// left is how many pieces of answers pass before the one that counts.
	left   atomic.Int64
	once   sync.Once
	struck chan struct{}
}

// hear is what a tap calls.
func (a *ambush) hear(p network.Passage) network.Verdict {
	if !p.Answer || p.Passed != a.after || a.left.Add(-1) > 0 {
		return network.Pass
	}
	a.once.Do(func() {
		a.kill()
		a.struck <- struct{}{}
	})
	if a.after {
		return network.Pass
	}
	return network.Break // also what the dead node had sent to others
}

// killAtAnswer ambushes one node at the answers to all clients, for as long as it is held.
func killAtAnswer(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	s = s.apart()
	heal := background(ctx, func(held context.Context) error {
		for held.Err() == nil {
			a := &ambush{node: n.Name, kill: n.KillSoon, after: s.Rand.IntN(2) == 0, struck: make(chan struct{}, 1)}
			a.left.Store(int64(1 + s.Rand.IntN(20)))
			s.ambush(held, a)
			n.Kill()
			if err := n.Start(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return n.Name + " killed at answers to clients", heal, nil
}

// ambush has one node die at an answer, or gives up when ctx ends.
func (s *Scene) ambush(ctx context.Context, a *ambush) {
	tapped := map[string]bool{}
	again := time.NewTicker(tapPause)
	defer again.Stop()
	for {
		for _, client := range s.clients() { // some may have begun only now
			if !tapped[client] {
				tapped[client] = true
				defer s.Network.Tap(client, a.node, a.hear)()
			}
		}
		select {
		case <-again.C:
		case <-a.struck:
			when := "before"
			if a.after {
				when = "after"
			}
			s.Count("killed "+when+" an answer passed", 1)
			return
		case <-ctx.Done():
			return
		}
	}
}

// tapPause is the time between two looks for clients that are new.
const tapPause = 100 * time.Millisecond

const (
	// memoryLittle is how much more memory a capped node may get at most: the runtime takes its heap
	// in pieces of 4 MiB.
	memoryLittle = 8 << 20
	// hungry is how many at a time have a capped node read huge bodies: without them the heap that it
	// has may do.
	hungry = 8
)

// memoryCap bounds the memory that a node can write to, and has it need more. A process of Go that
// gets none ends.
func memoryCap(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	n.MayEnd()
	more := uint64(s.Rand.Int64N(memoryLittle))
	before, err := capMemory(n.PID(), more)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", n.Name, err)
	}
	crowd, seed := s.intruders(n), s.Rand.Uint64()
	fed := background(ctx, func(ctx context.Context) error {
		var all sync.WaitGroup
		for i := range hungry {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			all.Go(func() { crowd.SendHugeBodies(ctx, random) })
		}
		all.Wait()
		return nil
	})
	return fmt.Sprintf("%s gets %d bytes more than it has, and reads huge bodies", n.Name, more),
		func(ctx context.Context) error {
			defer n.MustLive()
			err := fed(ctx)
			if !n.Running() {
				s.Count("nodes that ended for want of memory", 1)
				return errors.Join(err, n.Start(ctx))
			}
			s.Count("nodes that went on with little memory", 1)
			if liftErr := unix.Prlimit(n.PID(), unix.RLIMIT_DATA, &before, nil); liftErr != nil && n.Running() {
				return fmt.Errorf("lifting the limit of memory of %s: %w", n.Name, liftErr)
			}
			return errors.Join(err, n.Start(ctx))
		}, nil
}

// capMemory lets a process have so much more memory that it can write to than it has, and returns
// the limit before. Memory that is only reserved, as the runtime of Go reserves it by the gigabyte,
// does not count.
func capMemory(pid int, more uint64) (before unix.Rlimit, err error) {
	if err := unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &before); err != nil {
		return before, fmt.Errorf("asking for the limit of memory: %w", err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return before, fmt.Errorf("asking for the memory of a process: %w", err)
	}
	var has uint64
	_, after, _ := strings.Cut(string(status), "\nVmData:")
	if _, err := fmt.Sscanf(after, "%d kB", &has); err != nil {
		return before, fmt.Errorf("reading the memory of a process: %w", err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: has<<10 + more, Max: before.Max}, nil); err != nil {
		return before, fmt.Errorf("limiting the memory: %w", err)
	}
	return before, nil
}
