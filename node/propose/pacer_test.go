package propose

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

func TestPacerRestsWhenExpireDoesNotHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		p := NewPacer(func() fsm.Time { return 10e9 }, func() fsm.Time { return 5e9 },
			func(ctx context.Context) (bool, error) { calls++; return false, ctx.Err() })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer cancel()
		p.Run(ctx)
		if calls != 11 {
			t.Errorf("in 10 s Expire was proposed %d times, want 11", calls)
		}
	})
}
