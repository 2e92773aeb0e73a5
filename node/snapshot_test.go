package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/raftgroup"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// digests returns the digests of the shards.
func digests(n *Node) (all []uint64) {
	for _, st := range n.Status().Shards {
		all = append(all, st.Digest)
	}
	return all
}

func TestSnapshotIsTakenByVolumeAndRestored(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, dir)
		cfg.SnapshotBytes = 50_000
		n := openNode(t, cfg)
		for range 60 {
			do(t, n, 0, put("orders", strings.Repeat("x", 1000), 0))
		}
		held := reserve(t, n, 0, "orders", 0)[0]
		synctest.Wait()
		st := n.Stats().Shards[0]
		if st.Snapshot.Taken != 1 || st.Snapshot.Index == 0 || st.Snapshot.Bytes < 40_000 ||
			st.Snapshot.LoggedBytes > 30_000 {
			t.Errorf("snapshot stats are %+v", st.Snapshot)
		}
		if first := st.Storage.Log.FirstIndex; first != st.Snapshot.Index+1 {
			t.Errorf("the log begins at %d, want right after the snapshot at %d", first, st.Snapshot.Index)
		}
		if other := n.Stats().Shards[1].Snapshot; other.Taken != 0 {
			t.Errorf("the idle shard took %d snapshots", other.Taken)
		}
		want := digests(n)
		image := crashImage(t, dir)
		closeNode(t, n)

		cfg.Dir = image
		n = openNode(t, cfg)
		if held, ok := peek(t, n, held); !ok || held.State != fsm.Reserved {
			t.Errorf("the reserved job is %+v, %v", held, ok)
		}
		closeNode(t, n)
		// The Lead of a restart changes the digest; what was restored before it does not.
		if got := digestsBeforeLead(t, image, 0); got != want[0] {
			t.Errorf("digest after the restart is %x, want %x", got, want[0])
		}
	})
}

// When the newest snapshot was written is known after a restart as well, and of a shard that has
// none nothing is.
func TestSnapshotAgeOutlivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, "/data")
		cfg.FS = diskfault.New()
		n := openNode(t, cfg)
		do(t, n, 0, put("orders", "x", 0))
		if err := n.Snapshot(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		before := n.Stats().Shards
		if since := time.Since(before[0].Snapshot.At); since < 0 || since > time.Minute || before[0].Snapshot.Taken != 1 {
			t.Errorf("when a snapshot was just taken the stats are %+v", before[0].Snapshot)
		}
		closeNode(t, n)
		time.Sleep(time.Hour)
		n = openNode(t, cfg)
		after := n.Stats().Shards
		want := SnapshotStats{Index: before[0].Snapshot.Index, At: before[0].Snapshot.At, Bytes: before[0].Snapshot.Bytes}
		got := after[0].Snapshot
		got.LoggedBytes, got.DueBytes = 0, 0
		if diff := cmp.Diff(want, got); diff != "" || want.Bytes == 0 {
			t.Errorf("after a restart (-want +got):\n%s", diff)
		}
		if at := after[1].Snapshot.At; !at.IsZero() {
			t.Errorf("a shard without a snapshot has one of %v", at)
		}
		closeNode(t, n)
	})
}

// peek returns the job of a grant.
func peek(t *testing.T, n *Node, g fsm.Grant) (job fsm.Job, ok bool) {
	t.Helper()
	n.shards[0].Load().view(func(m *machine.Machine, _ fsm.Time) { job, ok = m.Held(refOf(g)) })
	return job, ok
}

