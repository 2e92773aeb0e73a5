package nemesis

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/jepsen/lab"
)

func processFaults() []Fault {
	return []Fault{
		{Number: 17, Name: "kill-one", What: "SIGKILL to one node",
			Inject: killSome(func(s *Scene) ([]*lab.Node, error) { return s.several(1) })},
		{Number: 17, Name: "kill-majority", What: "SIGKILL to two of three nodes at once",
			Inject: killSome(func(s *Scene) ([]*lab.Node, error) { return s.several(len(s.Lab.Running())/2 + 1) })},
		{Number: 17, Name: "kill-all", What: "SIGKILL to every node at once",
			Inject: killSome(func(s *Scene) ([]*lab.Node, error) { return s.several(len(s.Lab.Running())) })},
		{Number: 18, Name: "kill-leader", What: "SIGKILL to the node that leads most", Inject: killLeader},
		{Number: 18, Name: "kill-catalog-leader", What: "SIGKILL to the node that leads the catalog, and carries out tasks",
			Inject: killCatalogLeader},
		{Number: 19, Name: "pause-leader", What: "SIGSTOP to the node that leads most", Inject: pauseLeader},
		{Number: 19, Name: "pause-one", What: "SIGSTOP to one node", Inject: pauseSome(1)},
		{Number: 19, Name: "pause-all", What: "SIGSTOP to every node", Inject: pauseAll},
		{Number: 20, Name: "restart", What: "SIGTERM to one node, and a start", Inject: restart},
		{Number: 20, Name: "restart-rolling", What: "every node stopped and started, one after the other",
			Inject: restartRolling},
		{Number: 22, Name: "starve", What: "one node gets the processor for a tenth of the time only", Inject: starve},
		{Number: 24, Name: "no-files", What: "one node can open no further file or connection", Inject: noFiles},
		{Number: 25, Name: "crash-loop", What: "one node killed again and again, as soon as it serves or before",
			Inject: crashLoop},
	}
}

func killSome(whom func(*Scene) ([]*lab.Node, error)) func(context.Context, *Scene) (string, Heal, error) {
	return func(_ context.Context, s *Scene) (string, Heal, error) {
		nodes, err := whom(s)
		if err != nil {
			return "", nil, err
		}
		s.spares(names(nodes)...)
		for _, n := range nodes {
			n.KillSoon()
		}
		for _, n := range nodes {
			n.Kill()
		}
		return "killed " + namesOf(nodes), func(ctx context.Context) error { return lab.Start(ctx, nodes) }, nil
	}
}

func killLeader(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.Lab.Leader(ctx)
	if err != nil {
		return "", nil, err
	}
	s.spares(n.Name)
	n.Kill()
	return "killed " + n.Name, n.Start, nil
}

func killCatalogLeader(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.Lab.CatalogLeader(ctx)
	if err != nil {
		return "", nil, err
	}
	s.spares(n.Name)
	n.Kill()
	return "killed " + n.Name, n.Start, nil
}

// stopped sends SIGSTOP to nodes and returns what lets them go on.
func stopped(nodes ...*lab.Node) (Heal, error) {
	for _, n := range nodes {
		if err := n.Signal(syscall.SIGSTOP); err != nil {
			return nil, err
		}
	}
	return func(context.Context) error {
		var problems []error
		for _, n := range nodes {
			problems = append(problems, n.Signal(syscall.SIGCONT))
		}
		return errors.Join(problems...)
	}, nil
}

func pauseLeader(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.Lab.Leader(ctx)
	if err != nil {
		return "", nil, err
	}
	s.spares(n.Name)
	heal, err := stopped(n)
	return "paused " + n.Name, heal, err
}

func pauseSome(count int) func(context.Context, *Scene) (string, Heal, error) {
	return func(_ context.Context, s *Scene) (string, Heal, error) {
		nodes, err := s.several(count)
		if err != nil {
			return "", nil, err
		}
		s.spares(names(nodes)...)
		heal, err := stopped(nodes...)
		return "paused " + namesOf(nodes), heal, err
	}
}

func pauseAll(ctx context.Context, s *Scene) (string, Heal, error) {
	return pauseSome(len(s.Lab.Running()))(ctx, s)
}

func restart(_ context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	s.spares(n.Name)
	if err := n.Stop(); err != nil {
		return "", nil, err
	}
	return "stopped " + n.Name, n.Start, nil
}

func restartRolling(ctx context.Context, s *Scene) (string, Heal, error) {
	nodes := s.Lab.Running()
	for _, n := range nodes {
		if err := n.Stop(); err != nil {
			return "", nil, err
		}
		if err := n.Start(ctx); err != nil {
			return "", nil, err
		}
		pause(ctx, s.between(0, time.Second))
	}
	return "stopped and started " + namesOf(nodes), healed, nil
}

// healed is for faults that are over when they were injected.
func healed(context.Context) error { return nil }

// background runs what a fault does while it is held; healing waits for its end.
func background(ctx context.Context, act func(context.Context) error) Heal {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- act(ctx) }()
	return func(context.Context) error {
		cancel()
		return <-ended
	}
}

func starve(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	const slice = 20 * time.Millisecond
	return "starved " + n.Name, background(ctx, func(ctx context.Context) error {
		for {
			if err := n.Signal(syscall.SIGSTOP); err != nil {
				return err
			}
			more := pause(ctx, 9*slice)
			if err := n.Signal(syscall.SIGCONT); err != nil || !more || !pause(ctx, slice) {
				return err
			}
		}
	}), nil
}

func noFiles(_ context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	n.MayEnd() // a node that cannot write to its disk must end
	const few = 16
	before, err := n.LimitFiles(few)
	if err != nil {
		return "", nil, err
	}
	return "no further files for " + n.Name, func(ctx context.Context) error {
		defer n.MustLive()
		if n.Running() {
			if _, err := n.LimitFiles(before); err != nil && n.Running() {
				return err
			}
		}
		return n.Start(ctx)
	}, nil
}

func crashLoop(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	early := s.Rand.IntN(2) == 0
	delay := s.between(50*time.Millisecond, 500*time.Millisecond)
	heal := background(ctx, func(held context.Context) error {
		for held.Err() == nil {
			n.Kill()
			s.Count("kills in crash loops", 1)
			if early {
				// Killed before it serves: the start ends with an error, which is what was wanted.
				go func() { _ = n.Start(held) }()
			} else if err := n.Start(ctx); err != nil {
				return err
			}
			pause(held, delay)
		}
		n.Kill()
		return nil
	})
	return fmt.Sprintf("killed %s again and again (early: %v)", n.Name, early), func(ctx context.Context) error {
		return errors.Join(heal(ctx), n.Start(ctx))
	}, nil
}
