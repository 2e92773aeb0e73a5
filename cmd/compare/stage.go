package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/loopback"
	"github.com/belfrydb/belfry/cmd/compare/peer"
)

// stage is where servers run, one peer at a time.
type stage struct {
	settings
	temporary []string // removed at the end
	root      string   // where servers have their directories
	last      int
	addresses loopback.Addresses // of all servers
	commit    string             // from which Belfry was built, "" if it is not known
}

// newStage makes the directory for the servers' data, and builds Belfry if it was not given.
func newStage(ctx context.Context, set settings) (*stage, error) {
	s := &stage{settings: set}
	var err error
	if s.root, err = os.MkdirTemp(set.dir, "belfry-compare-"); err != nil {
		return nil, fmt.Errorf("making a directory for the servers: %w", err)
	}
	s.temporary = append(s.temporary, s.root)
	if s.belfry == "" {
		s.belfry = filepath.Join(s.root, "belfry")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", s.belfry,
			"github.com/belfrydb/belfry/cmd/belfry").CombinedOutput(); err != nil {
			s.close()
			return nil, fmt.Errorf("building Belfry: %w\n%s", err, out)
		}
		if out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil {
			s.commit = strings.TrimSpace(string(out))
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
	return filepath.Join(s.root, fmt.Sprintf("%s-%d", name, s.last))
}

// errMore is the end of an invocation that had no time for everything.
var errMore = errors.New("there is more to do: the same command goes on")

// play makes all peers do all works in turn, so that other work of the machine affects each of
// them. It does not repeat samples that the record has. It writes the record after each peer, and a
// peer that fails does not stop the others.
func (s *stage) play(ctx context.Context, peers []peer.Queue, works []work, all record) (record, error) {
	began := time.Now()
	all.Runs = append(all.Runs, newInvocation(s.settings, s.commit))
	versions := all.Runs[len(all.Runs)-1].Versions
	for round := range s.rounds {
		for _, w := range works {
			for n := range peers {
				p := peers[(n+round)%len(peers)] // no peer is always the first
				if _, ok := w.doneBy(p); !ok || all.has(round, w, p, s.jobs) {
					continue
				}
				if s.budget > 0 && time.Since(began) > s.budget {
					return all, errMore
				}
				version, some := s.samples(ctx, p, w)
				if ctx.Err() != nil {
					return all, context.Cause(ctx)
				}
				if version != "" {
					versions[p.Name] = version
				}
				for i := range some {
					some[i].Round, some[i].Work, some[i].Peer = round, w.name, p.Name
					fmt.Fprintln(os.Stderr, some[i])
				}
				all.Samples = append(all.Samples, some...)
				if s.json == "" {
					continue
				}
				if err := all.write(s.json); err != nil {
					return all, err
				}
			}
		}
	}
	return all, nil
}

// samples has one peer do one work; what fails is a sample as well.
func (s *stage) samples(ctx context.Context, p peer.Queue, w work) (version string, some []sample) {
	version, some, err := s.one(ctx, p, w)
	if err == nil {
		return version, some
	}
	failed := sample{Phase: failedPhase, Failed: oneLine(err.Error())}
	if w.sized {
		failed.Jobs = s.jobs
	}
	return version, []sample{failed}
}

// settle is how long a server that has started is left alone before it is measured.
const settle = 300 * time.Millisecond

// one has one peer do one work, with new servers.
func (s *stage) one(ctx context.Context, p peer.Queue, w work) (version string, samples []sample, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("it is not done after %v", s.limit))
	defer cancel()
	r, err := p.Start(ctx, &peer.Site{Addresses: &s.addresses, NewDir: s.newDir, Program: s.belfry})
	if r != nil {
		defer func() {
			if r.Close != nil {
				r.Close()
			}
			for _, one := range r.Processes {
				one.Kill()
			}
			err = errors.Join(err, s.clean())
		}()
	}
	if err != nil {
		return "", nil, err
	}
	if err := pause(ctx, settle); err != nil {
		return r.Version, nil, err
	}
	samples, err = w.do(ctx, r, s.settings)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err) // connections that are closed say less
	}
	return r.Version, samples, err
}

// clean removes the data of servers that are gone.
func (s *stage) clean() error {
	dirs, err := filepath.Glob(filepath.Join(s.root, "*-*"))
	for _, dir := range dirs {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}
