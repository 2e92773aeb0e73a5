package nemesis

import (
	"context"
	"errors"
	"fmt"

	"github.com/belfrydb/belfry/jepsen/lab"
)

// secretFaults replace the certificates, keys and tokens of nodes and clients in a secured cluster.
// The clients of the workload access rotate their own tokens all the time.
func secretFaults() []Fault {
	faults := []Fault{
		{Number: 53, Name: "rotate-certs", What: "every node gets a new certificate, one after the other, while one is " +
			"dead and started again", Inject: rotateCerts},
		{Number: 53, Name: "rotate-authority", What: "another authority comes beside the old one, issues new " +
			"certificates, and stays alone", Inject: rotateAuthority},
		{Number: 53, Name: "rotate-tokens", What: "the root token is replaced in the files of all nodes while clients " +
			"carry it, and one node is dead meanwhile", Inject: rotateTokens},
	}
	for i := range faults {
		faults[i].NeedsSecrets = true
	}
	return faults
}

// stepwise has nodes read other files in steps. In each a node is dead meanwhile: it reads them
// when it starts, and all its connections are new.
func stepwise(ctx context.Context, s *Scene, what string, steps ...func() error) (string, Heal, error) {
	if err := s.awaitWhole(ctx); err != nil {
		return "", nil, err
	}
	secrets := s.Lab.Secrets()
	if secrets == nil {
		return "", nil, errors.New("the cluster asks nobody who he is; --secured has one that does")
	}
	s = s.apart()
	heal := background(ctx, func(context.Context) error {
		for i, step := range steps {
			if err := step(); err != nil {
				return fmt.Errorf("step %d of the rotation: %w", i+1, err)
			}
			if err := s.reequip(ctx); err != nil {
				return fmt.Errorf("step %d of the rotation: %w", i+1, err)
			}
			pause(ctx, s.Hold/3)
		}
		return nil
	})
	return what, func(ctx context.Context) error { return errors.Join(heal(ctx), s.awaitWhole(ctx)) }, nil
}

func rotateCerts(ctx context.Context, s *Scene) (string, Heal, error) {
	nothing := func() error { return nil } // new certificates are all there is to it
	return stepwise(ctx, s, "new certificates for every node, twice", nothing, nothing)
}

func rotateAuthority(ctx context.Context, s *Scene) (string, Heal, error) {
	secrets := s.Lab.Secrets()
	return stepwise(ctx, s, "the authority replaced, in three steps",
		func() error { return secrets.AddAuthority() }, func() error { return secrets.IssueAnew() }, func() error {
			return secrets.ForgetAuthorities()
		})
}

func rotateTokens(ctx context.Context, s *Scene) (string, Heal, error) {
	secrets := s.Lab.Secrets()
	var root *lab.Root
	text, heal, err := stepwise(ctx, s, "the root token replaced",
		func() (err error) {
			root, err = secrets.AddRoot()
			return err
		},
		func() error {
			secrets.UseRoot(root, s.Now())
			pause(ctx, s.Hold/3) // calls with the old token must still succeed
			secrets.ForgetRoots()
			return nil
		})
	if err != nil {
		return "", nil, err
	}
	return text, func(ctx context.Context) error {
		err := heal(ctx)
		if err == nil {
			secrets.RootsForgotten(s.Now())
		}
		return err
	}, nil
}

// reequip gives all nodes their files anew, one after the other, and returns when each has read
// them, and the dead one has been started.
func (s *Scene) reequip(ctx context.Context) error {
	nodes := s.remaining()
	dead := nodes[s.Rand.IntN(len(nodes))]
	dead.Kill()
	var problems []error
	for _, n := range nodes {
		problems = append(problems, s.reequipOne(ctx, n))
	}
	problems = append(problems, dead.Start(ctx))
	s.Count("times that all nodes read other certificates or root tokens", 1)
	return errors.Join(problems...)
}

// reequipOne gives one node its files anew, and waits until it has read them, if it runs.
func (s *Scene) reequipOne(ctx context.Context, n *lab.Node) error {
	before, err := n.Reequipped()
	if err != nil {
		return err
	}
	if err := n.Reequip(); err != nil {
		return err
	}
	return s.awaitRead(ctx, n, before, n.Reequipped)
}
