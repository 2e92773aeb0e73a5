package nemesis

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belfrydb/belfry/jepsen/lab"
	"github.com/belfrydb/belfry/jepsen/network"
)

// momentFaults end a process at a moment that is chosen by what it does, or by what it takes.
func momentFaults() []Fault {
	return []Fault{
		{Number: 21, Name: "kill-at-answer", What: "one node killed exactly before or after an answer to a client passes, again and again", Inject: killAtAnswer},
		{Number: 23, Name: "memory-cap", What: "one node gets hardly more memory than it has", Inject: memoryCap},
	}
}

// ambush waits at the links between clients and a node for an answer, and kills the node there.
type ambush struct {
	node string
	kill func()
	// after says that the answer passes first. Else nobody hears it: the node dies before it passes, and the connection breaks.
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
	heal := background(ctx, func(ctx context.Context) error {
		going := context.WithoutCancel(ctx)
		for ctx.Err() == nil {
			a := &ambush{node: n.Name, kill: n.KillSoon, after: s.Rand.IntN(2) == 0, struck: make(chan struct{}, 1)}
			a.left.Store(int64(1 + s.Rand.IntN(20)))
			s.ambush(ctx, a)
			n.Kill()
			if err := n.Start(going); err != nil {
				return err
			}
		}
		return nil
	})
	return n.Name + " killed at answers to clients", heal, nil
}

// ambush has one node die at an answer, or gives up when ctx ends.
func (s *Scene) ambush(ctx context.Context, a *ambush) {
	tapped := map[string]bool{lab.Harness: true}
	again := time.NewTicker(tapPause)
	defer again.Stop()
	for {
		for _, client := range s.Clients() { // some may have begun only now
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

// memoryLittle is how much more memory a capped node may get at most: the runtime takes its heap in pieces of 64 MiB.
const memoryLittle = 96 << 20

// addressSpace returns how much address space a process has.
func addressSpace(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("asking for the memory of a node: %w", err)
	}
	var pages uint64
	if _, err := fmt.Sscan(string(text), &pages); err != nil {
		return 0, fmt.Errorf("reading the memory of a node from %q: %w", text, err)
	}
	return pages * uint64(os.Getpagesize()), nil
}

// memoryCap bounds the address space of a node. A process of Go that gets no memory ends; a node that had enough goes on.
func memoryCap(_ context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	has, err := addressSpace(n.PID())
	if err != nil {
		return "", nil, err
	}
	n.MayEnd()
	var before unix.Rlimit
	if err := unix.Prlimit(n.PID(), unix.RLIMIT_AS, nil, &before); err != nil {
		return "", nil, fmt.Errorf("asking for the limit of memory of %s: %w", n.Name, err)
	}
	more := uint64(s.Rand.Int64N(memoryLittle))
	if err := unix.Prlimit(n.PID(), unix.RLIMIT_AS, &unix.Rlimit{Cur: has + more, Max: before.Max}, nil); err != nil {
		return "", nil, fmt.Errorf("limiting the memory of %s: %w", n.Name, err)
	}
	return fmt.Sprintf("%s gets %d bytes more than the %d it has", n.Name, more, has), func(ctx context.Context) error {
		defer n.MustLive()
		if !n.Running() {
			s.Count("nodes that ended for want of memory", 1)
			return n.Start(ctx)
		}
		s.Count("nodes that went on with little memory", 1)
		if err := unix.Prlimit(n.PID(), unix.RLIMIT_AS, &before, nil); err != nil && n.Running() {
			return fmt.Errorf("lifting the limit of memory of %s: %w", n.Name, err)
		}
		return n.Start(ctx)
	}, nil
}
