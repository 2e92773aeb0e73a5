package mirror_test

import (
	"testing"
	"time"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestImportWaits: an import that begins while Redis restarts begins once Redis is back.
func TestImportWaits(t *testing.T) {
	s, c := redistest.Start(t, redistest.WithAOF("always")), belfrytest.Start(t).Client(t)
	if err := redissontest.New(s.Client(), "orders", redissontest.NewGeneration, time.Now).Offer(t.Context(),
		[]byte("x"), time.Now()); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	noticed, done := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		_, err := mirror.Import(t.Context(), s.Client(), c, mirror.ImportOptions{RedisQueue: "orders", Notice: func(error) {
			select {
			case noticed <- struct{}{}:
			default:
			}
		}})
		done <- err
	}()
	select {
	case <-noticed:
	case err := <-done:
		t.Fatalf("it ended with %v", err)
	}
	s.Restart()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
