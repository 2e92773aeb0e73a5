package raftgroup

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
)

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
	i := openGroup(t, cfg).instance()
	for look := time.Tick(10 * time.Millisecond); i.State() != raft.Leader; {
		<-look
	}
	return i
}

// TestAnswersOutliveRaft: what was applied before the end is said to be, whenever it is asked.
func TestAnswersOutliveRaft(t *testing.T) {
	dir := longLog(t)
	synctest.Test(t, func(t *testing.T) {
		i := leadingCounter(t, testConfig(t, dir, &counter{}))
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
	dir := longLog(t)
	synctest.Test(t, func(t *testing.T) {
		i := leadingCounter(t, testConfig(t, dir, &counter{}))
		for name, future := range map[string]raft.Future{
			"apply":         i.Apply([]byte("x"), 0),
			"barrier":       i.Barrier(0),
			"configuration": i.AddNonvoter("another", "another", 0, 0),
			"transfer":      i.LeadershipTransferToServer("nobody", "nobody"),
		} {
			if end := i.endOf(future); !end.IsValid() || !end.CanSet() {
				t.Errorf("the future of %s, a %T, has no end that can be set", name, future)
			}
			_ = i.outcome(future)
		}
	})
}

// longLog returns the directory of a group with 15,000 entries.
func longLog(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	g := openGroup(t, testConfig(t, dir, &counter{}))
	closeGroup(t, g)
	st, err := storage.Open(dir, storage.Config{Group: "c1/" + self + "/counter", Mode: storage.MustExist})
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
	return dir
}
