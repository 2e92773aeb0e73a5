package peer

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node/clock/clocktest"
	"github.com/hashicorp/raft"
)

// raftOn starts Raft in term 5 on a transport of m, with these voters, until the test ends.
func raftOn(t *testing.T, m *Mux, trans *Transport, voters ...raft.ServerID) *raft.Raft {
	t.Helper()
	stores := raft.NewInmemStore()
	if err := stores.SetUint64([]byte("CurrentTerm"), 5); err != nil {
		t.Fatal(err)
	}
	var c raft.Configuration
	for _, id := range voters {
		c.Servers = append(c.Servers, raft.Server{ID: id, Address: raft.ServerAddress(id)})
	}
	if len(voters) > 0 {
		if err := stores.StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration,
			Data: raft.EncodeConfiguration(c)}); err != nil {
			t.Fatal(err)
		}
	}
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = "n1.1", m.cfg.RaftLogger
	r, err := raft.NewRaft(conf, &raft.MockFSM{}, stores, stores, raft.NewInmemSnapshotStore(), trans)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Shutdown().Error(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// countBeside counts the heartbeats that are answered beside Raft's main loop.
func countBeside(trans *Transport) *int {
	beside := new(int)
	trans.SetHeartbeatHandler(func(rpc raft.RPC) {
		*beside++
		rpc.Respond(&raft.AppendEntriesResponse{Term: rpc.Command.(*raft.AppendEntriesRequest).Term, Success: true}, nil)
	})
	return beside
}

// heartbeat returns a heartbeat of n2.1.
func heartbeat(term uint64) *raft.AppendEntriesRequest {
	from := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n2.1"), Addr: []byte("n2.1")}
	return &raft.AppendEntriesRequest{RPCHeader: from, Term: term}
}

// A heartbeat that would change term or state waits for Raft's main loop: beside it nothing orders
// the change with what the loop is doing.
func TestHeartbeatsBesideTheMainLoopChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := startMux(t)
		trans := m.Transport("g")
		r := raftOn(t, m, trans)
		beside := countBeside(trans)
		peer := peerOf(t, l, "c", "n2").Transport("g")
		defer func() { _ = peer.Close() }()
		for i, tc := range []struct {
			known        bool // the transport knows Raft
			term, answer uint64
			beside       int
		}{
			{false, 5, 5, 0}, // Raft is being started
			{true, 5, 5, 1},
			{true, 6, 6, 1}, // a new term
			{true, 6, 6, 2},
			{true, 4, 6, 2}, // an old one
		} {
			if tc.known {
				trans.raft.Store(r)
			}
			var resp raft.AppendEntriesResponse
			if err := peer.AppendEntries("n1.1", "n1.1", heartbeat(tc.term), &resp); err != nil {
				t.Fatalf("heartbeat %d: %v", i, err)
			}
			if resp.Term != tc.answer || *beside != tc.beside {
				t.Errorf("heartbeat %d of term %d: answered with term %d, %d were answered beside the main loop, want %d and %d",
					i, tc.term, resp.Term, *beside, tc.answer, tc.beside)
			}
		}
	})
}

// A heartbeat makes a follower of a candidate, also in the same term.
func TestHeartbeatsToACandidateWaitForTheMainLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := startMux(t)
		trans := m.Transport("g")
		r := raftOn(t, m, trans, "n1.1", "n2.1")
		trans.raft.Store(r)
		beside := countBeside(trans)
		for r.State() != raft.Candidate {
			clocktest.Elapse(100 * time.Millisecond)
		}
		peer := peerOf(t, l, "c", "n2").Transport("g")
		defer func() { _ = peer.Close() }()
		var resp raft.AppendEntriesResponse
		if err := peer.AppendEntries("n1.1", "n1.1", heartbeat(r.CurrentTerm()), &resp); err != nil {
			t.Fatal(err)
		}
		if *beside != 0 || r.State() != raft.Follower || resp.Term != 5 {
			t.Errorf("%d were answered beside the main loop; it is a %v, and answered %+v", *beside, r.State(), resp)
		}
	})
}

// A leader that was elected again may send its newest entries in the name of its earlier term.
func TestEntriesOfALaterTermThanTheirMessageAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := startMux(t)
		trans := m.Transport("g")
		echo(t, trans)
		peer := peerOf(t, l, "c", "n2").Transport("g")
		defer func() { _ = peer.Close() }()
		for _, tc := range []struct {
			terms []uint64
			taken bool
		}{
			{nil, true}, {[]uint64{4}, true}, {[]uint64{4, 5}, true}, {[]uint64{4, 6}, false}, {[]uint64{6}, false},
		} {
			req := &raft.AppendEntriesRequest{Term: 5, PrevLogEntry: 7, PrevLogTerm: 4}
			for i, term := range tc.terms {
				req.Entries = append(req.Entries, &raft.Log{Index: 8 + uint64(i), Term: term})
			}
			var resp raft.AppendEntriesResponse
			if err := peer.AppendEntries("n1.1", "n1.1", req, &resp); (err == nil) != tc.taken {
				t.Errorf("entries of the terms %v in a message of term 5: %v, taken should be %v", tc.terms, err, tc.taken)
			}
		}
	})
}

// A candidate whose peers were restarted since it last spoke with them has its votes at once, and
// not after another election timeout.
func TestElectionsOutliveConnections(t *testing.T) {
	questions := map[string]func(peer *Transport) error{
		"pre-vote": func(peer *Transport) error {
			return peer.RequestPreVote("n1.1", "n1.1", &raft.RequestPreVoteRequest{}, &raft.RequestPreVoteResponse{})
		},
		"vote": func(peer *Transport) error {
			return peer.RequestVote("n1.1", "n1.1", &raft.RequestVoteRequest{}, &raft.RequestVoteResponse{})
		},
		"handover": func(peer *Transport) error {
			return peer.TimeoutNow("n1.1", "n1.1", &raft.TimeoutNowRequest{}, &raft.TimeoutNowResponse{})
		},
	}
	for name, ask := range questions {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, l := startMux(t)
				var held []raft.RPC
				hold := connsPooled // so many are asked at once, each over a connection of its own
				serve(t, m.Transport("g"), func(rpc raft.RPC) {
					if held = append(held, rpc); len(held) < hold {
						return
					}
					for _, rpc := range held {
						answerElection(rpc)
					}
					held, hold = nil, 1
				})
				peer := peerOf(t, l, "c", "n2").Transport("g")
				defer func() { _ = peer.Close() }()
				var asking sync.WaitGroup
				for range connsPooled {
					asking.Go(func() {
						if err := ask(peer); err != nil {
							t.Error(err)
						}
					})
				}
				asking.Wait()
				m.mu.Lock()
				if len(m.conns) != connsPooled {
					t.Errorf("there are %d connections, want %d", len(m.conns), connsPooled)
				}
				for conn := range m.conns {
					_ = conn.Conn.Close() // as the end of the process does
				}
				m.mu.Unlock()
				synctest.Wait()
				if err := ask(peer); err != nil {
					t.Errorf("asked when all connections had broken: %v", err)
				}
			})
		})
	}
}

// answerElection answers a message of an election.
func answerElection(rpc raft.RPC) {
	switch rpc.Command.(type) {
	case *raft.RequestPreVoteRequest:
		rpc.Respond(&raft.RequestPreVoteResponse{Granted: true}, nil)
	case *raft.RequestVoteRequest:
		rpc.Respond(&raft.RequestVoteResponse{Granted: true}, nil)
	case *raft.TimeoutNowRequest:
		rpc.Respond(&raft.TimeoutNowResponse{}, nil)
	}
}
