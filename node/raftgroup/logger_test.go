package raftgroup

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

func TestRaftLogsAtDebugLevel(t *testing.T) {
	var out bytes.Buffer
	to := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	l := NewLogger(to)
	l.Trace("t")
	l.Debug("d")
	l.Info("i", "servers", hclog.Fmt("%d of %s", 3, "four"))
	l.Warn("w", "index", 7)
	l.With("peer", "n2").Named("x").ResetNamed("y").Error("e", "odd")
	l.StandardLogger(nil).Print("standard")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{
		"raft: t\" raft_level=trace", "raft: d\" raft_level=debug", "raft_level=info servers=\"3 of four\"",
		"raft_level=warn index=7", "peer=n2 raft_level=error", "standard",
	}
	for i, line := range lines {
		if i >= len(want) || !strings.Contains(line, want[i]) || !strings.Contains(line, "level=DEBUG") {
			t.Errorf("line %d is %s", i, line)
		}
	}
	if len(lines) != len(want) || !l.IsTrace() || !l.IsDebug() || !l.IsInfo() || !l.IsWarn() || !l.IsError() ||
		l.GetLevel() != hclog.Trace {
		t.Errorf("%d lines were written", len(lines))
	}
}

// TestRaftKeysAreNotTwice: a line of JSON has each key once, whatever the library calls what it
// says.
func TestRaftKeysAreNotTwice(t *testing.T) {
	var out bytes.Buffer
	l := NewLogger(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	l.Warn("failed to contact", "server-id", "n2", "time", "2s", "level", 1, "msg", "time")
	for _, key := range []string{`"time":`, `"level":`, `"msg":`, `"raft_time":"2s"`, `"raft_msg":"time"`} {
		if strings.Count(out.String(), key) != 1 {
			t.Errorf("%s is not there once: %s", key, out.String())
		}
	}
}

func TestRaftIsSilentAboveDebugLevel(t *testing.T) {
	var out bytes.Buffer
	l := NewLogger(slog.New(slog.NewTextHandler(&out, nil)))
	l.SetLevel(hclog.Trace)
	l.Error("e")
	if l.IsError() || l.GetLevel() != hclog.Off || out.Len() > 0 {
		t.Errorf("written: %s", out.String())
	}
}

func TestRaftLoggerKeepsNameAndArguments(t *testing.T) {
	l := NewLogger(slog.New(slog.DiscardHandler)).Named("raft").With("a", 1).With("b", 2)
	if l.Name() != "raft" || len(l.ImpliedArgs()) != 4 {
		t.Errorf("name %q, arguments %v", l.Name(), l.ImpliedArgs())
	}
}
