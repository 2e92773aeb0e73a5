package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// fakeCluster has members as a test made them and notes what is asked of it.
type fakeCluster struct {
	format  fsm.Format // that it speaks, at least 2
	members []backend.Member
	moves   []backend.Move
	fail    error
	resets  map[uint32]node.ClockReset

	minVoters int // 0 for 1

	answerAudit func(query []byte) ([]byte, error)
	others      []backend.AuditAnswer // of AskAudit, beside that of this node

	mu    sync.Mutex
	asked []string
}

func (f *fakeCluster) Members(context.Context) ([]backend.Member, []backend.Move) {
	return slices.Clone(f.members), f.moves
}

func (f *fakeCluster) Settings() backend.ClusterSettings {
	return backend.ClusterSettings{Factor: 3, Grace: 10 * time.Minute, MinVoters: max(1, f.minVoters)}
}

func (f *fakeCluster) Configure(_ context.Context, s backend.ClusterSettings) (backend.ClusterSettings, error) {
	did := fmt.Sprintf("configure %d %v %d", s.Factor, s.Grace, s.MinVoters)
	if s.NoAutoCreate != nil {
		did += fmt.Sprintf(" %t", *s.NoAutoCreate)
	}
	return backend.ClusterSettings{
		Factor: max(s.Factor, 1), Grace: max(s.Grace, time.Second), MinVoters: max(s.MinVoters, 1),
		NoAutoCreate: s.NoAutoCreate,
	}, f.note("%s", did)
}

func (f *fakeCluster) LowerMinVoters(_ context.Context, least int) (backend.ClusterSettings, error) {
	return backend.ClusterSettings{Factor: 3, Grace: time.Minute, MinVoters: least}, f.note("lower %d", least)
}

func (f *fakeCluster) AnswerAudit(answer func(query []byte) ([]byte, error)) { f.answerAudit = answer }

func (f *fakeCluster) AskAudit(_ context.Context, query []byte) []backend.AuditAnswer {
	answer, err := f.answerAudit(query)
	return append([]backend.AuditAnswer{{Name: "n1", Answer: answer, Err: err}}, f.others...)
}

func (f *fakeCluster) Format() fsm.Format { return max(2, f.format) }

func (f *fakeCluster) VotersWanted() int { return 3 }

func (f *fakeCluster) note(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf(format, args...))
	return f.fail
}

func (f *fakeCluster) Drain(_ context.Context, id string, keep int) error {
	return f.note("drain %s keeping %d", id, keep)
}

func (f *fakeCluster) Undrain(_ context.Context, id string) error { return f.note("undrain %s", id) }

func (f *fakeCluster) Remove(_ context.Context, id string) error { return f.note("remove %s", id) }

func (f *fakeCluster) TransferLeader(_ context.Context, t backend.Transfer) error {
	return f.note("transfer %d from %s to %s", t.Shard, t.From, t.To)
}

func (f *fakeCluster) ResetClock(_ context.Context, leader string, shard uint32) (node.ClockReset, error) {
	return f.resets[shard], f.note("reset the clock of %d at %s", shard, leader)
}

func (f *fakeCluster) Namespaces() []backend.Namespace { return nil }

func (f *fakeCluster) SetNamespace(context.Context, string, [node.Limits]bool,
	node.Amounts) (backend.Namespace, error) {
	return backend.Namespace{}, f.note("set a namespace")
}

func (f *fakeCluster) RestoreNamespaces(context.Context, []backend.Namespace) error {
	return f.note("restore namespaces")
}

func (f *fakeCluster) RemoveNamespace(context.Context, string) (bool, error) {
	return false, f.note("remove a namespace")
}

// serverID returns the server id of node n1, n2, … in these tests.
func serverID(n int) string { return fmt.Sprintf("n%d.%016x", n, n) }

