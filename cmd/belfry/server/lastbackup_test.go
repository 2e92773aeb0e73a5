package server_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/server"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// lastBackup returns what the metrics say of when a server last sent a backup; zero if they say
// nothing.
func lastBackup(t *testing.T, s *server.Server) time.Time {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if value, ok := strings.CutPrefix(line, "belfry_backup_timestamp_seconds "); ok {
			seconds, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return time.Unix(int64(seconds), 0)
		}
	}
	return time.Time{}
}

// TestLastBackupOutlivesARestart: a node that starts again knows when it last sent a backup; a file
// that says nothing of the kind is named and keeps no node from its start.
func TestLastBackupOutlivesARestart(t *testing.T) {
	t.Parallel()
	cfg, said := config(t, t.TempDir()), &logbook{}
	cfg.Alone, cfg.Shards, cfg.Logger = true, 1, said.logger()
	s := start(t, cfg)
	if at := lastBackup(t, s); !at.IsZero() {
		t.Errorf("without a backup one was sent at %v", at)
	}
	backupOf(t, s)
	want := lastBackup(t, s)
	if want.IsZero() {
		t.Error("nothing is said of a backup that was sent")
	}
	stop(t, s)
	s = start(t, cfg)
	if got := lastBackup(t, s); !got.Equal(want) {
		t.Errorf("after a restart the last backup was sent at %v, want %v", got, want)
	}
	if got, err := admin(s).GetCluster(t.Context(), &belfryv1.GetClusterRequest{}); err != nil ||
		!got.Nodes[0].BackupAt.AsTime().Equal(want) {
		t.Errorf("after a restart the node says %v, %v; want a backup of %v", got, err, want)
	}
	stop(t, s)
	if err := os.WriteFile(filepath.Join(cfg.Dir, "last-backup"), []byte("yesterday"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = start(t, cfg)
	if at := lastBackup(t, s); !at.IsZero() || !strings.Contains(said.String(), "yesterday") {
		t.Errorf("a file that says \"yesterday\" was taken for %v; the log: %s", at, said.String())
	}
	backupOf(t, s)
	if lastBackup(t, s).IsZero() {
		t.Error("nothing is said of the next backup")
	}
}
