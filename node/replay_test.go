package node

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/raftgroup"
	"github.com/belfrydb/belfry/node/storage"
)

// stall has the machine of s stop at its next entry until the function that it returns is called,
// and fills the ways to it until Raft takes no entry any more, as in the replay of a long log.
func stall(t *testing.T, s *shard) (release func()) {
	t.Helper()
	synctest.Wait() // the start ends: what still waits for the machine's lock would stop the bubble's time
	held := make(chan struct{})
	s.Replica().View(func(Machine, raftgroup.Position) { // no entry is being applied
		s.applying = func(m Machine) {
			<-held
			s.follow(m)
		}
	})
	entry := codec.AppendEntry(nil, s.clock.Stamp(),
		[][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{put("orders", "x", time.Hour)}})})
	l, err := s.Leadership()
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		future, err := s.Submit(l, entry)
		if err != nil {
			t.Fatal(err)
		}
		if enqueueFailed(future) {
			return func() { close(held) }
		}
	}
	t.Fatal("raft takes entries without end")
	return nil
}

// enqueueFailed reports whether an entry was refused because Raft is busy. It does not wait for an
// entry that was taken.
func enqueueFailed(future *raftgroup.Future) bool {
	ended := make(chan error, 1)
	go func() {
		_, err := future.Wait()
		ended <- err
	}()
	synctest.Wait()
	select {
	case err := <-ended:
		return errors.Is(err, outcome.ErrOverloaded)
	default:
		return false
	}
}

func TestLeadIsLoggedOnceRaftTakesIt(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		s := n.shards[0].Load()
		l, err := s.Leadership()
		if err != nil {
			t.Fatal(err)
		}
		release := stall(t, s)
		ended := make(chan error, 1)
		go func() {
			_, err := s.logLead(t.Context(), l)
			ended <- err
		}()
		time.Sleep(15 * time.Second)
		if len(ended) > 0 {
			t.Errorf("the attempt ended with %v although Raft is busy", <-ended)
		}
		release()
		if err := <-ended; err != nil {
			t.Errorf("ended with %v", err)
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
		if took := time.Since(start); took < 10*time.Second {
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
	st, err := storage.Open(identity.GroupDir(cfg.Dir, group), storage.Config{
		Group: n.id.ClusterID + "/" + n.id.ServerID() + "/" + group, Mode: storage.MustExist,
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
		n.shards[1].Load().EndLeadership()
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
