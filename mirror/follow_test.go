package mirror_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestFollowReconnects: a follower goes on, whichever of its connections cannot be made at first.
func TestFollowReconnects(t *testing.T) {
	t.Parallel()
	server, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	if err := redissontest.New(server.Client(), "orders", redissontest.NewGeneration, time.Now).Offer(t.Context(),
		[]byte("x"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for failing := int64(1); ; failing++ {
		var dials atomic.Int64
		r := redis.NewClient(&redis.Options{
			Addr: server.Address(), MaxRetries: -1, DialerRetries: 1,
			Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
				if n := dials.Add(1); n == failing || n == failing+1 { // a subscription is tried twice by the library
					return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("refused")}
				}
				return new(net.Dialer).DialContext(ctx, network, address)
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		_, err := mirror.Import(ctx, r, c, mirror.ImportOptions{RedisQueue: "orders", Follow: true, Share: 1,
			Progress: func(n mirror.ImportCounts) {
				if n.Left == 0 {
					stop()
				}
			}})
		stop()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("connections %d and the next could not be made, and the import ended with %v", failing, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if dials.Load() < failing {
			return
		}
	}
}
