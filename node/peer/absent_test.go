package peer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node/clock/clocktest"
	"github.com/belfrydb/belfry/node/nodetest/pipetest"
	"github.com/hashicorp/raft"
)

// absentee is the transport of server n1.1, which leads, and what it knows of its follower n2.1.
type absentee struct {
	*Transport
	raft *raft.Raft
	// here is the way to the follower, nil while it is away; looks counts the attempts to get there.
	here  atomic.Pointer[pipetest.Listener]
	looks atomic.Int64
}

// newAbsentee returns the transport of a leader whose follower is away.
func newAbsentee(t *testing.T) *absentee {
	t.Helper()
	m, l := startMux(t)
	a := &absentee{raft: raftOn(t, m, m.Transport("g"), "n1.1")}
	for a.raft.State() != raft.Leader {
		clocktest.Elapse(100 * time.Millisecond)
	}
	if err := a.raft.AddNonvoter("n2.1", "n2.1", 0, 0).Error(); err != nil {
		t.Fatal(err)
	}
	near := peerOf(t, l, "c", "n1") // beside the one that Raft itself uses
	near.cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		a.looks.Add(1)
		if here := a.here.Load(); here != nil {
			return here.Dial(ctx, addr)
		}
		return nil, errors.New("nobody is there")
	}
	a.Transport = near.Transport("g")
	a.Transport.raft.Store(a.raft)
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// back has the follower return, as a server of a cluster, and answer with f.
func (a *absentee) back(t *testing.T, cluster string, f func(raft.RPC)) {
	t.Helper()
	l := pipetest.Listen("pipe")
	cfg := Config{Listener: l, Logger: slog.New(slog.DiscardHandler)}
	m := New(member(cfg, cluster, "n2"))
	t.Cleanup(m.Close)
	serve(t, m.Transport("g"), f)
	a.here.Store(l)
}

// entries returns what Raft would send, of which a part is committed.
func (a *absentee) entries() *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{
		Term: a.raft.CurrentTerm(), PrevLogEntry: 7, PrevLogTerm: 4, LeaderCommitIndex: 8,
		Entries: []*raft.Log{{Index: 8, Term: 4}, {Index: 9, Term: 4}},
	}
}

// send sends entries in a goroutine of its own.
func (a *absentee) send(req *raft.AppendEntriesRequest) (ended chan error) {
	ended = make(chan error, 1)
	go func() { ended <- a.AppendEntries("n2.1", "n2.1", req, &raft.AppendEntriesResponse{}) }()
	return ended
}

// The first message to one that was away asks for what it has: entries, and what of them is
// committed, would be old.
func TestEntriesWaitForTheirFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAbsentee(t)
		ended := a.send(a.entries())
		clocktest.Elapse(time.Hour)
		asked := make(chan raft.AppendEntriesRequest, 1)
		a.back(t, "c", func(rpc raft.RPC) {
			req := rpc.Command.(*raft.AppendEntriesRequest)
			asked <- *req
			rpc.Respond(&raft.AppendEntriesResponse{Term: req.Term, Success: true}, nil)
		})
		back := time.Now()
		if err := <-ended; err != nil || time.Since(back) > absentPause {
			t.Errorf("it ended %v after the return with %v", time.Since(back), err)
		}
		if req := <-asked; len(req.Entries) > 0 || req.PrevLogEntry != 7 || req.PrevLogTerm != 4 ||
			req.LeaderCommitIndex != 7 {
			t.Errorf("the follower was asked %+v", req)
		}
		if looks := a.looks.Load(); looks > int64(time.Hour/absentPause)+3 {
			t.Errorf("it was looked for %d times in an hour", looks)
		}
	})
}

// A heartbeat that is not answered is what Raft counts.
func TestHeartbeatsDoNotWaitForTheirFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAbsentee(t)
		began := time.Now()
		if err := <-a.send(&raft.AppendEntriesRequest{Term: a.raft.CurrentTerm()}); err == nil || time.Since(began) > 0 {
			t.Errorf("it ended after %v with %v", time.Since(began), err)
		}
	})
}

// A wait ends when nothing is left to be sent: Raft's goroutines for a follower must not outlive
// its membership, the leadership or the node.
func TestWaitsForFollowersEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(t *testing.T, a *absentee)
		most time.Duration
	}{
		"the node stops": {func(_ *testing.T, a *absentee) { a.Leave() }, 0},
		"it is no member any more": {func(t *testing.T, a *absentee) {
			if err := a.raft.RemoveServer("n2.1", 0, 0).Error(); err != nil {
				t.Error(err)
			}
		}, absentPause},
		"this node leads no more": {func(t *testing.T, a *absentee) {
			if err := a.raft.Shutdown().Error(); err != nil {
				t.Error(err)
			}
		}, absentPause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAbsentee(t)
				ended := a.send(a.entries())
				clocktest.Elapse(time.Minute)
				select {
				case err := <-ended:
					t.Fatalf("it did not wait: %v", err)
				default:
				}
				began := time.Now()
				tc.end(t, a)
				if err := <-ended; !unreached(err) || time.Since(began) > tc.most {
					t.Errorf("it ended after %v with %v", time.Since(began), err)
				}
				began = time.Now()
				if err := <-a.send(a.entries()); !unreached(err) || time.Since(began) > 0 {
					t.Errorf("another one ended after %v with %v", time.Since(began), err)
				}
			})
		})
	}
}

