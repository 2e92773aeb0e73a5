package redistest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// open returns a client of its own at an address, with a name or none.
func open(t *testing.T, url, name string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	options.ClientName = name
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}

// TestCutClients: a client that waits or listens is cut off, and may come back at once.
func TestCutClients(t *testing.T) {
	s := Start(t)
	another := open(t, s.URL(), "another")
	subscription := another.Subscribe(t.Context(), "channel")
	defer subscription.Close()
	if _, err := subscription.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := another.Conn()
	defer conn.Close()
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if cut := s.CutClients(); cut < 2 {
		t.Errorf("%d connections were cut", cut)
	}
	if _, err := subscription.Receive(t.Context()); err == nil {
		t.Error("the subscriber was not cut off")
	}
	if err := conn.Ping(t.Context()).Err(); err == nil {
		t.Error("the connection was not cut off")
	}
	for _, client := range []*redis.Client{another, s.Client()} {
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	}
}

// TestUser: a user has the rights that it was given and no others, also when the server comes back.
func TestUser(t *testing.T) {
	s := Start(t)
	reader := open(t, s.User("reader", "+get", "~orders*"), "")
	for range 2 {
		if err := reader.Get(t.Context(), "orders").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("reading what it may read: %v", err)
		}
		if err := reader.Get(t.Context(), "others").Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("reading what it may not: %v", err)
		}
		if err := reader.Set(t.Context(), "orders", 1, 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("writing: %v", err)
		}
		s.Restart()
	}
}

// TestReplica: it has what the server has, though that comes a second late, and refuses to write.
func TestReplica(t *testing.T) {
	s := Start(t, WithConfig("repl-diskless-sync-delay", "1"))
	if err := s.Client().Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	replica := s.Replica(t)
	if value, err := replica.Client().Get(t.Context(), "key").Result(); err != nil || value != "value" {
		t.Errorf("it has %q, %v", value, err)
	}
	if err := replica.Client().Set(t.Context(), "key", "other", 0).Err(); err == nil ||
		!strings.HasPrefix(err.Error(), "READONLY") {
		t.Errorf("writing: %v", err)
	}
}

// busyScript keeps the server busy for ARGV[1] microseconds.
const busyScript = `
local function us() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end
local from = us()
while us() - from < tonumber(ARGV[1]) do end
`

// TestSlowest: of the commands that are asked about, the one that took longest is found, and how
// long it took.
func TestSlowest(t *testing.T) {
	s := Start(t)
	if slowest, err := s.Slowest(t.Context(), Commands("eval")); err != nil || slowest.Duration != 0 {
		t.Errorf("before any: %v, %v", slowest, err)
	}
	another := open(t, s.URL(), "another")
	const short, long = 50 * time.Millisecond, 200 * time.Millisecond
	busy := redis.NewScript(busyScript)
	_ = busy.Eval(t.Context(), another, nil, short.Microseconds()) // it has no answer
	_ = busy.EvalSha(t.Context(), s.Client(), nil, long.Microseconds())
	for _, tc := range []struct {
		name    string
		keep    func(redis.SlowLog) bool
		command string
		least   time.Duration
	}{
		{"all", nil, "evalsha", long},
		{"two", Commands("EVAL", "evalsha"), "evalsha", long},
		{"one", Commands("eval"), "eval", short},
		{"none", Commands("fcall"), "", 0},
		{"a client", FromClient("another"), "eval", short},
		{"the other", FromClient("redistest"), "evalsha", long},
	} {
		got, err := s.Slowest(t.Context(), tc.keep)
		if err != nil || got.Duration < tc.least || (tc.least == 0) != (got.Duration == 0) || tc.least > 0 &&
			got.Args[0] != tc.command {
			t.Errorf("of %s: %v, %v", tc.name, got, err)
		}
	}
}

// TestSlowestForgotten: a server that has noted more than it remembers cannot say which was
// slowest.
func TestSlowestForgotten(t *testing.T) {
	s := Start(t, WithConfig("slowlog-log-slower-than", "0"), WithConfig("slowlog-max-len", "2"))
	if _, err := s.Slowest(t.Context(), nil); err == nil {
		t.Error("it says which")
	}
}
