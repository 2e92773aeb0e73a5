package storage_test

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
)

// group is one real Raft instance on the stores of a library, in a synctest bubble, with peers the
// test plays.
type group struct {
	t      *testing.T
	lib    library
	dir    string
	id     raft.ServerID
	stores opened
	raft   *raft.Raft
	trans  *raft.InmemTransport
	fsm    *recorder
	peers  []*raft.InmemTransport
}

func newGroup(t *testing.T, lib library, dir string, id raft.ServerID) *group {
	t.Helper()
	g := &group{t: t, lib: lib, dir: dir, id: id}
	g.start()
	return g
}

func raftConfig(id raft.ServerID) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = id
	c.LogOutput = io.Discard
	return c
}

func (g *group) start() {
	g.t.Helper()
	g.stores = mustOpen(g.t, g.lib, g.dir)
	g.boot()
}

func (g *group) boot() {
	g.t.Helper()
	_, g.trans = raft.NewInmemTransport(raft.ServerAddress(g.id))
	g.fsm = &recorder{restored: make(chan struct{}, 8)}
	r, err := raft.NewRaft(raftConfig(g.id), g.fsm, g.stores.log, g.stores.stable, g.stores.snaps, g.trans)
	if err != nil {
		g.t.Fatalf("starting raft: %v", err)
	}
	g.raft = r
}

// peer returns a transport by which the test speaks as id.
func (g *group) peer(id raft.ServerAddress) *raft.InmemTransport {
	_, p := raft.NewInmemTransport(id)
	p.Connect(g.trans.LocalAddr(), g.trans)
	g.peers = append(g.peers, p)
	return p
}

func (g *group) disconnect(id raft.ServerAddress) { g.trans.Disconnect(id) }

func (g *group) connect(other *group) {
	g.trans.Connect(other.trans.LocalAddr(), other.trans)
	other.trans.Connect(g.trans.LocalAddr(), g.trans)
}

func (g *group) stop() {
	g.t.Helper()
	must(g.t, g.raft.Shutdown().Error())
	errs := []error{g.trans.Close(), g.stores.close()}
	for _, p := range g.peers {
		errs = append(errs, p.Close())
	}
	must(g.t, errors.Join(errs...))
}

// restart is the rule of Stores.RestartNeeded.
func (g *group) restart() {
	g.t.Helper()
	g.stop()
	g.peers = nil
	g.start()
}

// laggingReplica is a sound replica in memory that has entries 1 to 100 of term 1.
func laggingReplica(t *testing.T, id raft.ServerID, servers ...raft.ServerID) *group {
	t.Helper()
	store := raft.NewInmemStore()
	g := &group{t: t, id: id, stores: opened{
		log: store, stable: store, snaps: raft.NewInmemSnapshotStore(), close: func() error { return nil },
	}}
	seedLog(t, g.stores, servers...)
	must(t, store.SetUint64([]byte("CurrentTerm"), 1))
	must(t, store.StoreLogs(entries(2, 100, 1)))
	g.boot()
	return g
}

func configurationOf(ids ...raft.ServerID) raft.Configuration {
	var c raft.Configuration
	for _, id := range ids {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: id, Address: raft.ServerAddress(id)})
	}
	return c
}

// seedLog stores the configuration as entry 1 of term 1.
func seedLog(t *testing.T, o opened, ids ...raft.ServerID) {
	t.Helper()
	must(t, o.stable.SetUint64([]byte("CurrentTerm"), 1))
	must(t, o.log.StoreLog(&raft.Log{
		Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(configurationOf(ids...)),
	}))
}

func header(id string) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(id)}
}

// install sends a snapshot as the leader of term, and fails the test unless it is taken.
func install(t *testing.T, from *raft.InmemTransport, to raft.ServerID, index, term uint64, ids ...raft.ServerID) {
	t.Helper()
	data := []byte("state of the snapshot")
	var resp raft.InstallSnapshotResponse
	must(t, from.InstallSnapshot(to, raft.ServerAddress(to), &raft.InstallSnapshotRequest{
		RPCHeader: header(string(from.LocalAddr())), SnapshotVersion: 1, Term: term,
		LastLogIndex: index, LastLogTerm: term,
		Configuration: raft.EncodeConfiguration(configurationOf(ids...)), ConfigurationIndex: 1, Size: int64(len(data)),
	}, &resp, bytes.NewReader(data)))
	if !resp.Success {
		t.Fatal("the snapshot was not installed")
	}
}

// appendRPC sends one committed entry that follows the one before it, and says whether it was
// taken.
func appendRPC(t *testing.T, from *raft.InmemTransport, to raft.ServerID, index, term uint64) bool {
	t.Helper()
	var resp raft.AppendEntriesResponse
	must(t, from.AppendEntries(to, raft.ServerAddress(to), &raft.AppendEntriesRequest{
		RPCHeader: header(string(from.LocalAddr())), Term: term,
		PrevLogEntry: index - 1, PrevLogTerm: term, Entries: []*raft.Log{entry(index, term)}, LeaderCommitIndex: index,
	}, &resp))
	return resp.Success
}

// recorder is a machine that remembers how many entries of each term it applied.
type recorder struct {
	restored chan struct{}

	mu    sync.Mutex
	terms map[uint64]int
}

func (r *recorder) applied(term uint64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terms[term]
}

// Apply implements raft.FSM.
func (r *recorder) Apply(l *raft.Log) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.terms == nil {
		r.terms = map[uint64]int{}
	}
	r.terms[l.Term]++
	return nil
}

// Snapshot implements raft.FSM.
func (r *recorder) Snapshot() (raft.FSMSnapshot, error) { return recorded{}, nil }

// Restore implements raft.FSM.
func (r *recorder) Restore(rc io.ReadCloser) error {
	if _, err := io.Copy(io.Discard, rc); err != nil {
		return err
	}
	r.restored <- struct{}{}
	return nil
}

type recorded struct{}

// Persist implements raft.FSMSnapshot.
func (recorded) Persist(sink raft.SnapshotSink) error { return sink.Close() }

// Release implements raft.FSMSnapshot.
func (recorded) Release() {}
