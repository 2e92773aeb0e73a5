package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/hashicorp/raft"
)

// stall has the machine of s stop at its next entry until the function that it returns is called,
// and fills the ways to it until Raft takes no entry any more, as in the replay of a long log.
func stall(t *testing.T, s *shard) (release func()) {
	t.Helper()
	held := make(chan struct{})
	s.replica.view(func(Machine, uint64, uint64) { // no entry is being applied
		s.applying = func(m Machine) {
			<-held
			s.follow(m)
		}
	})
	entry := codec.AppendEntry(nil, s.clock.Stamp(),
		[][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{put("orders", "x", time.Hour)}})})
	for range 10_000 {
		future := s.instance().Apply(entry, time.Second)
		if enqueueFailed(future) {
			return func() { close(held) }
		}
	}
	t.Fatal("raft takes entries without end")
	return nil
}

// enqueueFailed reports whether an entry was refused because Raft is busy. It does not wait for an
// entry that was taken.
func enqueueFailed(future raft.ApplyFuture) bool {
	ended := make(chan error, 1)
	go func() { ended <- future.Error() }()
	synctest.Wait()
	select {
	case err := <-ended:
		return errors.Is(err, raft.ErrEnqueueTimeout)
	default:
		return false
	}
}

func TestLeaderThatRaftKeepsWaitingServesInTheEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		s := n.shards[0].Load()
		release := stall(t, s)
		s.lose()
		s.gain(t.Context())
		time.Sleep(3 * submitTimeout)
		if s.serves() {
			t.Error("the shard serves although nothing was applied")
		}
		release()
		time.Sleep(2 * insistPause)
		synctest.Wait()
		if !s.serves() {
			t.Fatalf("the shard never serves again: %+v", n.Status().Shards[0])
		}
		do(t, n, 0, put("orders", "y", 0))
	})
}

func TestLeadIsLoggedOnceRaftTakesIt(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		s := n.shards[0].Load()
		l, err := s.leader()
		if err != nil {
			t.Fatal(err)
		}
		release := stall(t, s)
		ended := make(chan error, 1)
		go func() {
			_, err := s.logLead(t.Context(), l)
			ended <- err
		}()
		time.Sleep(3 * submitTimeout)
		if len(ended) > 0 {
			t.Errorf("the attempt ended with %v although Raft is busy", <-ended)
		}
		release()
		if err := <-ended; err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestInsist(t *testing.T) {
	unknown := fmt.Errorf("%w: disk", outcome.ErrUnknownOutcome)
	tests := []struct {
		name    string
		answers []error
		cancel  bool
		want    error
		calls   int
	}{
		{"taken at once", []error{nil}, false, nil, 1},
		{"taken after refusals", []error{outcome.ErrOverloaded, outcome.ErrNotLeader, outcome.ErrNoLeader, nil},
			false, nil, 4},
		{"unknown", []error{outcome.ErrOverloaded, unknown, nil}, false, unknown, 2},
		{"over", []error{outcome.ErrOverloaded, nil}, true, outcome.ErrOverloaded, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancel {
					cancel()
				}
				calls := 0
				err := insist(ctx, func() error { calls++; return tt.answers[calls-1] })
				if !errors.Is(err, tt.want) || calls != tt.calls {
					t.Errorf("ended with %v after %d attempts, want %v after %d", err, calls, tt.want, tt.calls)
				}
			})
		})
	}
}

// raftFuture is a future of Raft that a test decides about.
type raftFuture struct {
	done chan struct{}
	err  error

	ShutdownCh chan struct{} // named and used as Raft's futures do
}

func (f *raftFuture) Error() error {
	select {
	case <-f.done:
		return f.err
	case <-f.ShutdownCh:
		return raft.ErrRaftShutdown
	}
}

// What Raft's machine had not come to when it was stopped is never answered.
func TestStopDoesNotWaitForWhatIsNeverAnswered(t *testing.T) {
	ended := make(chan struct{})
	i := &instance{ended: ended}
	close(ended)
	if err := i.outcome(&raftFuture{done: make(chan struct{})}); !errors.Is(err, raft.ErrRaftShutdown) {
		t.Errorf("ended with %v", err)
	}
	answered := &raftFuture{done: make(chan struct{})}
	answered.err = raft.ErrLeadershipLost
	close(answered.done)
	if err := (&instance{ended: make(chan struct{})}).outcome(answered); !errors.Is(err, raft.ErrLeadershipLost) {
		t.Errorf("ended with %v", err)
	}
}

// leadingCounter starts a group of one with a counter, and waits until it leads.
func leadingCounter(t *testing.T, cfg Config) *instance {
	t.Helper()
	n := openNode(t, cfg)
	g, err := n.StartGroup(t.Context(), GroupConfig{Name: "counter", Machine: &counter{}})
	if err != nil {
		t.Fatal(err)
	}
	i := g.group.instance()
	for look := time.Tick(10 * time.Millisecond); i.State() != raft.Leader; {
		<-look
	}
	return i
}

