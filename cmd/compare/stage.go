package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// stage is where servers run, one peer at a time.
type stage struct {
	settings
	temporary []string // removed at the end
	data      string
	last      int
	versions  map[string]string // of the peers, by name
}

// newStage makes the directory for the servers' data, and builds Belfry if it was not given.
func newStage(ctx context.Context, set settings) (*stage, error) {
	s := &stage{settings: set, versions: map[string]string{}}
	var err error
	if s.data, err = os.MkdirTemp(set.dir, "belfry-compare-"); err != nil {
		return nil, fmt.Errorf("making a directory for the servers: %w", err)
	}
	s.temporary = append(s.temporary, s.data)
	if s.belfry == "" {
		s.belfry = filepath.Join(s.data, "belfry")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", s.belfry, "github.com/belfrydb/belfry/cmd/belfry").CombinedOutput(); err != nil {
			s.close()
			return nil, fmt.Errorf("building Belfry: %w\n%s", err, out)
		}
	}
	if s.belfry, err = filepath.Abs(s.belfry); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stage) close() {
	for _, dir := range s.temporary {
		_ = os.RemoveAll(dir) // it is a temporary one
	}
}

// newDir returns a directory that does not exist yet.
func (s *stage) newDir(name string) string {
	s.last++
	return filepath.Join(s.data, fmt.Sprintf("%s-%d", name, s.last))
}

// play has all peers do all works, by turns: what the machine does besides meets each of them.
func (s *stage) play(ctx context.Context, peers []peer, works []work) ([]sample, error) {
	var samples []sample
	for round := range s.rounds {
		for _, w := range works {
			for n := range peers {
				p := peers[(n+round)%len(peers)] // nobody is always the first
				if w.delays && !p.delays {
					continue
				}
				some, err := s.one(ctx, p, w)
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				if err != nil {
					some = []sample{{Phase: failedPhase, Failed: err.Error()}}
				}
				for i := range some {
					some[i].Round, some[i].Work, some[i].Peer = round, w.name, p.name
					fmt.Fprintln(os.Stderr, some[i])
				}
				samples = append(samples, some...)
			}
		}
	}
	if s.json == "" {
		return samples, nil
	}
	text, err := json.MarshalIndent(samples, "", "\t")
	if err != nil {
		return nil, err
	}
	return samples, os.WriteFile(s.json, append(text, '\n'), 0o600)
}

// settle is how long a server that has started is left alone before it is measured.
const settle = 300 * time.Millisecond

// one has one peer do one work, with new servers.
func (s *stage) one(ctx context.Context, p peer, w work) (samples []sample, err error) {
	r, err := p.start(ctx, s)
	if r != nil {
		defer func() {
			if r.close != nil {
				r.close()
			}
			for _, one := range r.processes {
				one.kill()
			}
			err = errors.Join(err, s.clean())
		}()
	}
	if err != nil {
		return nil, err
	}
	s.versions[p.name] = r.version
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return w.do(ctx, r, s.settings)
}

// clean removes the data of servers that are gone.
func (s *stage) clean() error {
	dirs, err := filepath.Glob(filepath.Join(s.data, "*-*"))
	for _, dir := range dirs {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}
