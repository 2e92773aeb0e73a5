package server

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/node/identity"
)

// TestDepartedServerStaysDown: what the cluster said ends the server, is kept in the data
// directory, and refuses its next start; it does not count in a directory that has become another
// node's.
func TestDepartedServerStaysDown(t *testing.T) {
	cfg := Config{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", Alone: true, Logger: slog.New(slog.DiscardHandler),
		Fatal: func(err error) { t.Errorf("storage failed: %v", err) },
	}
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Departed(); err != nil {
		t.Errorf("a node of its cluster has left it: %v", err)
	}
	st := s.Status()
	s.removal.receive(&catalog.DepartedError{ServerID: st.ServerID, ClusterID: st.ClusterID, Replacement: "n1.2"})
	s.removal.receive(&catalog.DepartedError{ServerID: st.ServerID, ClusterID: st.ClusterID})
	<-s.Done()
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stopping: %v", err)
	}
	_, again := Start(t.Context(), cfg)
	for _, err := range []error{s.Departed(), again} {
		left, ok := errors.AsType[*DepartedError](err)
		if !ok || left.Err.Replacement != "n1.2" || left.Dir != cfg.Dir {
			t.Fatalf("it says %v", err)
		}
		for _, want := range []string{st.ServerID, st.ClusterID, "n1.2", cfg.Dir, "empty data directory"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
	}
	record, err := os.ReadFile(filepath.Join(cfg.Dir, departedFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"another cluster":     strings.ReplaceAll(string(record), st.ClusterID, "c0"),
		"another incarnation": strings.ReplaceAll(string(record), st.ServerID, "n1.0"), "nothing": "",
	} {
		if err := os.WriteFile(filepath.Join(cfg.Dir, departedFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkDeparted(cfg.Dir); err != nil {
			t.Errorf("a record of %s counts: %v", name, err)
		}
	}
	if _, exists, err := identity.Identify(cfg.Dir); err != nil || !exists {
		t.Errorf("the directory is no node's any more: %v", err)
	}
}

// TestNoticeThatCannotBeSaved is received all the same.
func TestNoticeThatCannotBeSaved(t *testing.T) {
	f := newRemovalNotice(filepath.Join(t.TempDir(), "missing"))
	f.receive(&catalog.DepartedError{ServerID: "n1.1", ClusterID: "c"})
	<-f.received
	if _, ok := errors.AsType[*DepartedError](f.cause()); !ok ||
		!strings.Contains(f.cause().Error(), "could not be written down") {
		t.Error(f.cause())
	}
}
