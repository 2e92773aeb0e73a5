package redisconn_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/mirror/redisconn"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// TestConnectName: Redis knows the connections by a name if the URL says so. A user needs a right
// of its own for that, so there is none otherwise.
func TestConnectName(t *testing.T) {
	s := redistest.Start(t)
	for suffix, want := range map[string]string{"": "", "?client_name=ours": "ours"} {
		r, err := redisconn.Connect(s.URL() + suffix)
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
		r, err := redisconn.Connect(url)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := redisconn.Reach(t.Context(), r); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	s.Kill()
	r, err := redisconn.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := redisconn.Reach(t.Context(), r); err == nil || !strings.Contains(err.Error(), "connection refused") {
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
		r, err := redisconn.Connect(url)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		err = redisconn.Reach(t.Context(), r)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: it said %v, should say %q", url, err, want)
		}
		if is := strings.Contains(url, s.Address()); err != nil && redisconn.OtherKind(err) != is {
			t.Errorf("%s: OtherKind is %v", url, !is)
		}
	}
}

// TestConnect says what is wrong with a URL, and never shows its password.
func TestConnect(t *testing.T) {
	for url, word := range map[string]string{
		"127.0.0.1:6379": "should begin with redis://", "app:secret@host:6379": "should begin with redis://",
		"http://app:secret@host":       "should begin with redis://",
		"redis+mesh://app:secret@host": `no kind "mesh"`, "redis://app:sec ret@host": "%XX",
		"redis://app:secret@host/x": "database", "redis://:secret@host:port": "port", "redis://host:port": "port",
		"redis://app:secret?secret@host": "%XX", "redis://app:secret/secret@host": "%XX",
		"redis://app:1#secret@host": "%XX", "redis://app/x:secret@host": "%XX",
		"redis+sentinel://app:secret@host:26379":                       "master_name",
		"redis+sentinel://host:26379?master_name=main&passwort=secret": "unexpected option",
		"redis://host?password=secret":                                 "unexpected option",
	} {
		r, err := redisconn.Connect(url)
		if err == nil {
			_ = r.Close() // it should not have been made
			t.Errorf("%s is taken", url)
			continue
		}
		if !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "secret") ||
			strings.Contains(err.Error(), "sec ret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{
		"redis://app:secret@127.0.0.1:6379/3", "rediss://host", "redis+cluster://host:7000?addr=other:7000",
		"rediss+cluster://host",
		"redis+sentinel://host:26379?master_name=main",
		"redis+sentinel://host?master_name=main&route_by_latency=true&sentinel_password=s", "unix:///run/redis.sock",
	} {
		r, err := redisconn.Connect(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		_ = r.Close() // nothing was sent
	}
}
