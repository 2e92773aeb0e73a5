package node

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/recovery"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// openRecovery opens the recovery of a directory of shards alone.
func openRecovery(t *testing.T, dir string) *recovery.Recovery {
	t.Helper()
	r, err := OpenRecovery(RecoveryConfig{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// filled makes a data directory of two shards with so many jobs in each, and returns the id of its
// cluster.
func filled(t *testing.T, dir string, jobs int) (clusterID string) {
	t.Helper()
	n, err := Open(t.Context(), Config{Dir: dir, Shards: 2, Logger: slog.New(slog.DiscardHandler), Fatal: func(err error) {
		t.Error(err)
	}})
	if err != nil {
		t.Fatal(err)
	}
	for shard := range uint32(2) {
		for range jobs {
			if _, err := n.Do(t.Context(), shard, &fsm.Request{
				Commands: []fsm.Command{&fsm.Put{Queue: "q", Partitions: 1}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := n.RequireVoters(2); err != nil {
		t.Fatal(err)
	}
	clusterID = n.Status().ClusterID
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return clusterID
}

// checkRecovered starts a recovered directory and looks for its jobs.
func checkRecovered(t *testing.T, dir, old string, jobs ...int) {
	t.Helper()
	n, err := Open(t.Context(), Config{Dir: dir, Logger: slog.New(slog.DiscardHandler), Fatal: func(err error) {
		t.Error(err)
	}})
	if err != nil {
		t.Fatal(err)
	}
	st := n.Status()
	if st.ClusterID == old {
		t.Error("it is the old cluster still")
	}
	if st.MinVoters != 1 {
		t.Errorf("it wants %d voters, and there is one", st.MinVoters)
	}
	if _, err := os.Stat(filepath.Join(dir, recovery.File)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a recovery seems to be in progress: %v", err)
	}
	for i, want := range jobs {
		if g := st.Shards[i]; g.Jobs != want || !g.Serving || len(g.Voters) != 1 {
			t.Errorf("shard %d has %d jobs, want %d; %+v", i, g.Jobs, want, g)
		}
	}
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// segmentFiles lists the files of a shard's log, except for their list.
func segmentFiles(t *testing.T, dir string, shard uint32) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(identity.ShardDir(dir, shard), "log", "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	return files
}

// TestRecoveryGoesOn ends a recovery after each of its steps: the node then does not start, and the
// next attempt completes it.
func TestRecoveryGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old := filled(t, dir, 5)
	cutOff := errors.New("cut off")
	r, err := recovery.Open(recovery.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler),
		Machine: func(group, _ string) (Machine, error) {
			if group == founding.ShardGroup(1) {
				return nil, cutOff
			}
			return newShardMachine(fsm.Config{}), nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	next := r.NextCluster()
	before := segmentFiles(t, dir, 0)
	if err := r.Run(); !errors.Is(err, cutOff) {
		t.Fatalf("a recovery that is cut off in the second group ends with %v", err)
	}
	if after := segmentFiles(t, dir, 0); len(after) != 1 || slices.Contains(before, after[0]) {
		t.Errorf("of the log of a recovered group there were %v, there are %v", before, after)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := Open(t.Context(), Config{Dir: dir, Logger: slog.New(slog.DiscardHandler),
		Fatal: func(error) {}}); err == nil {
		t.Errorf("a node starts on half a recovery: %v, closing it: %v", n.Status(), n.Close(t.Context()))
	}

	r = openRecovery(t, dir)
	done := slices.ContainsFunc(r.Groups(), func(g recovery.Group) bool { return g.Done })
	if r.NextCluster() != next || !done || len(r.Missing()) != 0 {
		t.Errorf("the second attempt makes %s, the first began %s; groups %+v", r.NextCluster(), next, r.Groups())
	}
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	checkRecovered(t, dir, old, 5, 5)

	// The last step is cut off: the file that says that a recovery is under way stays. Another
	// recovery makes another cluster.
	if err := disk.ReplaceFile(disk.OSFS{}, filepath.Join(dir, recovery.File), []byte(next+"\n")); err != nil {
		t.Fatal(err)
	}
	r = openRecovery(t, dir)
	if r.NextCluster() == next {
		t.Error("a second recovery would make the cluster that is there")
	}
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	checkRecovered(t, dir, next, 5, 5)
}

// TestRecoveryWithoutAShard recovers a node that had given a shard away: it begins empty. One that
// was set aside is kept beside.
func TestRecoveryWithoutAShard(t *testing.T) {
	t.Parallel()
	for _, aside := range []bool{false, true} {
		dir := t.TempDir()
		old := filled(t, dir, 3)
		id, err := identity.Read(disk.OSFS{}, dir)
		if err != nil {
			t.Fatal(err)
		}
		if aside {
			err = id.Quarantine(founding.ShardGroup(1))
		} else {
			err = id.Leave(founding.ShardGroup(1))
		}
		if err != nil {
			t.Fatal(err)
		}
		r := openRecovery(t, dir)
		if missing := r.Missing(); !slices.Equal(missing, []uint32{1}) {
			t.Errorf("missing are %d", missing)
		}
		if err := r.Run(); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		checkRecovered(t, dir, old, 3, 0)
		kept, err := filepath.Glob(filepath.Join(dir, "shards", "0001."+old))
		if err != nil || (len(kept) == 1) != aside {
			t.Errorf("aside %t: kept %v, %v", aside, kept, err)
		}
	}
}

func TestRecoveryRefuses(t *testing.T) {
	t.Parallel()
	if _, err := OpenRecovery(RecoveryConfig{Dir: t.TempDir()}); err == nil ||
		!strings.Contains(err.Error(), "no data directory") {
		t.Errorf("an empty directory: %v", err)
	}
	dir := t.TempDir()
	filled(t, dir, 1)
	lock, err := disk.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRecovery(RecoveryConfig{Dir: dir}); err == nil {
		t.Error("a directory in use is opened")
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, recovery.File), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRecovery(RecoveryConfig{Dir: dir}); err == nil || !strings.Contains(err.Error(), "no cluster id") {
		t.Errorf("a damaged note: %v", err)
	}
}
