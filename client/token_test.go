package client

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// carried notes which tokens come to a server, and at which paths.
type carried struct {
	inner http.Handler

	mu     sync.Mutex
	tokens map[string]bool // by path and token
}

func (c *carried) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.tokens[r.URL.Path+" "+r.Header.Get("Authorization")] = true
	c.mu.Unlock()
	c.inner.ServeHTTP(w, r)
}

// take returns what came since it was called last.
func (c *carried) take() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for text := range c.tokens {
		all = append(all, text)
	}
	clear(c.tokens)
	slices.Sort(all)
	return all
}

// TestCallsCarryTheToken: calls by Connect and requests for sessions carry the token, and after its
// file has changed the next one, in a session of its own.
func TestCallsCarryTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &sessionServer{Fake: NewFake()}
		server := &carried{inner: fake, tokens: map[string]bool{}}
		n := newPipeNet()
		n.serve(t, "127.0.0.1:7400", server)
		file := filepath.Join(t.TempDir(), "token")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		one, _, _ := tokens.New()
		two, _, _ := tokens.New()
		three, _, _ := tokens.New()
		write(one + "\n")
		c, err := New("http://127.0.0.1:7400", WithDialer(n.dial), WithTokenFile(file), WithTokenFile(file))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		call := func(token string, sessions int) {
			t.Helper()
			server.take() // what the client does by itself may still come with the token before
			if _, err := c.Put(t.Context(), "q", nil); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Get(t.Context(), "q", "nobody"); err == nil {
				t.Error("there is a job of nobody's")
			}
			if came := server.take(); !slices.Contains(came, belfryv1connect.QueueServiceGetProcedure+" Bearer "+token) {
				t.Errorf("calls carried %q, want %s", came, token)
			}
			if got := fake.count(); got != sessions || inUse(c).sessions.Carries() != token {
				carries := inUse(c).sessions.Carries()
				t.Errorf("%d sessions were asked for, the last with %s, want %d and %s", got, carries, sessions, token)
			}
		}
		call(one, 1)
		for i, text := range []string{two, "garbage", two[:len(two)-1], three} {
			write(text)
			changed := time.Now().Add(time.Duration(i+1) * time.Hour) // also on a file system with coarse times
			if err := os.Chtimes(file, changed, changed); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			want, sessions := two, 2
			if text == three {
				want, sessions = three, 3
			}
			call(want, sessions)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		call(three, 3)
	})
}

// TestWrongTokens: what can be no token is refused before anything is sent.
func TestWrongTokens(t *testing.T) {
	right, _, _ := tokens.New()
	empty := filepath.Join(t.TempDir(), "empty")
	large := filepath.Join(t.TempDir(), "large")
	for name, text := range map[string]string{empty: "\n", large: strings.Repeat("x", 4<<10+1)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, option := range map[string]Option{
		"in the clear": WithToken(right), "garbage": WithToken("hello"), "cut off": WithToken(right[:len(right)-1]),
		"empty": WithToken(""), "two words": WithToken("a b"), "a line break": WithToken("a\nb"), "not ASCII": WithToken("é"),
		"no file": WithTokenFile(filepath.Join(t.TempDir(), "none")), "an empty file": WithTokenFile(empty),
		"a large file": WithTokenFile(large),
	} {
		addresses := "http://127.0.0.1:7400,localhost:7410"
		if name == "in the clear" {
			addresses += ",http://10.0.0.1:7400"
		}
		if c, err := New(addresses, option); err == nil {
			_ = c.Close()
			t.Errorf("%s is a token", name)
		}
	}
	c, err := New("http://127.0.0.1:7400", WithToken(right))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if c.endpoints.Named("10.0.0.1:7400") != nil || c.endpoints.Named("127.0.0.1:7410") == nil {
		t.Error("a server that another one names beyond this machine gets the token in the clear")
	}
}