// healthyCluster returns three nodes that answer: each votes in the three shards and the catalog,
// and n1 leads all.
func healthyCluster() *fakeCluster {
	f := &fakeCluster{}
	voters := []string{serverID(1), serverID(3), serverID(2)} // as they came
	for n := 1; n <= 3; n++ {
		m := backend.Member{
			Name: fmt.Sprintf("n%d", n), ServerID: serverID(n), ClientAddr: fmt.Sprintf("10.0.0.%d:7400", n),
			PeerAddr: fmt.Sprintf("10.0.0.%d:7401", n),
			Zone:     "z", Answers: true, Version: "v1", ZoneData: "2025c (a5d24815)", Format: 3,
		}
		for shard := range 3 {
			m.Groups = append(m.Groups, node.GroupStatus{
				RaftStatus: node.RaftStatus{Group: fmt.Sprintf("shard-%d", shard), Serving: n == 1, Term: 4, Voters: voters,
					DigestIndex: 100, Digest: 0xab},
				Jobs: 5, Clock: fsm.Time(1e9),
			})
		}
		m.Groups = append(m.Groups, node.GroupStatus{RaftStatus: node.RaftStatus{
			Group: "catalog", Serving: n == 1, Term: 2, Voters: voters, DigestIndex: 9, Digest: 0xcd,
		}})
		f.members = append(f.members, m)
	}
	return f
}

// leave takes a node out of the members of all groups, in favour of others.
func (f *fakeCluster) leave(n int, instead ...string) {
	for i := range f.members {
		for j := range f.members[i].Groups {
			g := &f.members[i].Groups[j]
			g.Voters = append(slices.DeleteFunc(slices.Clone(g.Voters), func(id string) bool {
				return id == serverID(n)
			}), instead...)
		}
	}
}

// silence has a node answer no more.
func (f *fakeCluster) silence(n int) {
	m := &f.members[n-1]
	m.Answers, m.Groups, m.Version, m.ZoneData = false, nil, "", ""
}

// ail has the disks of nodes nearly full.
func (f *fakeCluster) ail(nodes ...int) {
	for _, n := range nodes {
		f.members[n-1].Conditions = []node.Condition{{Kind: node.DiskPressure, Message: "3 MiB are free"}}
	}
}

// spare adds a node that has nothing.
func (f *fakeCluster) spare() {
	f.members = append(f.members, backend.Member{
		Name: "n4", ServerID: serverID(4), Answers: true, Version: "v1", Format: 3,
	})
}

// serveCluster serves with a cluster.
func serveCluster(t *testing.T, f *fakeCluster) *served {
	t.Helper()
	return serve(t, func(c *Config) { c.Cluster = f })
}

