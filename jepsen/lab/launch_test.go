package lab

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// bare is a network without connections.
type bare struct{}

func (bare) Host(string) string                       { return "127.0.0.1" }
func (bare) Advertised(string) string                 { return "127.0.0.1" }
func (bare) ClientURL(string, string) (string, error) { return "", errors.New("nobody is asked") }
func (bare) Wrap(string, *exec.Cmd) error             { return nil }
func (bare) Add(context.Context, string) error        { return nil }

// TestStartTwice starts a node from many goroutines at once, as a crash loop does that kills before
// the server serves: there must be one process, or two would share the data directory.
func TestStartTwice(t *testing.T) {
	dir := t.TempDir()
	book := filepath.Join(dir, "starts")
	program := filepath.Join(dir, "server")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho start >>"+book+"\necho serves\nexec cat <>"+
		filepath.Join(dir, "never")+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "mkfifo", filepath.Join(dir, "never")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l, err := New(Config{
		Dir: dir, Program: program, Names: []string{"n1"}, Network: bare{}, Shards: 1, SnapshotBytes: 1,
		Logger: slog.New(slog.DiscardHandler),
		Data:   func(string) (string, error) { return dir, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Kill)
	var starts sync.WaitGroup
	for range 8 {
		starts.Go(func() {
			if err := l.Node("n1").Start(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	b, err := os.ReadFile(book)
	if err != nil || strings.Count(string(b), "start") != 1 {
		t.Errorf("%d processes were started (%v)", strings.Count(string(b), "start"), err)
	}
}

// TestStartAfterKill: a process that was killed and that its disk still holds is no node that runs.
// A start of the node waits for the end of the process, or fails if the end did not come.
func TestStartAfterKill(t *testing.T) {
	dying := &life{asked: make(chan struct{}), ended: make(chan struct{})}
	n := &Node{Name: "n1", life: dying}
	close(dying.asked)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Start(ctx); err == nil {
		t.Error("a node was taken for started whose process is about to end")
	}
}
