package mirror

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestHoldIsOneAtATime has a second process wait, be told, and take over with a higher fence.
func TestHoldIsOneAtATime(t *testing.T) {
	c := belfrytest.Start(t).Client(t)
	fences, release, told := make(chan uint64, 2), make(chan struct{}), make(chan struct{})
	ended := make(chan error, 2)
	go func() {
		ended <- hold(t.Context(), c, "belfry.mirror/x", HoldDefault, func() {}, func(_ context.Context, fence uint64) error {
			fences <- fence
			<-release
			return nil
		})
	}()
	first := <-fences
	go func() {
		ended <- hold(t.Context(), c, "belfry.mirror/x", HoldDefault, func() { close(told) }, func(_ context.Context, fence uint64) error {
			fences <- fence
			return errors.New("done")
		})
	}()
	<-told
	select {
	case <-fences:
		t.Fatal("both work at the same time")
	default:
	}
	close(release)
	if err := <-ended; err != nil {
		t.Errorf("the first ended with %v", err)
	}
	if second := <-fences; second <= first {
		t.Errorf("the fence went from %d to %d", first, second)
	}
	if err := <-ended; err == nil || err.Error() != "done" {
		t.Errorf("the second ended with %v", err)
	}
}

// TestHoldLost ends the work when somebody removes the job whose lease it is.
func TestHoldLost(t *testing.T) {
	c := belfrytest.Start(t).Client(t)
	err := hold(t.Context(), c, "belfry.mirror/x", HoldDefault, func() {}, func(ctx context.Context, _ uint64) error {
		if _, err := c.ForceCancel(context.WithoutCancel(ctx), "belfry.mirror/x", holdID); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, errHoldLost) {
		t.Errorf("it ended with %v", err)
	}
}

// TestHoldEnds ends with the context, while it works and while it waits.
func TestHoldEnds(t *testing.T) {
	c := belfrytest.Start(t).Client(t)
	outer, stop := context.WithCancel(t.Context())
	err := hold(outer, c, "belfry.mirror/x", HoldDefault, func() {}, func(ctx context.Context, _ uint64) error {
		waiting, stopWaiting := context.WithCancel(ctx)
		err := hold(waiting, c, "belfry.mirror/x", HoldDefault, stopWaiting, func(context.Context, uint64) error { return errors.New("both work") })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the one that waits ended with %v", err)
		}
		stop()
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// TestOvertaken has a process that slept through a takeover wake up: Redis refuses its scripts.
func TestOvertaken(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	app := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now)
	if err := app.Offer(t.Context(), []byte("a"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	var links [2]*importer
	for n := range links {
		links[n] = newImporter(newLink(r, c, "orders", "", 1, 0, nil), ImportOptions{})
		if err := errors.Join(links[n].check(t.Context()), links[n].open(t.Context(), uint64(7+n)), links[n].settle(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := links[0].claim(t.Context()); err == nil || !errors.Is(explain(err), errHoldLost) {
		t.Errorf("the claim of the one that was overtaken: %v", err)
	}
	if n := r.Exists(t.Context(), "belfry_handover:{orders}").Val(); n != 0 {
		t.Error("it claimed all the same")
	}
	if got, err := links[1].claim(t.Context()); err != nil || len(got.entries) != 1 {
		t.Errorf("the claim of the other: %+v, %v", got, err)
	}
}

// TestHoldEndsWithoutBelfry: a process that is stopped while Belfry does not answer does not try for long to give the hold back.
func TestHoldEndsWithoutBelfry(t *testing.T) {
	t.Parallel()
	s := belfrytest.Start(t)
	c := s.Client(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- hold(ctx, c, "belfry.mirror/x", HoldDefault, func() {}, func(ctx context.Context, _ uint64) error {
			err := s.Close()
			cancel()
			<-ctx.Done()
			return errors.Join(err, context.Cause(ctx))
		})
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(20 * time.Second): // it was 27
		t.Error("it tries to give the hold back for more than 20 s")
	}
}