// A message of an earlier term does not wait for the follower.
func TestEntriesOfAnEarlierTermDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAbsentee(t)
		req := a.entries()
		req.Term--
		began := time.Now()
		if err := <-a.send(req); !unreached(err) || time.Since(began) > 0 {
			t.Errorf("it ended after %v with %v", time.Since(began), err)
		}
	})
}

// One that is another now, or is being started, is not asked more often than by heartbeats.
func TestFollowerThatRefusesIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAbsentee(t)
		a.back(t, "d", func(raft.RPC) { t.Error("a stranger was sent entries") })
		ended := a.send(a.entries())
		clocktest.Elapse(time.Minute)
		if looks := a.looks.Load(); looks < 2 || looks > int64(time.Minute/refusedPause)+1 {
			t.Errorf("it was asked %d times in a minute", looks)
		}
		a.Leave()
		if err := <-ended; !unreached(err) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// A packet to one that is away may vanish, and the attempt with it.
func TestAttemptThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAbsentee(t)
		a.here.Store(pipetest.Listen("pipe")) // a listener that accepts nothing
		ended := a.send(a.entries())
		clocktest.Elapse(time.Minute)
		a.back(t, "c", answerTerm)
		back := time.Now()
		if err := <-ended; err != nil || time.Since(back) > dialTimeout+absentPause {
			t.Errorf("it ended %v after the return with %v", time.Since(back), err)
		}
		a.here.Store(pipetest.Listen("pipe"))
		a.CloseStreams()
		ended = a.send(a.entries())
		clocktest.Elapse(dialTimeout + absentPause + dialTimeout/2) // in the middle of an attempt
		began := time.Now()
		a.Leave()
		if err := <-ended; !unreached(err) || time.Since(began) > 0 {
			t.Errorf("when the node stopped it ended after %v with %v", time.Since(began), err)
		}
	})
}

// answerTerm answers entries with their term.
func answerTerm(rpc raft.RPC) {
	rpc.Respond(&raft.AppendEntriesResponse{Term: rpc.Command.(*raft.AppendEntriesRequest).Term, Success: true}, nil)
}

// snapshotFile is a snapshot on its way.
type snapshotFile struct {
	io.Reader
	closed atomic.Bool
}

// Close implements io.Closer.
func (f *snapshotFile) Close() error {
	f.closed.Store(true)
	return nil
}

// A snapshot that waits for its follower would keep its room on the disk; Raft takes the newest
// when the follower is there.
func TestSnapshotIsLetGoWhileItsFollowerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAbsentee(t)
		file, ended := &snapshotFile{Reader: errReader{}}, make(chan error, 1)
		go func() {
			req := &raft.InstallSnapshotRequest{Term: a.raft.CurrentTerm(), Size: 1}
			ended <- a.InstallSnapshot("n2.1", "n2.1", req, &raft.InstallSnapshotResponse{}, file)
		}()
		clocktest.Elapse(time.Hour)
		if !file.closed.Load() {
			t.Error("the file stays open")
		}
		a.back(t, "c", answerTerm)
		back := time.Now()
		if err := <-ended; !unreached(err) || time.Since(back) > absentPause {
			t.Errorf("it ended %v after the return with %v", time.Since(back), err)
		}
	})
}

// errReader is never read.
type errReader struct{}

// Read implements io.Reader.
func (errReader) Read([]byte) (int, error) { return 0, errors.New("it is read") }

// Raft counts a leader's entry as committed before it is durable here.
func TestFollowersLearnOnlyOfDurableEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAbsentee(t)
		asked := make(chan uint64, 1)
		a.back(t, "c", func(rpc raft.RPC) {
			req := rpc.Command.(*raft.AppendEntriesRequest)
			asked <- req.LeaderCommitIndex
			rpc.Respond(&raft.AppendEntriesResponse{Term: req.Term, Success: true}, nil)
		})
		for first, want := range map[uint64]uint64{8: 7, 9: 8, math.MaxUint64: 8} {
			a.Attach(a.raft, func() uint64 { return first })
			if err := <-a.send(a.entries()); err != nil {
				t.Fatal(err)
			}
			if got := <-asked; got != want {
				t.Errorf("if entry %d is not durable, entry %d is said to be committed, want %d", first, got, want)
			}
		}
	})
}
