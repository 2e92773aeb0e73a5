package redisson

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// host is an address of loopback that belongs to this process.
func host() string {
	id := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 100+id>>16&15, id>>8&255, id&255|1)
}

// TestSide has a payload go through Redis, which tells what it has left, and what went wrong at its
// start.
func TestSide(t *testing.T) {
	dir := t.TempDir()
	r, err := Start(t.Context(), dir, host())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := Start(t.Context(), t.TempDir(), host()); err == nil ||
		!strings.Contains(err.Error(), "redis-server ended") {
		t.Errorf("a second one at the same address: %v", err)
	}
	log := filepath.Join(dir, "mirror.log")
	s := NewSide(r, Commands{Program: "echo", Log: log}, []string{"a", "b"})
	due := time.Now().Add(50 * time.Millisecond)
	for _, queue := range []string{"a", "b"} {
		if err := s.Offer(t.Context(), queue, []byte("payload of "+queue), due); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := s.Left(t.Context())
	if want := "1 in redisson_delay_queue:{a}, 1 in redisson_delay_queue_timeout:{a}, 1 in redisson_delay_queue:{b}, 1 " +
		"in redisson_delay_queue_timeout:{b}"; left != want || err != nil {
		t.Errorf("left are %q, %v", left, err)
	}
	working, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		s.Transfer(working)
		close(ended)
	}()
	for _, queue := range []string{"a", "b"} {
		var got [][]byte
		for len(got) == 0 && err == nil {
			got, err = s.Take(t.Context(), queue)
		}
		if diff := cmp.Diff([][]byte{[]byte("payload of " + queue)}, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", queue, err, diff)
		}
	}
	stop()
	<-ended
	if left, err := s.Left(t.Context()); left != "" || err != nil {
		t.Errorf("at the end %q are left, %v", left, err)
	}
	checkCommand(t, s, log)
}

// checkCommand runs a command that only says what it was given.
func checkCommand(t *testing.T, s *Side, log string) {
	t.Helper()
	c, err := s.Run("a", "http://n1,http://n2", "run")
	if err != nil {
		t.Fatal(err)
	}
	if c.Live(t.Context(), time.Hour) {
		t.Error("it has ended, and lives on")
	}
	c.Kill()
	said, err := os.ReadFile(log)
	if want := "mirror run " + s.URL() + " --queue a --codec bytes --server http://n1,http://n2 --hold " +
		"1s\n"; string(said) != want || err != nil {
		t.Errorf("it was %q, %v", said, err)
	}
}

// TestStartWithout: without redis-server, the error says how to get it.
func TestStartWithout(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(t.Context(), t.TempDir(), host()); err == nil ||
		!strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Errorf("without redis-server: %v", err)
	}
}
