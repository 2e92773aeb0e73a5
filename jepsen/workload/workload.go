package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Workload is something that clients do to queues of their own.
type Workload struct {
	Name string
	// What says what it does, and what it can find.
	What string
	// Queues are all that it uses.
	Queues []string
	// NeedsRedis says that it needs a target with a Redis.
	NeedsRedis bool
	// NeedsSecrets says that the workload needs a secured cluster.
	NeedsSecrets bool
	// Prepare is called once before the roles, by a client of its own; nil if there is nothing to
	// prepare.
	Prepare func(context.Context, *Client) error
	Roles   []Role
}

// Role is what some clients of a workload do, over and over. A round should take well under a
// second unless it waits for a job.
type Role struct {
	Name    string
	Clients int
	Round   func(context.Context, *Client)
}

// All returns every workload.
func All() []Workload {
	return []Workload{puts(), herd(), races(), stall(), retries(), batches(), partitions(), deaths(), repeats(), admin(),
		reads(), tasks(), keys(), schedules(), mirror(), access()}
}

// Open returns every workload that needs no secrets.
func Open() []Workload {
	return slices.DeleteFunc(All(), func(w Workload) bool { return w.NeedsSecrets })
}

// Secured returns every workload that works in a secured cluster: the processes of the workload
// mirror have no token.
func Secured() []Workload {
	return slices.DeleteFunc(All(), func(w Workload) bool { return w.NeedsRedis })
}

// Pick returns workloads by their names, separated by commas; "all" is every one that needs no
// secrets.
func Pick(names string) ([]Workload, error) {
	if names == "all" {
		return Open(), nil
	}
	var picked []Workload
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(All(), func(w Workload) bool { return w.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no workload %q; there are %s", name, strings.Join(Names(All()), ", "))
		}
		picked = append(picked, All()[i])
	}
	return picked, nil
}

// Names returns the names of workloads.
func Names(list []Workload) (names []string) {
	for _, w := range list {
		names = append(names, w.Name)
	}
	return names
}

// NeedRedis reports whether one of the workloads needs a Redis.
func NeedRedis(list []Workload) bool {
	return slices.ContainsFunc(list, func(w Workload) bool { return w.NeedsRedis })
}

// NeedSecrets reports whether one of the workloads needs a secured cluster.
func NeedSecrets(list []Workload) bool {
	return slices.ContainsFunc(list, func(w Workload) bool { return w.NeedsSecrets })
}

// Queues returns all queues that workloads use.
func Queues(list []Workload) (queues []string) {
	for _, w := range list {
		queues = append(queues, w.Queues...)
	}
	return queues
}

// Load is how much workloads do.
type Load struct {
	Seed uint64
	// Pace is the mean time between two rounds of a client.
	Pace time.Duration
}

// Run has the clients of all workloads work until ctx ends, and returns when each has stopped: by
// then the history has every call that was sent. An error means that a client could not be made, or
// found no way to a node.
func Run(ctx context.Context, target Target, list []Workload, load Load) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	var clients []*Client
	var failed error
	for _, w := range list {
		for _, r := range w.Roles {
			for i := range r.Clients {
				c, err := NewClient(target, w.Name, fmt.Sprintf("%s-%s-%d", w.Name, r.Name, i+1), load.Seed)
				if err != nil {
					failed = errors.Join(failed, err)
					cancel()
					continue
				}
				clients = append(clients, c)
				running.Go(func() {
					defer c.Close()
					for c.err == nil && pause(ctx, c.between(0, 2*load.Pace)) {
						r.Round(ctx, c)
					}
				})
			}
		}
	}
	running.Wait()
	for _, c := range clients {
		failed = errors.Join(failed, c.err)
	}
	return failed
}

// Prepare makes what the workloads need before Run, and before the first fault.
func Prepare(ctx context.Context, target Target, list []Workload, seed uint64) error {
	var problems []error
	for _, w := range list {
		if w.Prepare == nil {
			continue
		}
		c, err := NewClient(target, w.Name, w.Name+"-prepare", seed)
		if err != nil {
			return err
		}
		if err := w.Prepare(ctx, c); err != nil {
			problems = append(problems, fmt.Errorf("preparing the workload %s: %w", w.Name, err))
		}
		c.Close()
	}
	return errors.Join(problems...)
}
