package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/client"
)

// A peer is a queue with the settings that it is compared with.
type peer struct {
	name string
	// keeps says what is on disk once a put is answered.
	keeps string
	// program is what must be installed, pack the Debian package that has it.
	program, pack string
	// only names the works that it is there for; nil means all.
	only []string
	// cannot says of works why it cannot do them.
	cannot map[string]string
	// belfry is whether it is Belfry.
	belfry bool
	start  func(ctx context.Context, s *stage) (*running, error)
}

// does reports whether a peer takes part in a work; if it should and cannot, the text says why.
func (p peer) does(w work) (why string, ok bool) {
	if w.belfry && !p.belfry || p.only != nil && !slices.Contains(p.only, w.name) {
		return "", false
	}
	why = p.cannot[w.name]
	return why, why == ""
}

// star is a mark of peers that keep nothing on disk before they answer.
func star(name string) string {
	for _, p := range allPeers() {
		if p.name == name && strings.HasPrefix(p.keeps, "nothing") {
			return "*"
		}
	}
	return ""
}

// running is a peer whose servers run.
type running struct {
	version   string
	processes []*process
	// caller returns a new caller of a kind. Callers of kind shared have one client between them.
	caller func(ctx context.Context, kind kind) (caller, error)
	// sdk is Belfry's client, urls are its nodes; nil of others.
	sdk  *client.Client
	urls []string
	// close ends what callers share. May be nil.
	close func()
}

// kind is how callers talk to a peer; most peers have one way only.
type kind int

const (
	// own is a connection for each caller, without a library that joins calls.
	own kind = iota
	// library is what users of the peer's library get by default: one client for all callers if that
	// is how it is meant to be used, else a connection each.
	library
	// shared is one client library for all callers, which may make batches of what they ask for at a time.
	shared
)

// jobs are what one call puts.
type jobs struct {
	// queue is the number of a queue, from 0 on.
	queue  int
	bodies [][]byte
	// ids are the jobs' names; nil means that the server makes them.
	ids   []string
	delay time.Duration
}

// taking is what one call takes: up to most jobs of a queue. It waits up to wait for a first one.
type taking struct {
	queue, most int
	wait        time.Duration
}

// A caller makes one call after the other.
type caller interface {
	// put adds jobs in one batch.
	put(ctx context.Context, all jobs) error
	// take takes jobs in one batch and finishes them, and calls seen with the body of each as soon as it is there.
	take(ctx context.Context, what taking, seen func(body []byte)) (int, error)
	close() error
}

// errNames is the answer of peers that cannot do it.
var errNames = errors.New("its jobs cannot have ids that the client chose")

// queueName is the name of a queue.
func queueName(number int) string { return fmt.Sprintf("compare-%d", number) }

// allPeers returns the peers in the order of the tables.
func allPeers() []peer {
	return slices.Concat(belfryPeers(), redisPeers(), redissonPeers(), beanstalkdPeers(), natsPeers())
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
