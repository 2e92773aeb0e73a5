package mirror_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestConnectName: Redis knows the connections by a name if the URL says so. A user needs a right of its own for that, so there is none otherwise.
func TestConnectName(t *testing.T) {
	s := redistest.Start(t)
	for suffix, want := range map[string]string{"": "", "?client_name=ours": "ours"} {
		r, err := mirror.Connect(s.URL() + suffix)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if got := r.ClientGetName(t.Context()).Val(); got != want {
			t.Errorf("with %q it is called %q, should be %q", suffix, got, want)
		}
	}
}

// TestReach: a Redis that refuses is one that answers; none does not.
func TestReach(t *testing.T) {
	s := redistest.Start(t)
	for _, url := range []string{s.URL(), s.User("nobody")} {
		r, err := mirror.Connect(url)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := mirror.Reach(t.Context(), r); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	s.Kill()
	r, err := mirror.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := mirror.Reach(t.Context(), r); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("where none is: %v", err)
	}
}

// TestImportWaits: an import that begins while Redis restarts begins once Redis is back.
func TestImportWaits(t *testing.T) {
	s, c := redistest.Start(t, redistest.WithAOF("always")), belfrytest.Start(t).Client(t)
	if err := redissontest.New(s.Client(), "orders", redissontest.NewGeneration, time.Now).Offer(t.Context(), []byte("x"), time.Now()); err != nil {
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
