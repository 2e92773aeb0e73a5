package server_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/server"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// TestDataDirectoryInUse: a second server on a data directory is refused before it says anything to
// other nodes, in gossip neither: it would say it in the first one's name.
func TestDataDirectoryInUse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		first func(t *testing.T, cfg server.Config)
	}{
		{"by a node", func(t *testing.T, cfg server.Config) { start(t, cfg) }},
		{"by one that looks for its cluster", func(t *testing.T, cfg server.Config) {
			cfg.Join = []string{addresses.Free(t)}
			startWaiting(t, cfg)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, t.TempDir())
			test.first(t, cfg)
			var log logbook
			cfg.Logger = log.logger()
			cfg.Join = []string{addresses.Free(t)}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for one that is not refused
			defer cancel()
			s, err := server.Start(ctx, cfg)
			if err == nil {
				stop(t, s)
			}
			if locked, ok := errors.AsType[*disk.LockedError](err); !ok || locked.PID != os.Getpid() ||
				!strings.Contains(err.Error(), cfg.Dir) {
				t.Errorf("the second start ended with %v, want that process %d has %s", err, os.Getpid(), cfg.Dir)
			}
			if said := log.String(); strings.Contains(said, "listening for other nodes") {
				t.Errorf("it gossiped:\n%s", said)
			}
		})
	}
}