func TestGetClusterAlone(t *testing.T) {
	s := serve(t)
	_, a := s.bothClients()
	got, err := a.GetCluster(t.Context(), &belfryv1.GetClusterRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &belfryv1.GetClusterResponse{ClusterId: "c1", AnsweredBy: "n1", ReplicationFactor: 1, MinVoters: 1,
		Format: uint32(fsm.FirstFormat), Nodes: []*belfryv1.Node{{
			Name: "n1", Incarnation: "00000000000000ff", Address: "127.0.0.1:7400", Version: "v0.0.0-test",
			State: belfryv1.NodeState_NODE_STATE_LIVE, Replicas: 3, Leads: 3, Format: uint32(fsm.LatestFormat),
		}}}
	for i := range uint32(3) {
		want.Shards = append(want.Shards, &belfryv1.Shard{
			Shard: i, Leader: "n1", Term: 2, Digest: "0000000000000000", Voters: []string{"n1"}, VotersWanted: 1, Jobs: 10 + i,
			Replicas: []*belfryv1.Replica{{
				Node: "n1", Incarnation: "00000000000000ff", Voter: true, Digest: "0000000000000000",
			}},
		})
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	for _, call := range []string{`drain-node {"name":"n1"}`, `remove-node {"name":"n1"}`, `transfer-leader {"shard":1}`} {
		method, body, _ := strings.Cut(call, " ")
		if got := s.send(http.MethodPost, "/v1/"+method, body); got.status != http.StatusBadRequest ||
			!strings.Contains(got.body, "INVALID") {
			t.Errorf("%s: %d %s", call, got.status, got.body)
		}
	}
}

// TestGetCluster shows a cluster in which one replica is on its way, one lags, and one node is
// silent and draining.
func TestGetCluster(t *testing.T) {
	f := healthyCluster()
	f.silence(3)
	f.members[2].Draining = true
	f.members[1].Groups[1].DigestIndex, f.members[1].Groups[1].Digest = 98, 0xef
	leading := &f.members[0].Groups[2]
	leading.Voters, leading.Nonvoters = []string{serverID(1), serverID(3)}, []string{serverID(2)}
	s := serveCluster(t, f)
	_, a := s.bothClients()
	got, err := a.GetCluster(t.Context(), &belfryv1.GetClusterRequest{})
	if err != nil {
		t.Fatal(err)
	}
	third := &belfryv1.Node{
		Name: "n3", Incarnation: "0000000000000003", Address: "10.0.0.3:7400", PeerAddress: "10.0.0.3:7401", Zone: "z",
		State: belfryv1.NodeState_NODE_STATE_SILENT, Draining: true, Replicas: 3, Format: 3, // as it said last
	}
	if diff := cmp.Diff(third, got.Nodes[2], protocmp.Transform()); diff != "" || len(got.Nodes) != 3 {
		t.Error(diff)
	}
	if n := got.Nodes[0]; n.State != belfryv1.NodeState_NODE_STATE_LIVE || n.Leads != 3 || n.Version != "v1" ||
		n.TimeZoneData != "2025c (a5d24815)" || n.Format != 3 || got.Format != 2 {
		t.Errorf("%v", n)
	}
	lagging := &belfryv1.Shard{
		Shard: 1, Leader: "n1", Term: 4, AppliedIndex: 100, Digest: "00000000000000ab", Jobs: 5, Time: wire.ExactTime(1e9),
		Voters: []string{"n1", "n2", "n3"}, VotersWanted: 3,
		Replicas: []*belfryv1.Replica{
			{Node: "n1", Incarnation: "0000000000000001", Voter: true, AppliedIndex: 100, Digest: "00000000000000ab"},
			{Node: "n2", Incarnation: "0000000000000002", Voter: true, AppliedIndex: 98, Digest: "00000000000000ef"},
			{Node: "n3", Incarnation: "0000000000000003", Voter: true, Silent: true},
		},
	}
	if diff := cmp.Diff(lagging, got.Shards[1], protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if g := got.Shards[2]; !slices.Equal(g.Nonvoters, []string{"n2"}) || len(g.Replicas) != 3 || g.Replicas[2].Voter {
		t.Errorf("%v", g)
	}
	if c := got.Catalog; c.GetLeader() != "n1" || len(c.GetVoters()) != 3 || c.GetTerm() != 2 {
		t.Errorf("%v", c)
	}
	if !strings.Contains(s.send(http.MethodPost, "/v1/get-cluster", "").body, `"state":"SILENT"`) {
		t.Error("the state has a prefix in JSON")
	}
}

// spoiledCluster is what is wrong with a cluster, and the problems that it reports.
type spoiledCluster struct {
	name  string
	spoil func(*fakeCluster)
	want  []string
}

// spoiledClusters have each problem alone.
func spoiledClusters() []spoiledCluster {
	return []spoiledCluster{
		{"none", func(*fakeCluster) {}, nil},
		{"a node is silent", func(f *fakeCluster) { f.silence(3) }, []string{
			"node n3 does not answer", "with fewer than 3 voters that answer: shards 0, 1, 2",
		}},
		{"a drain left two voters", func(f *fakeCluster) { f.members[2].Draining = true; f.leave(3) }, []string{
			"under-replicated (wanted 3 voters, has 2): shards 0, 1, 2; only 2 of the nodes can keep a replica: add one, or " +
				"lower the replication factor",
		}},
		{"the drained node is gone", func(f *fakeCluster) { f.leave(3); f.members = f.members[:2] }, []string{
			"under-replicated (wanted 3 voters, has 2): shards 0, 1, 2; only 2 of the nodes can keep a replica: add one, or " +
				"lower the replication factor",
		}},
		{"a drained node is gone and another has replaced it", func(f *fakeCluster) {
			f.spare()
			f.members[2].Draining = true
			f.silence(3)
			f.leave(3, serverID(4))
			f.members[3].Groups = slices.Clone(f.members[1].Groups)
		}, []string{"node n3 does not answer"}},
		{"a node has conditions", func(f *fakeCluster) {
			f.members[1].Conditions = []node.Condition{
				{Kind: node.DiskPressure, Message: "3 MiB are free", Since: time.Unix(0, 0)},
				{Kind: node.SlowDisk, Message: "2s", Since: time.Unix(60, 0)},
			}
		}, []string{"node n2 has DISK_PRESSURE since 1970-01-01T00:00:00Z: 3 MiB are free",
			"node n2 has SLOW_DISK since 1970-01-01T00:01:00Z: 2s"}},
		{"two shards lack voters", func(f *fakeCluster) {
			f.members[0].Groups[0].Voters, f.members[0].Groups[2].Voters = []string{serverID(1)},
				[]string{serverID(1), serverID(2)}
		}, []string{"under-replicated (wanted 3 voters, has 1): shard 0",
			"under-replicated (wanted 3 voters, has 2): shard 2"}},
		{"nobody leads", func(f *fakeCluster) {
			f.members[0].Groups[1].Serving, f.members[0].Groups[3].Serving = false, false
		}, []string{"the catalog has no leader", "without a leader: shard 1"}},
		{"most voters are silent", func(f *fakeCluster) {
			f.silence(2)
			f.silence(3)
			for i := range f.members[0].Groups {
				f.members[0].Groups[i].Serving = false
			}
			f.members[0].Groups[2].Voters = []string{serverID(1), serverID(2)}
		}, []string{
			"node n2 does not answer", "node n3 does not answer",
			"the catalog has no leader; 2 of 3 voters are needed, and these do not answer: n2, n3",
			"without a leader: shards 0, 1; 2 of 3 voters are needed, and these do not answer: n2, n3",
			"without a leader: shard 2; 2 of 2 voters are needed, and these do not answer: n2",
		}},
		{"replicas differ", func(f *fakeCluster) { f.members[1].Groups[2].Digest = 1 }, []string{
			"the replicas of shard 2 on n1 and n2 differ at index 100",
		}},
		{"a replica was set aside", func(f *fakeCluster) { f.members[1].Quarantined = []string{"shard-2"} }, []string{
			"node n2 has set aside replicas whose state differs from the others', or cannot be restored: shard-2",
		}},
		{"replicas at different positions", func(f *fakeCluster) {
			f.members[1].Groups[2].Digest, f.members[1].Groups[2].DigestIndex = 1, 99
		}, nil},
		{"a wiped node came back", func(f *fakeCluster) {
			f.silence(3)
			f.members[2].Name, f.members[2].ServerID = "n2", "n2.00000000000000ff"
			f.members[2].Draining = true
		}, []string{"node n2.00000000000000ff does not answer", "voters of the catalog that do not answer: " + serverID(3),
			"with fewer than 3 voters that answer: shards 0, 1, 2"}},
		{"not recorded", func(f *fakeCluster) { f.members = f.members[1:] }, []string{
			"the node that answers this, n1, is not recorded as a node of the cluster yet", "the catalog has no leader",
			"without a leader: shards 0, 1, 2",
		}},
	}
}

func TestClusterProblems(t *testing.T) {
	for _, test := range spoiledClusters() {
		t.Run(test.name, func(t *testing.T) {
			f := healthyCluster()
			test.spoil(f)
			if diff := cmp.Diff(test.want, problemsOf(t, f)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// problemsOf returns what GetCluster says is not as it should be.
func problemsOf(t *testing.T, f *fakeCluster) []string {
	t.Helper()
	_, a := serveCluster(t, f).bothClients()
	got, err := a.GetCluster(t.Context(), &belfryv1.GetClusterRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Problems
}

// TestSilentVotersOfTheCatalog are named, be it that their node was forgotten or that it answers
// and runs no catalog.
func TestSilentVotersOfTheCatalog(t *testing.T) {
	f := healthyCluster()
	f.members[0].Groups[3].Voters = []string{serverID(1), serverID(2), serverID(3), serverID(4)}
	f.members[1].Groups = f.members[1].Groups[:3]
	if diff := cmp.Diff([]string{"voters of the catalog that do not answer: n2, " + serverID(4)},
		problemsOf(t, f)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestALeaderThatWasReplaced does not know it yet: the higher term counts.
func TestALeaderThatWasReplaced(t *testing.T) {
	f := healthyCluster()
	f.members[2].Groups[0].Serving, f.members[2].Groups[0].Term = true, 5
	_, a := serveCluster(t, f).bothClients()
	got, err := a.GetCluster(t.Context(), &belfryv1.GetClusterRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if g := got.Shards[0]; g.Leader != "n3" || g.Term != 5 || got.Nodes[0].Leads != 2 || got.Nodes[2].Leads != 1 {
		t.Errorf("%v", got)
	}
}

// operation is a call, and what it asks of the cluster or is refused with.
type operation struct {
	name, call, body string
	spoil            func(*fakeCluster)
	asked            string // of the cluster
	says             string // part of the answer
}

// drains are the calls that have nodes emptied, or no longer.
func drains() []operation {
	third := serverID(3)
	spare := (*fakeCluster).spare
	const needed = "name: n3 is needed: the others that answer and do not drain are 2, so that shards would have 2 " +
		"voters instead of 3. " +
		"Add a node first; or force the drain (--force), and shards"
	twice := func(f *fakeCluster) {
		f.silence(3)
		f.members[2].Name, f.members[2].ServerID = "n2", "n2.00000000000000ff"
	}
	return []operation{
		{"drain", "drain-node", `{"name":"n3"}`, spare, "drain " + third + " keeping 3", `"state":"DRAINING"`},
		{"drain without a spare node", "drain-node", `{"name":"n3"}`, nil, "", needed},
		{"drain while the spare node is silent", "drain-node", `{"name":"n3"}`, func(f *fakeCluster) {
			f.spare()
			f.silence(4)
		}, "", needed},
		{"drain while the spare node drains", "drain-node", `{"name":"n3"}`, func(f *fakeCluster) {
			f.spare()
			f.members[3].Draining = true
		}, "", needed},
		{"drain that is forced", "drain-node", `{"name":"n3","force":true}`, nil, "drain " + third + " keeping 0",
			`"state":"DRAINING"`},
		{"drain again", "drain-node", `{"name":"n3"}`, func(f *fakeCluster) {
			f.members[2].Draining = true
		}, "drain " + third + " keeping 0", `"state":"DRAINING"`},
		{"drain of one of two", "drain-node", `{"name":"n2"}`, func(f *fakeCluster) {
			f.leave(3)
			f.members = f.members[:2]
		}, "", "are 1, so that shards would have 1 voters instead of 2"},
		{"undrain", "drain-node", `{"name":"n3","draining":false}`, nil, "undrain " + third, `"state":"LIVE"`},
		{"drain with an incarnation", "drain-node", `{"name":"n2","incarnation":"00000000000000ff"}`, func(f *fakeCluster) {
			twice(f)
			f.spare()
		}, "drain n2.00000000000000ff keeping 3", `"state":"SILENT"`},
		{"drain of nobody", "drain-node", `{}`, nil, "", "name: a node's name is required; the nodes are n1, n2, n3"},
		{"drain of an unknown node", "drain-node", `{"name":"n9"}`, nil, "",
			"name: there is no node n9; the nodes are n1, n2, n3"},
		{"drain of two", "drain-node", `{"name":"n2"}`, twice, "",
			"incarnation: 2 nodes have the name n2; say which incarnation: 0000000000000002, 00000000000000ff"},
		{"drain of another incarnation", "drain-node", `{"name":"n2","incarnation":"00000000000000aa"}`, nil, "",
			"incarnation: n2 has no such incarnation; it has 0000000000000002"},
		{"drain of no incarnation", "drain-node", `{"name":"n2","incarnation":"x"}`, nil, "",
			"incarnation: want 16 hexadecimal digits"},
		{"drain of the last", "drain-node", `{"name":"n1"}`, func(f *fakeCluster) {
			f.silence(3)
			f.members[1].Draining = true
		}, "", "no other node could take what n1 has"},
		{"drain with a long request id", "drain-node", `{"name":"n1","requestId":"` + strings.Repeat("x", 65) + `"}`, nil, "",
			"requestId"},
	}
}

// removals are calls that remove a node.
func removals() []operation {
	third := serverID(3)
	silent := func(f *fakeCluster) { f.silence(3) }
	return []operation{
		{"remove", "remove-node", `{"name":"n3"}`, silent, "remove " + third, `"name":"n3"`},
		{"remove again", "remove-node", `{"name":"n4","incarnation":"0000000000000004"}`, nil, "", `{}`},
		{"remove of an unknown node", "remove-node", `{"name":"n4"}`, nil, "", "there is no node"},
		{"remove of nobody", "remove-node", `{}`, nil, "", "name: a node's name is required"},
		{"remove of a live node", "remove-node", `{"name":"n3"}`, nil, "",
			"n3 still answers; drain it, stop it, and remove it then"},
		{"remove of what may be the only copy", "remove-node", `{"name":"n3"}`, func(f *fakeCluster) {
			f.silence(3)
			f.members[0].Groups[1].Serving = false
		}, "", "without a leader: shard 1; what only n3 has would be lost"},
	}
}

// TestOperateCluster makes calls and looks at what they ask of the cluster, or what they are
// refused with.
func TestOperateCluster(t *testing.T) {
	third := serverID(3)
	silent := func(f *fakeCluster) { f.silence(3) }
	for _, test := range append(append(drains(), removals()...), []operation{
		{"settings", "update-cluster", `{"replicationFactor":5,"gracePeriod":"5m"}`, nil, "configure 5 5m0s 0",
			`{"replicationFactor":5,"gracePeriod":"300s","minVoters":1,"noAutoCreate":false}`},
		{"min-voters", "update-cluster", `{"minVoters":2}`, nil, "configure 0 0s 2", `"minVoters":2`},
		{"min-voters that a shard does not have", "update-cluster", `{"minVoters":3}`, func(f *fakeCluster) {
			f.leave(3)
		}, "", "minVoters: have 3, and shard 0 has 2 voters"},
		{"min-voters that hold", "update-cluster", `{"minVoters":2}`, func(f *fakeCluster) {
			f.minVoters = 2
			f.leave(2)
			f.leave(3)
		}, "configure 0 0s 2", `"minVoters":2`},
		{"min-voters lowered", "update-cluster", `{"lowerMinVoters":1}`, nil, "lower 1", `"minVoters":1`},
		{"min-voters raised and lowered", "update-cluster", `{"minVoters":2,"lowerMinVoters":1}`, nil, "",
			"lowerMinVoters: name either"},
		{"no-auto-create", "update-cluster", `{"noAutoCreate":true}`, nil, "configure 0 0s 0 true", `"noAutoCreate":true`},
		{"auto-create", "update-cluster", `{"noAutoCreate":false}`, nil, "configure 0 0s 0 false", `"noAutoCreate":false`},
		{"one setting", "update-cluster", `{"gracePeriod":"5m"}`, nil, "configure 0 5m0s 0", `"gracePeriod":"300s"`},
		{"no setting", "update-cluster", `{}`, nil, "", "nothing is to be changed"},
		{"no grace period", "update-cluster", `{"gracePeriod":"0s"}`, nil, "",
			"gracePeriod: want a duration of at least a second"},

		{"transfer", "transfer-leader", `{"shard":1,"to":"n3"}`, nil, "transfer 1 from " + serverID(1) + " to " + third,
			`{"previous":"n1","leader":"n3"}`},
		{"transfer to whom it may", "transfer-leader", `{"shard":1}`, func(f *fakeCluster) {
			f.members[1].Groups[2].Serving, f.members[1].Groups[2].Term = true, 5
		}, "transfer 1 from " + serverID(1) + " to " + third, `"leader":"n3"`},
		{"transfer to the leader", "transfer-leader", `{"shard":1,"to":"n1"}`, nil, "", `{"previous":"n1","leader":"n1"}`},
		{"transfer to an unknown node", "transfer-leader", `{"shard":1,"to":"n9"}`, nil, "",
			"to: n9 is no voter of shard 1; its voters are n1, n2, n3"},
		{"transfer to a silent node", "transfer-leader", `{"shard":1,"to":"n3"}`, silent, "", "to: n3 does not answer"},
		{"transfer to a node with a condition", "transfer-leader", `{"shard":1,"to":"n3"}`, func(f *fakeCluster) {
			f.ail(3)
		}, "",
			"to: n3 has DISK_PRESSURE (3 MiB are free), and would hand the leadership over again"},
		{"transfer where all have a condition", "transfer-leader", `{"shard":1,"to":"n3"}`, func(f *fakeCluster) {
			f.ail(1, 2, 3)
		},
			"transfer 1 from " + serverID(1) + " to " + third, `"leader":"n3"`},
		{"transfer to whom it may, of whom one has a condition", "transfer-leader", `{"shard":1}`, func(f *fakeCluster) {
			f.ail(2)
		},
			"transfer 1 from " + serverID(1) + " to " + third, `"leader":"n3"`},
		{"transfer of no shard", "transfer-leader", `{"shard":3}`, nil, "",
			"shard: there is no shard 3; the shards are 0 to 2"},
		{"transfer without a leader", "transfer-leader", `{"shard":1}`, func(f *fakeCluster) {
			f.members[0].Groups[1].Serving = false
		}, "", "NO_LEADER"},
		{"transfer with nobody to take it", "transfer-leader", `{"shard":1}`, func(f *fakeCluster) {
			f.silence(3)
			f.members[1].Draining = true
		}, "", "shard 1 has no other voter that answers"},
	}...) {
		t.Run(test.name, func(t *testing.T) {
			f := healthyCluster()
			if test.spoil != nil {
				test.spoil(f)
			}
			got := serveCluster(t, f).send(http.MethodPost, "/v1/"+test.call, test.body)
			if asked := strings.Join(f.asked, "; "); asked != test.asked {
				t.Errorf("asked of the cluster: %q, want %q", asked, test.asked)
			}
			if !strings.Contains(got.body, test.says) {
				t.Errorf("answered %d %s, want %s", got.status, got.body, test.says)
			}
		})
	}
}

// TestGetClusterReportsPlacement: since when a node is silent, what is done about its replicas, and
// by which settings.
func TestGetClusterReportsPlacement(t *testing.T) {
	f := healthyCluster()
	f.silence(3)
	f.members[2].SilentSince = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f.moves = []backend.Move{
		{Shard: 0, Text: "n4 leaves", Leaves: serverID(4)},
		{Shard: 1, Text: "n4 catches up"},
		{Shard: 2, Text: "n3 leaves", Leaves: serverID(3)},
	}
	got := serveCluster(t, f).send(http.MethodPost, "/v1/get-cluster", "{}").body
	for _, want := range []string{`"silentSince":"2026-01-02T03:04:05Z"`,
		`"moves":[{"shard":1,"text":"n4 catches up"},{"shard":2,"text":"n3 leaves"}]`, `"gracePeriod":"600s"`,
		`"replicationFactor":3`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	if strings.Count(got, `"silentSince":"`) != 1 {
		t.Errorf("more than one node is silent: %s", got)
	}
}

// TestClusterErrorsReachTheCaller: what the cluster does not know, the caller is told to be
// unknown.
func TestClusterErrorsReachTheCaller(t *testing.T) {
	for _, test := range []struct {
		err  error
		want belfryv1.Reason
	}{
		{fmt.Errorf("draining: %w", node.ErrUnknownOutcome), belfryv1.Reason_REASON_UNKNOWN_OUTCOME},
		{fmt.Errorf("draining: %w", node.ErrNoLeader), belfryv1.Reason_REASON_NO_LEADER},
		{fault.Invalid("name", "gone"), belfryv1.Reason_REASON_INVALID},
		{errors.New("something else"), belfryv1.Reason_REASON_INTERNAL},
	} {
		f := healthyCluster()
		f.fail = test.err
		_, a := serveCluster(t, f).bothClients()
		_, drain := a.DrainNode(t.Context(), &belfryv1.DrainNodeRequest{Name: "n3", Force: true})
		_, transfer := a.TransferLeader(t.Context(), &belfryv1.TransferLeaderRequest{Shard: 2})
		f.silence(3)
		_, remove := a.RemoveNode(t.Context(), &belfryv1.RemoveNodeRequest{Name: "n3"})
		for _, err := range []error{drain, transfer, remove} {
			if got := reasonOf(t, err); got != test.want {
				t.Errorf("%v became %v, want %v", test.err, got, test.want)
			}
		}
	}
}

// TestNodesTellOfThemselves: what a node says of itself is shown, and nothing if it says nothing.
func TestNodesTellOfThemselves(t *testing.T) {
	f := healthyCluster()
	f.members[1].DiskFree, f.members[1].DiskLow, f.members[1].ClockOffset = 7000, 500, new(-3*time.Millisecond)
	at := time.Date(2026, 1, 31, 3, 0, 0, 0, time.UTC)
	f.members[1].Mirrored = []backend.MirroredQueue{{RedisQueue: "Orders:old", Queue: "orders",
		Waits: "redis is away", Came: 12345, Delivered: 2, Dead: 3, SetAside: 4, Failed: 5, Left: 6,
		Looked: at, Earliest: at, Lateness: time.Second}}
	f.members[1].BackupAt, f.members[1].Groups[0].SnapshotAt = at, at.Add(time.Hour)
	served := serve(t, withDashboard, func(c *Config) { c.Cluster = f })
	_, a := served.bothClients()
	got, err := a.GetCluster(t.Context(), &belfryv1.GetClusterRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if n := got.Nodes[1]; n.DiskFreeBytes != 7000 || n.DiskLowBytes != 500 ||
		n.ClockOffset.AsDuration() != -3*time.Millisecond || !n.BackupAt.AsTime().Equal(at) {
		t.Errorf("n2 says %v", n)
	}
	if n := got.Nodes[0]; n.DiskFreeBytes != 0 || n.ClockOffset != nil || n.BackupAt != nil {
		t.Errorf("n1 says %v", n)
	}
	for _, r := range got.Shards[0].Replicas {
		if (r.Node == "n2") != (r.SnapshotAt != nil) ||
			r.SnapshotAt != nil && !r.SnapshotAt.AsTime().Equal(at.Add(time.Hour)) {
			t.Errorf("a replica says %v", r)
		}
	}
	want := &belfryv1.MirroredQueue{RedisQueue: "Orders:old", Queue: "orders", Waits: "redis is away", Came: 12345,
		Delivered: 2, Dead: 3, SetAside: 4, Failed: 5, Left: 6, LookedAt: timestamppb.New(at),
		EarliestDueAt: timestamppb.New(at), Lateness: durationpb.New(time.Second)}
	if diff := cmp.Diff([]*belfryv1.MirroredQueue{want}, got.Nodes[1].Mirrored, protocmp.Transform()); diff != "" {
		t.Errorf("bridges (-want +got):\n%s", diff)
	}
	for page, shows := range map[string]string{
		"/ui/cluster": ", from n2<", "/ui/cluster?": "waits: redis is away</td>",
		"/ui/node?name=n2": ", snapshot of <time datetime=\"2026-01-31T04:00:00Z\"",
	} {
		if got := served.send(http.MethodGet, page, ""); !strings.Contains(got.body, shows) {
			t.Errorf("%s does not show %q:\n%s", page, shows, got.body)
		}
	}
}
