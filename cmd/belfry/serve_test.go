package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
)

// TestDamagedFilesHaveTheirExitCode: a supervisor can tell damage from what passes by itself.
func TestDamagedFilesHaveTheirExitCode(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "node.json")
	if err := os.WriteFile(file, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, nil)
	got := h.Run("serve", "--data", dir, "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--gossip-listen",
		"127.0.0.1:0")
	if got.Code != cli.CodeStorage || !strings.Contains(got.Err, file+" is damaged at offset ") {
		t.Errorf("got %+v, want exit code 11 and the file that is damaged", got)
	}
}

// TestEveryLineOfTheLogIsJSON: also the line that says why there is no server, where no person
// reads; the exit code is the same.
func TestEveryLineOfTheLogIsJSON(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	h := newHarness(t, nil)
	got := h.Run("serve", "--data", t.TempDir(), "--listen", taken.Addr().String(), "--peer-listen", "127.0.0.1:0",
		"--gossip-listen", "127.0.0.1:0", "--log-level", "debug")
	for line := range strings.Lines(got.Err) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line is no JSON: %s", line)
		}
	}
	if got.Code != cli.CodeError || !strings.Contains(got.Err, `"msg":"the server cannot go on"`) ||
		!strings.Contains(got.Err, "address already in use") {
		t.Errorf("%+v", got)
	}
}

// TestRefusedSettingsLeaveNothing: a server that no data directory could help makes none.
func TestRefusedSettingsLeaveNothing(t *testing.T) {
	for _, setting := range []string{"--shards 1025", "--shards 0", "--advertise n1:7400", "--advertise http://n1",
		"--listen 0.0.0.0:0", "--gossip-keys nowhere", "--zoneinfo nowhere", "--zone " + strings.Repeat("z", 300)} {
		dir := filepath.Join(t.TempDir(), "data")
		h := newHarness(t, nil)
		got := h.Run(append([]string{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0"},
			strings.Fields(setting)...)...)
		if _, err := os.Lstat(dir); got.Code != cli.CodeUsage || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%.30s: %+v, and the data directory: %v", setting, got, err)
		}
	}
}

// TestMetricsQueuesAreBounded: the setting that bounds the page of metrics has a bound itself.
func TestMetricsQueuesAreBounded(t *testing.T) {
	for _, value := range []string{"0", "-1", "10001", "100000000"} {
		h := newHarness(t, nil)
		if got := h.Run("serve", "--metrics-max-queues", value, "--print-config"); got.Code != cli.CodeUsage ||
			!strings.Contains(got.Err, "--metrics-max-queues: have "+value+", want 1 to 10000") {
			t.Errorf("%s: %+v", value, got)
		}
	}
	h := newHarness(t, nil)
	if got := h.Run("serve", "--metrics-max-queues", "10000", "--print-config"); got.Code != cli.CodeOK {
		t.Errorf("10000: %+v", got)
	}
}
