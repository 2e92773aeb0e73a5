package raftgroup

import (
	"errors"
	"runtime"
	"testing"
	"weak"

	"github.com/hashicorp/raft"
)

// countedLog is a log in memory that counts what is read from it.
type countedLog struct {
	*raft.InmemStore
	reads int
	fails error
}

func (l *countedLog) IsMonotonic() bool { return true }

func (l *countedLog) GetLog(index uint64, entry *raft.Log) error {
	l.reads++
	return l.InmemStore.GetLog(index, entry)
}

func (l *countedLog) StoreLogs(logs []*raft.Log) error {
	if l.fails != nil {
		return l.fails
	}
	return l.InmemStore.StoreLogs(logs)
}

// TestRecentLog: what was stored last is read from memory, and never what is not in the log.
func TestRecentLog(t *testing.T) {
	below := &countedLog{InmemStore: raft.NewInmemStore()}
	log := &RecentLog{monotonicLog: below}
	store := func(first, n, term uint64, size int) error {
		t.Helper()
		var logs []*raft.Log
		for i := range n {
			logs = append(logs, &raft.Log{Index: first + i, Term: term, Data: make([]byte, size)})
		}
		return log.StoreLogs(logs)
	}
	read := func(index, term uint64, reads int) {
		t.Helper()
		below.reads = 0
		var l raft.Log
		err := log.GetLog(index, &l)
		if term == 0 && !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d is %+v, %v, should not be there", index, l, err)
		}
		if term > 0 && (err != nil || l.Index != index || l.Term != term) {
			t.Errorf("entry %d is %+v, %v, want one of term %d", index, l, err, term)
		}
		if below.reads != reads {
			t.Errorf("entry %d was read %d times from the store, want %d", index, below.reads, reads)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(store(1, 10, 1, 100))
	read(1, 1, 0)
	read(10, 1, 0)
	read(11, 0, 1)
	must(log.DeleteRange(6, 10)) // the suffix of another leader
	read(8, 0, 1)
	must(store(6, 2, 2, 100))
	read(6, 2, 0)
	read(5, 1, 1)
	must(log.DeleteRange(1, 3)) // a prefix that is in a snapshot
	read(6, 2, 0)
	below.fails = errors.New("the disk is broken")
	if err := store(8, 1, 2, 100); !errors.Is(err, below.fails) {
		t.Errorf("a write that failed: %v", err)
	}
	read(8, 0, 1)
	below.fails = nil
	must(log.DeleteRange(4, 7))
	must(store(100, 1, 3, 100)) // after the snapshot of a leader
	read(100, 3, 0)
	read(7, 0, 1)
	must(store(101, 5, 3, recentBytesMax/4))
	read(105, 3, 0)
	read(101, 3, 1)
	if log.bytes > recentBytesMax {
		t.Errorf("%d bytes are kept, want at most %d", log.bytes, recentBytesMax)
	}
	must(store(106, 1, 3, recentBytesMax))
	read(106, 3, 1)
	must(store(107, 1, 3, 100))
	read(107, 3, 0)
}

// TestRecentLogKeepsEntriesOnly: what an entry is part of, as Raft's are of futures that hold the
// answers of the machine, is not kept with it.
func TestRecentLogKeepsEntriesOnly(t *testing.T) {
	type future struct {
		log    raft.Log
		answer []byte
	}
	log := &RecentLog{monotonicLog: &discardLog{}}
	f := &future{log: raft.Log{Index: 1, Term: 7, Data: []byte("data")}, answer: make([]byte, 1<<20)}
	whole := weak.Make(f)
	if err := log.StoreLogs([]*raft.Log{&f.log}); err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(f)
	f = nil
	runtime.GC()
	if whole.Value() != nil {
		t.Error("what the entry was part of is kept")
	}
	var l raft.Log
	if err := log.GetLog(1, &l); err != nil || l.Term != 7 || string(l.Data) != "data" {
		t.Errorf("the entry is %+v, %v", l, err)
	}
}

// discardLog keeps nothing.
type discardLog struct{ monotonicLog }

func (*discardLog) StoreLogs([]*raft.Log) error { return nil }
