package doctor

import (
	"bytes"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func noon() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// expectFindings fails the test unless there is one finding for each text, which has it, and says
// what to do.
func expectFindings(t *testing.T, b *Bundle, want ...string) {
	t.Helper()
	if len(b.Findings) != len(want) {
		t.Fatalf("found %q, want %q", b.Findings, want)
	}
	for i, f := range b.Findings {
		if !strings.Contains(f.What, want[i]) || f.Do == "" {
			t.Errorf("found %q, want %q", f, want[i])
		}
	}
}

// TestClusterFindings: what looks wrong in the cluster is in the bundle, redacted.
func TestClusterFindings(t *testing.T) {
	b := New(Names{})
	b.Cluster(&belfryv1.GetClusterResponse{
		Problems: []string{"the catalog is late: redis://u:hunter2@h"}, Advice: []string{"min-voters is 1"}})
	expectFindings(t, b, "the catalog is late", "advice: min-voters is 1")
	if strings.Contains(b.Findings[0].What, "hunter2") {
		t.Errorf("a password is in the bundle: %q", b.Findings)
	}
}

func TestReadyFindings(t *testing.T) {
	b := New(Names{})
	b.Ready(200, "[+]serving ok\nready\n")
	b.Ready(200, "[+]serving ok\n[!]shard-1 warning: no leader is known\nready\n")
	b.Ready(503, "[+]serving ok\n[-]disk failed: nearly full: 12 bytes free\n[-]shard-3 failed: no leader is known\nnot "+
		"ready\n")
	b.Ready(503, "waiting for 3 nodes; n2 at 10.0.0.2:7402 has another key\n")
	expectFindings(t, b, "ready, with a shard-1 warning: no leader", "not ready: disk failed: nearly full",
		"not ready: shard-3 failed: no leader", "not ready: waiting for 3 nodes")
	if !strings.Contains(b.Findings[1].Do, "free space") || !strings.Contains(b.Findings[3].Do, "--gossip-keys") {
		t.Errorf("what to do: %q", b.Findings)
	}
}

func TestClockFindings(t *testing.T) {
	for name, test := range map[string]struct {
		server time.Duration // from when it was asked; the answer came two seconds later
		want   []string
	}{
		"right": {time.Second, nil}, "at the end": {2 * time.Second, nil}, "rounded down": {-time.Second, nil},
		"a little ahead": {3 * time.Second, nil},
		"ahead":          {62 * time.Second, []string{"the server's clock is 1m0s from"}},
		"behind":         {-time.Minute, []string{"the server's clock is -1m0s from"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(Names{})
			b.Clock(noon(), noon().Add(2*time.Second), noon().Add(test.server))
			expectFindings(t, b, test.want...)
		})
	}
	b := New(Names{})
	b.Clock(noon(), noon(), time.Time{})
	expectFindings(t, b)
}

func TestCertificateFindings(t *testing.T) {
	b := New(Names{})
	for _, left := range []time.Duration{15 * 24 * time.Hour, 13 * 24 * time.Hour, 0} {
		b.Certificate("n1", &x509.Certificate{NotBefore: noon().Add(-time.Hour), NotAfter: noon().Add(left)}, noon())
	}
	b.Certificate("n2", &x509.Certificate{
		NotBefore: noon().Add(time.Hour), NotAfter: noon().Add(1000 * time.Hour),
	}, noon())
	expectFindings(t, b, "of n1 ends at 2026-12-04", "of n1 ended at 2026-11-21", "of n2 begins at")
}

func TestMetricsFindings(t *testing.T) {
	b := New(Names{})
	b.Metrics("process_max_fds 1000\nprocess_open_fds 800\nbelfry_peer_changed_total 0\n")
	expectFindings(t, b)
	b.Metrics("process_max_fds 1000\nprocess_open_fds 801\nbelfry_peer_changed_total 2\n")
	expectFindings(t, b, "has 801 of 1000 files open", "2 connections between nodes")
}

// A directory that is not there is missing; nothing else fails for it.
func TestMachine(t *testing.T) {
	b := New(Names{})
	b.Machine(t.TempDir())
	if len(b.Missing) > 0 || len(b.Parts) != 2 || !strings.Contains(b.Parts[0].text, "system ") {
		t.Errorf("missing %q, parts %v", b.Missing, b.Parts)
	}
	b = New(Names{})
	b.Machine(t.TempDir() + "/nowhere")
	if len(b.Missing) == 0 || len(b.Parts) != 2 {
		t.Errorf("missing %q, parts %v", b.Missing, b.Parts)
	}
	var out bytes.Buffer
	if err := b.Write(&out, noon()); err != nil || out.Len() == 0 {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
}
