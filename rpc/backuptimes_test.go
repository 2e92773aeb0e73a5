package rpc

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/rpc/admin"
)

// backupTimes is a BackupTimes in memory.
type backupTimes struct {
	at     time.Time
	broken error
}

func (b *backupTimes) Last() time.Time { return b.at }

func (b *backupTimes) Keep(at time.Time) error {
	if b.broken == nil {
		b.at = at
	}
	return b.broken
}

// shownBackups returns what the metrics say of when the last backup was sent.
func shownBackups(t *testing.T, registry *prometheus.Registry) (all []float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "belfry_backup_timestamp_seconds" {
			all = append(all, f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	return all
}

// TestLastBackupShows: nothing is said of backups before there was one, whether or not it could be
// kept.
func TestLastBackupShows(t *testing.T) {
	for name, kept := range map[string]admin.BackupTimes{
		"nowhere": nil, "in a file": &backupTimes{}, "not, for want of a disk": &backupTimes{broken: errors.New("no disk")},
	} {
		registry := prometheus.NewRegistry()
		client := serveBackups(t, &exportingNode{}, &listingCatalog{}, func(c *Config) {
			c.Registry, c.Backups, c.Logger, c.Now = registry, kept, slog.New(slog.DiscardHandler), func() time.Time {
				return time.Unix(1700000000, 0)
			}
		})
		if got := shownBackups(t, registry); got != nil {
			t.Errorf("kept %s, %v is shown before there was a backup", name, got)
		}
		if _, err := receiveBackup(t, client); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]float64{1700000000}, shownBackups(t, registry)); diff != "" {
			t.Errorf("kept %s, the last backup (-want +got):\n%s", name, diff)
		}
	}
}

// TestLastBackupIsKept: what was kept is shown from the start, and is replaced by a backup that is
// whole, not by one that failed.
func TestLastBackupIsKept(t *testing.T) {
	kept, n, registry := &backupTimes{at: time.Unix(1600000000, 0)}, &exportingNode{broken: errors.New("no leader")},
		prometheus.NewRegistry()
	client := serveBackups(t, n, &listingCatalog{}, func(c *Config) {
		c.Registry, c.Backups, c.Logger, c.Now = registry, kept, slog.New(slog.DiscardHandler), func() time.Time {
			return time.Unix(1700000000, 0)
		}
	})
	for _, want := range []int64{1600000000, 1700000000} {
		if _, err := receiveBackup(t, client); (err != nil) != (n.broken != nil) {
			t.Errorf("a backup ended with %v, want %v", err, n.broken)
		}
		if diff := cmp.Diff([]float64{float64(want)}, shownBackups(t, registry)); diff != "" || kept.at.Unix() != want {
			t.Errorf("kept is %d; shown (-want +got):\n%s", kept.at.Unix(), diff)
		}
		n.broken = nil
	}
}
