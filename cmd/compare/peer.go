package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// A peer is a queue with the settings that it is compared with.
type peer struct {
	name string
	// keeps says what is on disk once a put is answered.
	keeps string
	// program is what must be installed, pack the Debian package that has it.
	program, pack string
	// delays says whether it has delays at all.
	delays bool
	start  func(ctx context.Context, s *stage) (*running, error)
}

// running is a peer whose servers run.
type running struct {
	version   string
	processes []*process
	// caller returns a new caller of a kind. Callers of kind shared have one client between them.
	caller func(ctx context.Context, kind kind) (caller, error)
	// close ends what callers share. May be nil.
	close func()
}

// kind is how callers talk to a peer; most peers have one way only.
type kind int

const (
	// own is a connection for each caller.
	own kind = iota
	// shared is one client library for all callers, which may make batches of what they ask for at a time.
	shared
)

// A caller makes one call after the other.
type caller interface {
	// put adds jobs in one batch.
	put(ctx context.Context, bodies [][]byte, delay time.Duration) error
	// take takes up to so many jobs in one batch and finishes them, and calls seen with the body of each as soon as it is there. It waits up to wait for a first one.
	take(ctx context.Context, most int, wait time.Duration, seen func(body []byte)) (int, error)
	close() error
}

// allPeers returns the peers in the order of the tables.
func allPeers() []peer {
	return append(append(append(belfryPeers(), redisPeers()...), beanstalkdPeers()...), natsPeers()...)
}

func peerNames() []string {
	var names []string
	for _, p := range allPeers() {
		names = append(names, p.name)
	}
	return names
}

// lacking returns an error that names the programs that are missing, and how to install them.
func lacking(peers []peer) error {
	var errs []error
	told := map[string]bool{}
	for _, p := range peers {
		if p.program == "" || told[p.program] {
			continue
		}
		if _, err := exec.LookPath(p.program); err != nil {
			told[p.program] = true
			errs = append(errs, fmt.Errorf("%s is missing; on Debian: apt-get install %s", p.program, p.pack))
		}
	}
	return errors.Join(errs...)
}
