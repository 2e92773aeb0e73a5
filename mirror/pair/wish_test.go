package pair

import (
	"context"
	"testing"

	"github.com/belfrydb/belfry/client/belfrytest"
)

// TestWishEnds: an export that was killed while it asked for the queue does not hold up others for
// long.
func TestWishEnds(t *testing.T) {
	c := belfrytest.Start(t).Client(t)
	l := New(Options{Belfry: c, RedisQueue: "orders", Share: 1})
	if err := l.WithWish(t.Context(), func(ctx context.Context) error {
		for {
			wish, err := c.Get(ctx, l.control, wishID)
			if IsGone(err) {
				continue // it is on its way
			}
			if err == nil && wish.ExpiresAt.IsZero() {
				t.Error("the wish lasts for ever")
			}
			return err
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := l.Wished(t.Context()); err != nil {
		t.Errorf("after it had the queue: %v", err)
	}
}