// digestsBeforeLead rebuilds a shard of a closed data directory from its snapshot and log, up to
// its last restart.
func digestsBeforeLead(t *testing.T, dir string, number uint32) uint64 {
	t.Helper()
	id, err := identity.Load(Config{Dir: dir}.withDefaults().identity())
	if err != nil {
		t.Fatal(err)
	}
	stores, err := storage.Open(identity.ShardDir(dir, number),
		storage.Config{Group: id.ClusterID + "/" + id.ServerID() + "/" + founding.ShardGroup(number)})
	if err != nil {
		t.Fatal(err)
	}
	defer stores.Close()
	newest, _ := stores.Snapshots.Newest()
	_, source, err := stores.Snapshots.Open(newest.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	m, err := machine.Restore(fsm.Config{}, source)
	if err != nil {
		t.Fatal(err)
	}
	last, err := stores.Log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	digest := m.Digest()
	for i := newest.Index + 1; i <= last; i++ {
		var entry raft.Log
		if err := stores.Log.GetLog(i, &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Type != raft.LogCommand {
			continue
		}
		_, requests, err := codec.DecodeEntry(entry.Data)
		if err != nil {
			t.Fatal(err)
		}
		if requests[0].Commands[0].Kind() == fsm.KindLead {
			return digest
		}
		if _, err := m.Apply(i, entry.Data); err != nil {
			t.Fatal(err)
		}
		digest = m.Digest()
	}
	t.Fatal("the log has no Lead after the snapshot")
	return 0
}

func TestSnapshotOnDemand(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	w := do(t, n, 1, put("orders", "x", 0)).Witness
	for range 2 { // the second finds nothing new to do and says so by success
		if err := n.Snapshot(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if st := n.Stats().Shards[1].Snapshot; st.Index != w.Index || st.At.IsZero() {
		t.Errorf("after a snapshot at %d the stats are %+v", w.Index, st)
	}
}

// counter is a machine that counts its entries and can be made to fail.
type counter struct {
	count     uint64
	writeErr  error
	released  *int
	refuse    string
	badDigest bool
}

func (c *counter) Apply(_ uint64, entry []byte) (any, error) {
	if string(entry) == c.refuse {
		return nil, fmt.Errorf("what is %q?", entry)
	}
	c.count++
	return c.count, nil
}

func (c *counter) Snapshot() MachineSnapshot {
	s := *c
	return &s
}

func (c *counter) WriteTo(w io.Writer) (int64, error) {
	if c.writeErr != nil {
		return 0, c.writeErr
	}
	n, err := fmt.Fprint(w, c.count)
	return int64(n), err
}

func (c *counter) Release() { *c.released++ }

func (c *counter) Restore(r io.Reader) (Machine, error) {
	restored := *c
	if _, err := fmt.Fscan(r, &restored.count); err != nil {
		return nil, err
	}
	if c.badDigest {
		restored.count++
	}
	return &restored, nil
}

func (c *counter) Digest() uint64 { return c.count }

// openCounter starts a group with a counter on a node.
func openCounter(t *testing.T, n *Node, c *counter) *Group {
	t.Helper()
	g, err := n.StartGroup(t.Context(), GroupConfig{Name: "counter", Machine: c})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGroupIsReplicatedAndRestored(t *testing.T) {
	dir := t.TempDir()
	released := 0
	n := openNode(t, testConfig(t, dir))
	g := openCounter(t, n, &counter{released: &released})
	for want := range uint64(10) {
		reply, err := g.Propose(t.Context(), []byte("x"))
		if err != nil || reply.Value != want+1 || reply.Term == 0 || reply.Index == 0 {
			t.Fatalf("entry %d was answered %+v, %v", want, reply, err)
		}
		if want == 4 {
			if err := g.group.TakeSnapshot(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if released != 1 || !g.Serving() {
		t.Errorf("released %d snapshots, want 1; serving: %v", released, g.Serving())
	}
	closeNode(t, n)
	n = openNode(t, testConfig(t, dir))
	g = openCounter(t, n, &counter{released: &released})
	g.View(func(m Machine) {
		if got := m.(*counter).count; got != 10 {
			t.Errorf("after the restart the count is %d, want 10", got)
		}
	})
	st := n.Status().Groups
	if len(st) != 1 || st[0].Group != "counter" || st[0].Digest != 10 || !st[0].Serving {
		t.Errorf("status of the groups is %+v", st)
	}
}

func TestGroupThatDoesNotRestoreIsRefused(t *testing.T) {
	dir := t.TempDir()
	n := openNode(t, testConfig(t, dir))
	g := openCounter(t, n, &counter{released: new(int)})
	if _, err := g.Propose(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := g.group.TakeSnapshot(); err != nil {
		t.Fatal(err)
	}
	closeNode(t, n)
	n = openNode(t, testConfig(t, dir))
	if _, err := n.StartGroup(t.Context(), GroupConfig{Name: "counter", Machine: &counter{badDigest: true}}); err == nil {
		t.Error("a snapshot whose restored state has another digest was accepted")
	}
}

func TestMachineThatCannotApplyStopsTheNode(t *testing.T) {
	cfg := testConfig(t, t.TempDir())
	gaveUp := make(chan error, 1)
	cfg.Fatal = func(err error) { gaveUp <- err }
	n := openNode(t, cfg)
	g := openCounter(t, n, &counter{refuse: "poison", released: new(int)})
	if _, err := g.Propose(t.Context(), []byte("poison")); outcome.Of(err) != outcome.Unknown {
		t.Errorf("the entry ended with %v", err)
	}
	if err := <-gaveUp; !strings.Contains(err.Error(), `what is "poison"?`) {
		t.Errorf("the node gave up with %v", err)
	}
	if _, err := g.Propose(t.Context(), []byte("x")); outcome.Of(err) != outcome.Unknown {
		t.Errorf("an entry after that ended with %v: the machine must not go on without the one before", err)
	}
	if err := g.group.TakeSnapshot(); err == nil {
		t.Error("a broken replica wrote a snapshot")
	}
}

func TestGroupNames(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	for _, name := range []string{"", "a/b", "..", strings.Repeat("x", 65)} {
		if _, err := n.StartGroup(t.Context(), GroupConfig{Name: name, Machine: &counter{}}); err == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
}

func TestGroupLeads(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	led, ended := make(chan *Group, 1), make(chan struct{})
	g, err := n.StartGroup(t.Context(), GroupConfig{Name: "counter", Machine: &counter{},
		Lead: func(ctx context.Context, g *Group) {
			led <- g
			<-ctx.Done()
			close(ended)
		}})
	if err != nil {
		t.Fatal(err)
	}
	if got := <-led; got != g {
		t.Error("Lead was given another group")
	}
	closeNode(t, n)
	<-ended
	if _, err := g.Propose(t.Context(), nil); !errors.Is(err, outcome.ErrNoLeader) {
		t.Errorf("a proposal after the end ended with %v", err)
	}
}

// A replica that was restored and has applied nothing since knows all the same where it stands.
func TestRestoredReplicaKnowsItsPosition(t *testing.T) {
	dir := t.TempDir()
	n := openNode(t, testConfig(t, dir))
	g := openCounter(t, n, &counter{released: new(int)})
	reply, err := g.Propose(t.Context(), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.group.TakeSnapshot(); err != nil {
		t.Fatal(err)
	}
	closeNode(t, n)
	n = openNode(t, testConfig(t, dir))
	g = openCounter(t, n, &counter{released: new(int)})
	g.group.Replica().View(func(_ Machine, at raftgroup.Position) {
		if at.Term != reply.Term || at.Index != reply.Index {
			t.Errorf("the replica stands at %+v, want %d, %d", at, reply.Index, reply.Term)
		}
	})
	if st := n.Status().Groups[0]; st.Digest != 1 || st.DigestIndex != reply.Index {
		t.Errorf("the status is %+v, want the digest of entry %d", st, reply.Index)
	}
}
