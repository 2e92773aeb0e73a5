// Package peer has the queues that Belfry is compared with, and Belfry itself: how to start each of
// them on loopback, and how callers put and take jobs.
package peer

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/loopback"
)

// Queue is a queue with the settings that it is compared with.
type Queue struct {
	// Name is unique among all queues.
	Name string
	// Keeps says what is on disk once a put is answered.
	Keeps string
	// program is what must be installed, pack the Debian package that has it.
	program, pack string
	// Only names the works that the queue is there for; nil means all.
	Only []string
	// Cannot says, for each work that the queue cannot do, why.
	Cannot map[string]string
	// Belfry is true for Belfry.
	Belfry bool
	// Start starts new servers and returns once they serve. It may return servers beside an error. The
	// caller kills the processes.
	Start func(ctx context.Context, at *Site) (*Running, error)
}

// Site is where servers run.
type Site struct {
	// Addresses hands out each address once.
	Addresses *loopback.Addresses
	// NewDir returns the path of a directory that does not exist yet; name is a part of it.
	NewDir func(name string) string
	// Program is the absolute path of Belfry's program.
	Program string
}

// Does reports whether a queue takes part in a work. If it should take part and cannot, why is not
// empty.
func (p Queue) Does(work string) (why string, ok bool) {
	if p.Only != nil && !slices.Contains(p.Only, work) {
		return "", false
	}
	why = p.Cannot[work]
	return why, why == ""
}

// Mark returns a star if the named queue keeps nothing on disk before it answers, else the empty
// string.
func Mark(name string) string {
	for _, p := range All() {
		if p.Name == name && strings.HasPrefix(p.Keeps, "nothing") {
			return "*"
		}
	}
	return ""
}

// Running is a queue whose servers run.
type Running struct {
	// Version names the program and its version.
	Version   string
	Processes []*Process
	// Caller returns a new caller of a kind. Callers of the kind Shared have one client between them.
	Caller func(ctx context.Context, kind Kind) (Caller, error)
	// SDK is Belfry's client, URLs are its nodes; both are nil for other queues.
	SDK  *client.Client
	URLs []string
	// beanstalkd are where Belfry's nodes speak beanstalkd's protocol.
	beanstalkd []string
	// Close ends what callers share. It may be nil.
	Close func()
}

// Kind is how callers talk to a queue; most queues have one way only.
type Kind int

const (
	// Own is a connection for each caller, without a library that joins calls.
	Own Kind = iota
	// Library is what users of the queue's library get by default: one client for all callers if that
	// is how it is meant to be used, else a connection each.
	Library
	// Shared is one client library for all callers, which may make batches of what they ask for at a
	// time.
	Shared
)

// Batch is what one call puts.
type Batch struct {
	// Queue is the number of a queue, from 0 on.
	Queue int
	// Bodies has one body for each job.
	Bodies [][]byte
	// IDs are the jobs' names; nil means that the server makes them.
	IDs []string
	// Delay is how long the jobs wait until they are due.
	Delay time.Duration
}

// Wanted is what one call takes: up to Most jobs of a queue. The call waits up to Wait for the
// first one.
type Wanted struct {
	Queue, Most int
	Wait        time.Duration
}

// Caller makes one call after the other. Only Close may be called from another goroutine.
type Caller interface {
	// Put puts jobs in one batch.
	Put(ctx context.Context, all Batch) error
	// Take takes jobs in one batch and finishes them, and calls seen with the body of each as soon as
	// it is there.
	Take(ctx context.Context, what Wanted, seen func(body []byte)) (int, error)
	// Close ends the connection, and with it a call that is under way.
	Close() error
}

// errNames is the answer of queues that have no ids of the client.
var errNames = errors.New("its jobs cannot have ids that the client chose")

// QueueName returns the name of a queue by its number, from 0 on.
func QueueName(number int) string { return fmt.Sprintf("compare-%d", number) }

// All returns the queues in the order of the tables.
func All() []Queue {
	return slices.Concat(belfryPeers(), redisPeers(), redissonPeers(), beanstalkdPeers(), natsPeers())
}

// Names returns the names of All.
func Names() []string {
	var names []string
	for _, p := range All() {
		names = append(names, p.Name)
	}
	return names
}

// Missing returns an error that names the programs that are missing, and how to install them.
func Missing(peers []Queue) error {
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
