package raftgroup

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/histogram"
)

// slowLog is a log in memory whose writes wait for the test.
type slowLog struct {
	*raft.InmemStore
	proceed chan error
	writes  [][]uint64 // the indexes of each write
}

// errProcessEnds makes a write end its goroutine, as the storage of a test does whose process ends.
var errProcessEnds = errors.New("the process ends")

func newSlowLog() *slowLog {
	return &slowLog{InmemStore: raft.NewInmemStore(), proceed: make(chan error)}
}

func (l *slowLog) IsMonotonic() bool { return true }

func (l *slowLog) StoreLogs(logs []*raft.Log) error {
	var indexes []uint64
	for _, e := range logs {
		indexes = append(indexes, e.Index)
	}
	l.writes = append(l.writes, indexes)
	err := <-l.proceed
	if errors.Is(err, errProcessEnds) {
		runtime.Goexit()
	}
	if err != nil {
		return err
	}
	return l.InmemStore.StoreLogs(logs)
}

// commandAt returns a command for a log.
func commandAt(index uint64) []*raft.Log {
	return []*raft.Log{{Index: index, Term: 1, Data: []byte("x")}}
}

// storeBeside stores entries, and lets their write begin if none is in progress.
func storeBeside(t *testing.T, log *RecentLog, logs []*raft.Log) {
	t.Helper()
	if err := log.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// started runs f and returns a channel that gets its result.
func started(f func() error) chan error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	synctest.Wait()
	return ended
}

// waits fails the test if what was started has ended.
func waits(t *testing.T, what string, ended chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-ended:
		t.Errorf("%s ended with %v before the entries were durable", what, err)
	default:
	}
}

// TestLeadersWriteBeside: a leader's commands can be read, and so replicated, before they are
// durable. All else waits.
func TestLeadersWriteBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, stable, leads := newSlowLog(), raft.NewInmemStore(), true
		log := NewRecentLog(slow)
		log.WriteBeside(func() bool { return leads })
		for index := uint64(1); index <= 3; index++ {
			storeBeside(t, log, commandAt(index))
		}
		var l raft.Log
		if err := log.GetLog(3, &l); err != nil || l.Index != 3 {
			t.Errorf("an entry that is being written is %+v, %v", l, err)
		}
		if first := log.Unwritten(); first != 1 {
			t.Errorf("entry %d is said to be the first that is not durable", first)
		}
		others := map[string]chan error{
			"a change of members": started(func() error {
				return log.StoreLog(&raft.Log{Index: 4, Term: 1, Type: raft.LogConfiguration})
			}),
			"the next term":        started(func() error { return termStore{stable, log}.SetUint64([]byte("t"), 2) }),
			"a vote":               started(func() error { return termStore{stable, log}.Set([]byte("v"), []byte("n2")) }),
			"applying entry 3":     started(func() error { return log.Await(3) }),
			"what the log ends at": started(func() error { _, err := log.LastIndex(); return err }),
		}
		for what, ended := range others {
			waits(t, what, ended)
		}
		slow.proceed <- nil
		if err := log.Await(1); err != nil {
			t.Error(err)
		}
		for what, ended := range others {
			waits(t, what, ended)
		}
		slow.proceed <- nil
		slow.proceed <- nil // the change of members
		for what, ended := range others {
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if first := log.Unwritten(); first != math.MaxUint64 {
			t.Errorf("entry %d is said to be the first that is not durable", first)
		}
		if want := [][]uint64{{1}, {2, 3}, {4}}; !slices.EqualFunc(slow.writes, want, slices.Equal) {
			t.Errorf("the writes have entries %v, want %v", slow.writes, want)
		}
		leads = false
		waits(t, "the entry of a follower", started(func() error { return log.StoreLogs(commandAt(5)) }))
		slow.proceed <- nil
	})
}

