package drain

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestStart: a drain starts once, and may be started again.
func TestStart(t *testing.T) {
	d := New()
	if d.HasStarted() {
		t.Error("it starts by itself")
	}
	for range 2 {
		if d.Start(); !d.HasStarted() {
			t.Error("it has not started")
		}
	}
}

// TestUntil: the context ends with the other one, with the drain and with end, and keeps the values
// of the other one. Afterwards no goroutine is left, or the bubble would not end.
func TestUntil(t *testing.T) {
	type key struct{}
	errGone := errors.New("gone")
	for name, test := range map[string]struct {
		stop func(d *Signal, leave context.CancelCauseFunc, end func())
		want error
	}{
		"the caller leaves": {func(_ *Signal, leave context.CancelCauseFunc, _ func()) { leave(errGone) }, errGone},
		"the drain starts":  {func(d *Signal, _ context.CancelCauseFunc, _ func()) { d.Start() }, context.Canceled},
		"it is not needed":  {func(_ *Signal, _ context.CancelCauseFunc, end func()) { end() }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := New()
				ctx, leave := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
				defer leave(nil)
				bound, end := d.Until(ctx)
				if synctest.Wait(); bound.Err() != nil || bound.Value(key{}) != "value" {
					t.Errorf("at first: %v, %v", bound.Err(), bound.Value(key{}))
				}
				test.stop(d, leave, end)
				if synctest.Wait(); !errors.Is(context.Cause(bound), test.want) {
					t.Errorf("%v, want %v", context.Cause(bound), test.want)
				}
				end()
			})
		})
	}
}

// TestUntilAfterTheStart: a context that is made during a drain has ended.
func TestUntilAfterTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New()
		d.Start()
		bound, end := d.Until(t.Context())
		defer end()
		if synctest.Wait(); bound.Err() == nil {
			t.Error("it has not ended")
		}
	})
}
