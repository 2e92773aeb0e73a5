package redistest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestRestart: with an append-only file everything outlives the process, without one nothing does;
// the address stays.
func TestRestart(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts []Option
		end  func(*Server)
		kept bool
	}{
		{"killed, synced always", []Option{WithAOF("always")}, (*Server).Kill, true},
		{"killed, synced every second", []Option{WithAOF("everysec")}, (*Server).Kill, true},
		{"killed by the restart", []Option{WithAOF("always")}, func(*Server) {}, true},
		{"stopped", []Option{WithAOF("everysec")}, (*Server).Stop, true},
		{"killed by the restart, with what a stop would save", []Option{WithConfig("save", "3600", "1")},
			func(*Server) {}, false},
		{"stopped, with what a stop saves", []Option{WithConfig("save", "3600", "1")}, (*Server).Stop, true},
		{"killed, without a file", nil, (*Server).Kill, false},
		{"stopped, without a file", nil, (*Server).Stop, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := Start(t, tc.opts...)
			before, pid := s.Address(), s.command.Process.Pid
			if err := s.Client().Set(t.Context(), "key", "value", 0).Err(); err != nil {
				t.Fatal(err)
			}
			tc.end(s)
			s.Restart()
			if s.Address() != before || s.command.Process.Pid == pid {
				t.Errorf("it was process %d at %s and is %d at %s", pid, before, s.command.Process.Pid, s.Address())
			}
			value, err := s.Client().Get(t.Context(), "key").Result()
			if kept := err == nil && value == "value"; kept != tc.kept || !kept && !errors.Is(err, redis.Nil) {
				t.Errorf("it has %q, %v", value, err)
			}
		})
	}
}

// TestKill: no server answers any more, and it can be killed again.
func TestKill(t *testing.T) {
	s := Start(t)
	s.Kill()
	if err := s.Client().Ping(t.Context()).Err(); err == nil {
		t.Error("it answers")
	}
	s.Kill()
	s.Stop()
}

// TestTakenAddress: a server that finds its address taken says so, and never takes another's
// answers for its own.
func TestTakenAddress(t *testing.T) {
	first := Start(t)
	second := prepare(t)
	second.take(first.Address())
	if err := second.up(); !errors.Is(err, errAddressTaken) {
		t.Errorf("it started with %v", err)
	}
}

// TestBadConfig: a server that does not start says why.
func TestBadConfig(t *testing.T) {
	s := prepare(t, WithConfig("maxmemory-policy", "none-of-these"))
	s.take(randomAddress())
	if err := s.up(); err == nil || errors.Is(err, errAddressTaken) || !strings.Contains(err.Error(), "maxmemory-policy") {
		t.Errorf("it started with %v", err)
	}
}

// fatal is a test that notes why it was given up.
type fatal struct {
	testing.TB
	said string
}

func (f *fatal) Helper() {}

func (f *fatal) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestMissingProgram: where redis-server is not installed, the test fails and says what installs
// it.
func TestMissingProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	f := &fatal{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Start(f)
	}()
	<-ended
	if !strings.Contains(f.said, "apt-get install redis-server") {
		t.Errorf("it said %q", f.said)
	}
}

// TestCluster: the server owns all slots, also when it comes back, and refuses a script over two of
// them.
func TestCluster(t *testing.T) {
	s := Start(t, WithCluster(), WithAOF("always"))
	for _, begin := range []func(){func() {}, s.Restart} {
		begin()
		if err := s.Client().MSet(t.Context(), "{one}a", 1, "{one}b", 2).Err(); err != nil {
			t.Errorf("two keys of a slot: %v", err)
		}
		err := s.Client().Eval(t.Context(), "return 1", []string{"a", "b"}).Err()
		if err == nil || !strings.HasPrefix(err.Error(), "CROSSSLOT") {
			t.Errorf("two slots: %v", err)
		}
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Address()}})
	defer cluster.Close()
	if value, err := cluster.Get(t.Context(), "{one}b").Result(); err != nil || value != "2" {
		t.Errorf("through a client of clusters: %q, %v", value, err)
	}
}
