package nodetest

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/node"
)

// TestLogBehindASnapshotIsAVolume: what is kept for followers that lag is measured in bytes, so
// that small entries do not make them fall back to a snapshot, and large ones do not fill the disk.
func TestLogBehindASnapshotIsAVolume(t *testing.T) {
	const trailingBytes = 100_000
	dirs := []string{t.TempDir(), t.TempDir()}
	for i, bodyBytes := range []int{200, 1000} {
		synctest.Test(t, func(t *testing.T) {
			c := New(t, Options{Dir: dirs[i], Configure: func(cfg *node.Config) { cfg.TrailingBytes = trailingBytes }})
			leader := c.Leader(0)
			for range 600 {
				do(t, leader, put(strings.Repeat("x", bodyBytes)))
			}
			if err := leader.Node.Snapshot(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			st := leader.Node.Stats().Shards[0]
			kept := int(st.Snapshot.Index-st.Storage.Log.FirstIndex) * bodyBytes
			if kept < trailingBytes/3 || kept > trailingBytes {
				t.Errorf("with bodies of %d bytes %d bytes of them are kept behind the snapshot, want about %d", bodyBytes, kept,
					trailingBytes)
			}
		})
	}
}
