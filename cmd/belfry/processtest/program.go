// Package processtest runs real servers as processes, for tests that stop, kill and freeze them,
// and keeps the ledger of the jobs that they put and take meanwhile.
package processtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Program is the command, built when it is first needed. The zero value is ready; Remove must be
// called at the end.
type Program struct {
	once      sync.Once
	dir, path string
	err       error
	addresses Addresses
}

// Path builds the command, at the first call, and returns where it is.
func (p *Program) Path() (string, error) {
	p.once.Do(func() {
		if p.dir, p.err = os.MkdirTemp("", "belfry-processtest"); p.err != nil {
			return
		}
		p.path = filepath.Join(p.dir, "belfry")
		//nolint:noctx // as long as the compiler takes
		build := exec.Command("go", "build", "-o", p.path, "github.com/belfrydb/belfry/cmd/belfry")
		if out, err := build.CombinedOutput(); err != nil {
			p.err = fmt.Errorf("building the server: %w\n%s", err, out)
		}
	})
	return p.path, p.err
}

// Use has a command run that was built before, such as an older release. It comes before all else.
func (p *Program) Use(path string) { p.once.Do(func() { p.path = path }) }

// Run runs the command and returns what it wrote to standard output. The error has what it wrote to
// standard error.
func (p *Program) Run(ctx context.Context, args ...string) (string, error) {
	path, err := p.Path()
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), fmt.Errorf("belfry %q: %w: %s", args, err, exit.Stderr)
	}
	return string(out), err
}

// Remove removes what was built.
func (p *Program) Remove() error {
	if p.dir == "" {
		return nil
	}
	return os.RemoveAll(p.dir)
}
