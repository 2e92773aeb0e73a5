package node

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/outcome"
)

func TestQuarantine(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, dir)
		n := openNode(t, cfg)
		do(t, n, 1, put("orders", "x", 0))
		st := n.Status().Shards[1]
		own := IndexDigest{Index: st.DigestIndex, Digest: st.Digest}
		if err := n.Quarantine(t.Context(), st.Group, own); !errors.Is(err, outcome.ErrDisproved) {
			t.Errorf("a replica that does not differ: %v", err)
		}
		if err := n.Quarantine(t.Context(), "shard-9", own); !errors.Is(err, outcome.ErrNotHere) {
			t.Errorf("a group that is not here: %v", err)
		}
		expectHere(t, n, 0, 1)
		if err := n.Quarantine(t.Context(), st.Group, IndexDigest{Index: own.Index, Digest: own.Digest + 1}); err != nil {
			t.Fatal(err)
		}
		aside := func(what string) {
			t.Helper()
			expectHere(t, n, 0)
			if got := n.Status().Quarantined; !slices.Equal(got, []string{st.Group}) {
				t.Errorf("%s %v are set aside", what, got)
			}
			if _, err := n.Do(t.Context(), 1, &fsm.Request{}); !errors.Is(err, outcome.ErrNotHere) {
				t.Errorf("%s a call gives %v", what, err)
			}
			if err := n.StartShard(t.Context(), 1); !errors.Is(err, errQuarantined) {
				t.Errorf("%s a start gives %v", what, err)
			}
		}
		aside("at once")
		closeNode(t, n)
		n = openNode(t, cfg)
		aside("after a restart")
		if left, err := filepath.Glob(filepath.Join(identity.ShardDir(dir, 1), "log", "*")); err != nil || len(left) == 0 {
			t.Errorf("the files are gone: %v, %v", left, err)
		}
		if err := n.StopShard(t.Context(), 1, wasRemoved); err != nil {
			t.Fatal(err)
		}
		if err := n.StartShard(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		expectHere(t, n, 0, 1)
		if st := n.Status(); len(st.Quarantined) != 0 || st.Shards[1].LastIndex != 0 {
			t.Errorf("after its return: %v are set aside, the log ends at %d", st.Quarantined, st.Shards[1].LastIndex)
		}
	})
}

// TestGroupThatDiffersEndsTheNode: a node cannot do without its replica of a group that is no
// shard.
func TestGroupThatDiffersEndsTheNode(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, dir)
		ended := make(chan error, 1)
		cfg.Fatal = func(err error) { ended <- err }
		n := openNode(t, cfg)
		g, err := n.StartGroup(t.Context(), GroupConfig{Name: "catalog", Machine: newShardMachine(fsm.Config{})})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Propose(t.Context(), codec.AppendEntry(nil, 1, nil)); err != nil {
			t.Fatal(err)
		}
		st := n.Status().Groups[0]
		wrong := IndexDigest{Index: st.DigestIndex, Digest: st.Digest + 1}
		if err := n.Quarantine(t.Context(), "catalog", wrong); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case err := <-ended:
			if !strings.Contains(err.Error(), "catalog") {
				t.Errorf("the node ended with %v", err)
			}
		default:
			t.Error("the node goes on")
		}
	})
}