// TestAnswersOutliveRaft: what was applied before the end is said to be, whenever it is asked.
func TestAnswersOutliveRaft(t *testing.T) {
	cfg := longLog(t, "counter")
	synctest.Test(t, func(t *testing.T) {
		i := leadingCounter(t, cfg)
		var futures []raft.Future
		for range 64 { // each takes the end half the time
			futures = append(futures, i.Apply([]byte("x"), 0))
		}
		if err := i.outcome(i.Barrier(0)); err != nil {
			t.Fatal(err)
		}
		if err := i.shutDown(); err != nil {
			t.Fatal(err)
		}
		for _, future := range futures {
			if err := i.outcome(future); err != nil {
				t.Fatalf("an entry that was applied ended with %v", err)
			}
		}
	})
}

// Every kind of future that Raft may never answer has what ends the wait for it.
func TestEndOfEveryFuture(t *testing.T) {
	cfg := longLog(t, "counter")
	synctest.Test(t, func(t *testing.T) {
		i := leadingCounter(t, cfg)
		for name, future := range map[string]raft.Future{
			"apply":         i.Apply([]byte("x"), 0),
			"barrier":       i.Barrier(0),
			"configuration": i.AddNonvoter("another", "another", 0, 0),
			"transfer":      i.LeadershipTransferToServer("nobody", "nobody"),
		} {
			if end := endOf(future); !end.IsValid() || !end.CanSet() {
				t.Errorf("the future of %s, a %T, has no end that can be set", name, future)
			}
			_ = i.outcome(future)
		}
	})
}

// slowMachine is a counter that takes its time over some entries: 25 s over 15,000. After 30 s the
// snapshots would be looked at, and wait for its lock, on which a bubble's time does not go on.
type slowMachine struct {
	counter
	wait func(time.Duration)
}

func (m *slowMachine) Apply(index uint64, entry []byte) (any, error) {
	if index%600 == 0 {
		m.wait(time.Second)
	}
	return m.counter.Apply(index, entry)
}

// The log is longer than the ways to the machine, so Raft itself waits during the replay.
func TestStartOutlastsALongReplay(t *testing.T) {
	cfg := longLog(t, "counter")
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, cfg)
		start := time.Now()
		if _, err := n.StartGroup(t.Context(), GroupConfig{Name: "counter",
			Machine: &slowMachine{wait: func(d time.Duration) { time.Sleep(d) }}}); err != nil {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		if took := time.Since(start); took < 2*submitTimeout {
			t.Errorf("the replay took %v only, which tests nothing", took)
		}
	})
}

// A start that is given up in the middle of a replay ends.
func TestStartIsGivenUpDuringAReplay(t *testing.T) {
	cfg := longLog(t, "counter")
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, cfg)
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		if _, err := n.StartGroup(ctx, GroupConfig{Name: "counter",
			Machine: &slowMachine{wait: func(d time.Duration) { time.Sleep(d) }}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
		closeNode(t, n)
	})
}

// longLog returns the configuration of a node that has a group with 15,000 entries.
func longLog(t *testing.T, group string) Config {
	t.Helper()
	cfg := testConfig(t, t.TempDir())
	n := openNode(t, cfg)
	if _, err := n.StartGroup(t.Context(), GroupConfig{Name: group, Machine: &counter{}}); err != nil {
		t.Fatal(err)
	}
	closeNode(t, n)
	st, err := storage.Open(groupDir(cfg.Dir, group), storage.Config{
		Group: n.id.ClusterID + "/" + n.id.serverID() + "/" + group, Mode: storage.MustExist,
	})
	if err != nil {
		t.Fatal(err)
	}
	last, _ := st.Log.LastIndex()
	term, _ := st.Stable.GetUint64([]byte("CurrentTerm"))
	logs := make([]*raft.Log, 15_000)
	for i := range logs {
		last++
		logs[i] = &raft.Log{Index: last, Term: term, Type: raft.LogCommand, Data: []byte("1")}
	}
	if err := errors.Join(st.Log.StoreLogs(logs), st.Close()); err != nil {
		t.Fatal(err)
	}
	cfg.AcceptClock = true // a bubble's clock is far behind
	return cfg
}

func TestALongStartSaysWhatItIsDoing(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		cfg := testConfig(t, dir)
		cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
		n := openNode(t, cfg)
		n.shards[1].Load().serving.Store(nil)
		end := n.narrateStart()
		time.Sleep(2*narrateInterval + time.Second)
		end()
		synctest.Wait()
		if got := strings.Count(out.String(), "replaying the log"); got != 2 ||
			!strings.Contains(out.String(), "group=shard-1 applied_index=4 last_index=4") {
			t.Errorf("two intervals said %q", out.String())
		}
	})
}
