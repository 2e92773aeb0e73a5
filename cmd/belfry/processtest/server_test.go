package processtest

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/belfrydb/belfry/client"
)

// TestServer starts a server, stops and kills it, and finds what was put at the same address each
// time.
func TestServer(t *testing.T) {
	var program Program
	t.Cleanup(func() {
		if err := program.Remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(program.dir); !os.IsNotExist(err) {
			t.Errorf("what was built is still there: %v", err)
		}
	})
	s := program.New(t, filepath.Join(t.TempDir(), "data"), "--shards", "1")
	s.Start()
	out, err := program.Run(t.Context(), "put", "orders", "x", "--delay", "1h", "--id", "one", "--server", s.URL())
	if err != nil || !strings.HasPrefix(out, "put one") {
		t.Fatalf("putting: %q, %v", out, err)
	}
	if _, err := program.Run(t.Context(), "get", "orders", "two", "--server", s.URL()); err == nil ||
		!strings.Contains(err.Error(), "JOB_NOT_FOUND") {
		t.Errorf("an error of the command: %v", err)
	}
	if err := s.Stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
	select {
	case <-s.Ended():
	default:
		t.Error("it was stopped and has not ended")
	}
	if !strings.Contains(Tail(s.Log(), 1), "msg=stopped") {
		t.Errorf("the log's last line is %q", Tail(s.Log(), 1))
	}
	s.Start()
	s.Restart()
	c, err := client.New(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if job, err := c.Get(t.Context(), "orders", "one"); err != nil || string(job.Body) != "x" {
		t.Errorf("after a stop and a kill: %v, %v", job, err)
	}
	if err := syscall.Kill(s.PID(), 0); err != nil {
		t.Errorf("the process: %v", err)
	}
	s.Kill()
	s.Kill() // of what has ended
	if err := syscall.Kill(s.PID(), 0); err == nil {
		t.Error("the process is still there")
	}
}

func TestTail(t *testing.T) {
	for _, tc := range []struct {
		text  string
		lines int
		want  string
	}{
		{"", 2, ""},
		{"a\nb\n", 2, "a\nb\n"},
		{"a\nb\nc\n", 2, "b\nc\n"},
		{"a\nb\nc\n", 0, ""},
	} {
		if got := Tail(tc.text, tc.lines); got != tc.want {
			t.Errorf("the last %d lines of %q are %q, want %q", tc.lines, tc.text, got, tc.want)
		}
	}
}
