package mirror_test

import (
	"net/http"
	"net/http/httptest"
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

// TestReachOther: what is there is not what the URL says, and the error says what to write.
func TestReachOther(t *testing.T) {
	s := redistest.Start(t)
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	site := strings.TrimPrefix(web.URL, "http://")
	for url, want := range map[string]string{
		"redis://" + site:                                    "is no Redis but speaks HTTP",
		"redis+cluster://" + site:                            "is no Redis but speaks HTTP",
		"redis+sentinel://" + site + "?master_name=x":        "is no Redis but speaks HTTP",
		s.URL() + "/9999":                                    "has no database of that number",
		strings.Replace(s.URL(), "://", "+cluster://", 1):    "no node of a Redis Cluster; a URL that begins with redis://",
		"redis+sentinel://" + s.Address() + "?master_name=x": "is no Sentinel",
	} {
		r, err := mirror.Connect(url)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		err = mirror.Reach(t.Context(), r)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: it said %v, should say %q", url, err, want)
		}
		if is := strings.Contains(url, s.Address()); err != nil && mirror.OtherKind(err) != is {
			t.Errorf("%s: OtherKind is %v", url, !is)
		}
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
