package pair

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client/belfrytest"
)

// TestHoldIsOneAtATime has a second process wait, be told, and take over with a higher fence.
func TestHoldIsOneAtATime(t *testing.T) {
	c := belfrytest.Start(t).Client(t)
	fences, release, told := make(chan uint64, 2), make(chan struct{}), make(chan struct{})
	ended := make(chan error, 2)
	go func() {
		ended <- underHold(t.Context(), c, "belfry.mirror/x", HoldDefault, func() {}, func(_ context.Context,
			fence uint64) error {
			fences <- fence
			<-release
			return nil
		})
	}()
	first := <-fences
	go func() {
		ended <- underHold(t.Context(), c, "belfry.mirror/x", HoldDefault, func() { close(told) },
			func(_ context.Context, fence uint64) error {
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

// TestHoldLost ends the work when another program removes the job whose lease it is.
func TestHoldLost(t *testing.T) {
	c := belfrytest.Start(t).Client(t)
	err := underHold(t.Context(), c, "belfry.mirror/x", HoldDefault, func() {}, func(ctx context.Context, _ uint64) error {
		if _, err := c.ForceCancel(context.WithoutCancel(ctx), "belfry.mirror/x", holdID); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, ErrHoldLost) {
		t.Errorf("it ended with %v", err)
	}
}

// TestHoldEnds ends with the context, while it works and while it waits.
func TestHoldEnds(t *testing.T) {
	c := belfrytest.Start(t).Client(t)
	outer, stop := context.WithCancel(t.Context())
	err := underHold(outer, c, "belfry.mirror/x", HoldDefault, func() {}, func(ctx context.Context, _ uint64) error {
		waiting, stopWaiting := context.WithCancel(ctx)
		err := underHold(waiting, c, "belfry.mirror/x", HoldDefault, stopWaiting, func(context.Context,
			uint64) error {
			return errors.New("both work")
		})
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

// TestHoldEndsWithoutBelfry: a process that is stopped while Belfry does not answer does not try
// for long to give the hold back.
func TestHoldEndsWithoutBelfry(t *testing.T) {
	t.Parallel()
	s := belfrytest.Start(t)
	c := s.Client(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- underHold(ctx, c, "belfry.mirror/x", HoldDefault, func() {}, func(ctx context.Context, _ uint64) error {
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
