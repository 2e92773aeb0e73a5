package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestRun runs a cluster of one node, which holds, and judges it again with one answer altered and
// with one call left out, which must not.
func TestRun(t *testing.T) {
	program, err := build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{
		"run", "--nodes", "1", "--shards", "2", "--time", "2s", "--workload", "stall", "--nemesis", "none", "--network",
		"loopback", "--program", program, "--dir", dir,
	}
	if err := verdictOf(t, args, "verdict: valid"); err != nil {
		t.Fatal(err)
	}
	if err := command(t.Context(), args, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("another run in the same directory: %v", err)
	}
	if err := verdictOf(t, []string{"check", dir}, "verdict: valid"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, historyName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := history.Read(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	alter(t, h)
	if err := writeFile(path, h.Write); err != nil {
		t.Fatal(err)
	}
	if err := verdictOf(t, []string{"check", dir}, "verdict: invalid: "); !errors.Is(err, errInvalid) {
		t.Errorf("with another answer: %v", err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	if err := os.WriteFile(path, bytes.Join(lines[:len(lines)-2], nil), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := command(t.Context(), []string{"check", dir}, &bytes.Buffer{}); err == nil ||
		!strings.Contains(err.Error(), "calls, not") {
		t.Errorf("with a call less: %v", err)
	}
}

// verdictOf carries out a command and looks for its last line.
func verdictOf(t *testing.T, args []string, want string) error {
	t.Helper()
	var out bytes.Buffer
	err := command(t.Context(), args, &out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if !strings.HasPrefix(lines[len(lines)-1], want) {
		t.Errorf("%s ends with %q, %v; want %q", args[0], lines[len(lines)-1], err, want)
	}
	return err
}

// alter has the first job that was handed out be handed out as another one.
func alter(t *testing.T, h *history.History) {
	t.Helper()
	for _, o := range h.Ops() {
		if answer, ok := o.Response.(*belfryv1.ReserveResponse); ok && o.Workload == "stall" && len(answer.GetJobs()) > 0 {
			answer.GetJobs()[0].Attempt++
			return
		}
	}
	t.Fatal("no job was handed out")
}
