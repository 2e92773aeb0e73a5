package beanstalkd_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/rpc"
)

// keyring is an authenticator that knows one token.
type keyring struct {
	mu     sync.Mutex
	record *tokens.Record
}

func (*keyring) OpenAccess() (bool, error) { return false, nil }

func (k *keyring) Token(id string) (*tokens.Record, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.record == nil || k.record.ID != id {
		return nil, nil
	}
	return k.record, nil
}

// forget ends the token.
func (k *keyring) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.record = nil
}

// newKeyring makes a token with scopes and writes it to a file.
func newKeyring(t *testing.T, scopes ...string) (k *keyring, file string) {
	t.Helper()
	text, id, hash := tokens.New()
	k = &keyring{record: &tokens.Record{ID: id, Hash: hash}}
	for _, scope := range scopes {
		s, err := tokens.ParseScope(scope)
		if err != nil {
			t.Fatal(err)
		}
		k.record.Scopes = append(k.record.Scopes, s)
	}
	file = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return k, file
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestScopes: a connection may do what its token allows, and no longer than the token is valid.
func TestScopes(t *testing.T) {
	k, file := newKeyring(t, "put:in", "consume:out*", "view:seen")
	var log lockedBuffer
	address, _ := serveWith(t, rpc.Beanstalkd{JobBytesMax: jobBytesMax, TokenFile: file}, func(c *rpc.Config) {
		c.Authenticator, c.Audit = k, slog.New(slog.NewTextHandler(&log, nil))
	})
	c := connect(t, address)
	c.expect(t, "use in", "USING in")
	id := c.put(t, "1 0 60", "x")
	c.expect(t, "peek "+id, "INTERNAL_ERROR")
	c.expect(t, "peek-ready", "INTERNAL_ERROR")
	c.expect(t, "delete "+id, "DELETED") // as cancel
	c.expect(t, "use out", "USING out")
	c.expect(t, "put 1 0 60 1\nx", "INTERNAL_ERROR")
	c.expect(t, "kick 1", "KICKED 0")
	c.expect(t, "reserve-with-timeout 0", "INTERNAL_ERROR") // it watches default
	c.expect(t, "watch out2", "WATCHING 2")
	c.expect(t, "ignore default", "WATCHING 1")
	c.expect(t, "reserve-with-timeout 0", "TIMED_OUT")
	c.expect(t, "watch in", "WATCHING 2")
	c.expect(t, "reserve-with-timeout 0", "INTERNAL_ERROR")
	c.expect(t, "stats-tube other", "INTERNAL_ERROR")
	c.expect(t, "stats-tube seen", "NOT_FOUND")
	c.expect(t, "pause-tube in 5", "INTERNAL_ERROR")
	c.expect(t, "list-tubes-watched", "OK 16 ---\n- out2\n- in\n")
	if !strings.Contains(log.String(), "/beanstalkd/put") || !strings.Contains(log.String(), k.record.ID) {
		t.Errorf("the refused put is not in the audit log:\n%s", log.String())
	}
	c.expect(t, "use in", "USING in")
	k.forget()
	c.expect(t, "put 1 0 60 1\nx", "INTERNAL_ERROR")
	c.expect(t, "reserve-with-timeout 0", "INTERNAL_ERROR")
}

// TestTokenEndsWhileAJobIsHeld: the holder can do nothing more to the job.
func TestTokenEndsWhileAJobIsHeld(t *testing.T) {
	k, file := newKeyring(t, "put,consume:default")
	address, _ := serveWith(t, rpc.Beanstalkd{JobBytesMax: jobBytesMax, TokenFile: file}, func(c *rpc.Config) {
		c.Authenticator = k
	})
	c := connect(t, address)
	id := c.put(t, "1 0 100", "x")
	c.expect(t, "reserve", "RESERVED "+id+" 1 x")
	k.forget()
	for _, command := range []string{"delete " + id, "release " + id + " 1 0", "bury " + id + " 1", "touch " + id} {
		c.expect(t, command, "INTERNAL_ERROR")
	}
}

// TestWithoutAToken: where calls need tokens, a door without one allows nothing.
func TestWithoutAToken(t *testing.T) {
	k, _ := newKeyring(t, "admin:*")
	address, _ := serveWith(t, rpc.Beanstalkd{JobBytesMax: jobBytesMax}, func(c *rpc.Config) { c.Authenticator = k })
	c := connect(t, address)
	for _, command := range []string{
		"put 1 0 60 1\nx", "reserve-with-timeout 0", "peek-ready", "kick 1", "stats-tube default", "pause-tube default 1",
	} {
		c.expect(t, command, "INTERNAL_ERROR")
	}
	c.expect(t, "list-tubes", "OK 14 ---\n- default\n")
	c.expect(t, "reserve-job 1024", "NOT_FOUND")
}

// TestUnreadableTokenFile: a connection that could act under no token is closed.
func TestUnreadableTokenFile(t *testing.T) {
	k, _ := newKeyring(t, "admin:*")
	address, _ := serveWith(t, rpc.Beanstalkd{JobBytesMax: jobBytesMax, TokenFile: filepath.Join(t.TempDir(), "none")},
		func(c *rpc.Config) { c.Authenticator = k })
	if answer, err := connect(t, address).receive(); err == nil {
		t.Errorf("answer %q", answer)
	}
}