// TestPrefixesAreCutBesideWrites: a leader removes what a snapshot holds while it stores entries.
func TestPrefixesAreCutBesideWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newSlowLog()
		log := NewRecentLog(slow)
		go func() {
			for range 3 {
				slow.proceed <- nil
			}
		}()
		for index := uint64(1); index <= 3; index++ {
			if err := log.StoreLogs(commandAt(index)); err != nil {
				t.Fatal(err)
			}
		}
		log.WriteBeside(func() bool { return true })
		storeBeside(t, log, commandAt(4))
		cut := started(func() error { return log.DeleteRange(1, 2) })
		waits(t, "the cut", cut)
		slow.proceed <- nil
		if err := <-cut; err != nil {
			t.Error(err)
		}
		var l raft.Log
		if !log.recent(4, &l) {
			t.Error("an entry behind the cut was dropped from memory: if it was stored since, it is nowhere else")
		}
		storeBeside(t, log, commandAt(5))
		for index, want := range map[uint64]error{2: raft.ErrLogNotFound, 3: nil, 4: nil, 5: nil} {
			if err := log.GetLog(index, &l); !errors.Is(err, want) {
				t.Errorf("entry %d is read with %v, want %v", index, err, want)
			}
		}
		slow.proceed <- nil
	})
}

// TestALeaderThatIsFarBehindWaits: memory does not fill while a disk is slow.
func TestALeaderThatIsFarBehindWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newSlowLog()
		log := NewRecentLog(slow)
		log.WriteBeside(func() bool { return true })
		large := func(index uint64) []*raft.Log {
			return []*raft.Log{{Index: index, Data: make([]byte, recentBytesMax*2/3)}}
		}
		storeBeside(t, log, large(1))
		second := started(func() error { return log.StoreLogs(large(2)) })
		waits(t, "the second entry", second)
		var l raft.Log
		if err := log.GetLog(1, &l); err != nil {
			t.Errorf("the first entry was dropped from memory before it was durable: %v", err)
		}
		slow.proceed <- nil
		slow.proceed <- nil
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
}

// TestEntriesThatWereNotWrittenAreNeverApplied: after a write that failed, nothing is applied, and
// the log takes nothing more.
func TestEntriesThatWereNotWrittenAreNeverApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine, broken := &counter{}, errors.New("the disk is broken")
		r := New(Config{
			Fatal: func(err error) { t.Error(err) }, Grown: func() {}, Throttle: &Throttle{},
			Machine: machine, ApplySeconds: histogram.Seconds(),
		}).replica
		slow := newSlowLog()
		log := NewRecentLog(slow)
		log.WriteBeside(func() bool { return true })
		r.log.Store(log)
		apply := func(index uint64) error { return r.Apply(commandAt(index)[0]).(*appliedEntry).err }
		for index := uint64(1); index <= 2; index++ {
			storeBeside(t, log, commandAt(index))
		}
		first := started(func() error { return apply(1) })
		waits(t, "applying an entry", first)
		slow.proceed <- nil
		if err := <-first; err != nil {
			t.Error(err)
		}
		slow.proceed <- broken
		synctest.Wait()
		for what, f := range map[string]func() error{
			"applying an entry": func() error { return apply(2) },
			"storing an entry":  func() error { return log.StoreLogs(commandAt(3)) },
			"a cut":             func() error { return log.DeleteRange(1, 1) },
		} {
			if err := f(); !errors.Is(err, broken) {
				t.Errorf("%s after a write that failed: %v", what, err)
			}
		}
		stable, returned := raft.NewInmemStore(), false
		var raftEnds sync.WaitGroup
		raftEnds.Go(func() {
			_ = termStore{stable, log}.SetUint64([]byte("t"), 2)
			returned = true
		})
		raftEnds.Wait()
		if term, err := stable.GetUint64([]byte("t")); returned || err != nil || term != 0 {
			t.Errorf("the next term was stored as %d, and Raft went on: %v", term, returned)
		}
		if machine.count != 1 {
			t.Errorf("%d entries were applied, want 1", machine.count)
		}
	})
}

// TestAWriteThatDoesNotReturn: nobody waits for ever for entries that nobody writes any more.
func TestAWriteThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newSlowLog()
		log := NewRecentLog(slow)
		log.WriteBeside(func() bool { return true })
		storeBeside(t, log, commandAt(1))
		applied := started(func() error { return log.Await(1) })
		slow.proceed <- errProcessEnds
		if err := <-applied; !errors.Is(err, errNotWritten) {
			t.Errorf("the wait ended with %v", err)
		}
	})
}
