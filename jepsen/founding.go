package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/jepsen/nemesis"
	"github.com/belfrydb/belfry/jepsen/workload"
)

// errNotFounded says that no whole cluster came out of its founding, which was noted.
var errNotFounded = errors.New("no whole cluster was founded")

// foundingGoesOn is how long clients of the founding go on when the cluster is whole.
const foundingGoesOn = time.Second

// startCluster starts the cluster and returns when it is whole. If a fault of the founding was
// asked for, it strikes meanwhile.
func (e *experiment) startCluster(ctx context.Context) error {
	i := slices.IndexFunc(e.faults, func(f nemesis.Fault) bool { return f.Founding })
	if i >= 0 {
		return e.found(ctx, e.faults[i])
	}
	if err := e.lab.Start(ctx); err != nil {
		return err
	}
	if err := e.awaitHealthy(ctx); err != nil {
		return fmt.Errorf("before the first fault: %w", err)
	}
	e.history = history.New()
	return nil
}

// found starts all nodes while clients put through each of them and a fault strikes. What is lost,
// and what does not become whole, is the cluster's failure.
func (e *experiment) found(ctx context.Context, fault nemesis.Fault) error {
	e.history = history.New()
	putting, stop := context.WithCancel(ctx)
	put := make(chan error, 1)
	go func() { put <- workload.PutWhileFounded(putting, e.target(all), e.seed) }()
	started := make(chan error, 1)
	go func() { started <- e.lab.Start(ctx) }()
	err := nemesis.Strike(ctx, e.scene(ctx, foundingChoices), fault, e.rhythm, &e.struck)
	healed := e.history.Now()
	if err == nil {
		if err = e.awaitHealthy(ctx); err == nil {
			e.tally.add("whole after the founder was back (ms)", (e.history.Now() - healed).Milliseconds())
			goOn, cancel := context.WithTimeout(ctx, foundingGoesOn)
			<-goOn.Done()
			cancel()
		} else {
			err = &notWholeError{err}
		}
	}
	stop()
	if first := <-started; first != nil { // that of the founder ended with it; what else ended by itself the lab has noted
		e.log.Info("the first start", slog.Any("error", first))
	}
	failed := <-put
	_, lasts := errors.AsType[*nemesis.HealError](err)
	_, partial := errors.AsType[*notWholeError](err)
	if (lasts || partial) && ctx.Err() == nil {
		e.kept.fail("I35", e.history.Now(), "the founding: %v", err)
		err = errNotFounded
	}
	return errors.Join(err, failed)
}

// notWholeError says that the cluster did not become whole.
type notWholeError struct{ err error }

func (e *notWholeError) Error() string { return e.err.Error() }

// Unwrap returns what was seen instead.
func (e *notWholeError) Unwrap() error { return e.err }
