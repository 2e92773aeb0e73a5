package storage_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// modelLog is a log as a slice; the entry at index first is logs[0].
type modelLog struct {
	first uint64
	logs  []*raft.Log
}

func (m *modelLog) last() uint64 { return m.first + uint64(len(m.logs)) - 1 }

// logMachine drives a LogStore and a modelLog with the same calls.
type logMachine struct {
	disk   *diskfault.Disk
	stores *storage.Stores
	model  modelLog
	term   uint64
}

func (m *logMachine) open(t *rapid.T) {
	s, err := storage.Open(groupDir, smallSegments(m.disk))
	if err != nil {
		t.Fatal(err)
	}
	m.stores = s
}

// Append stores one batch, of any sizes, after the last entry, or anywhere in an empty log that a
// snapshot precedes.
func (m *logMachine) Append(t *rapid.T) {
	if len(m.model.logs) == 0 {
		newest, _ := m.stores.Snapshots.Newest()
		m.model.first = newest.Index + 1
	}
	m.term += rapid.Uint64Range(0, 1).Draw(t, "newer term")
	var batch []*raft.Log
	for range rapid.IntRange(1, 6).Draw(t, "entries") {
		batch = append(batch, &raft.Log{
			Index: m.model.first + uint64(len(m.model.logs)+len(batch)), Term: m.term,
			Data:       rapid.SliceOfN(rapid.Byte(), 0, 900).Draw(t, "data"),
			Extensions: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "extensions"),
		})
	}
	err := errors.Join(m.stores.Stable.SetUint64([]byte("CurrentTerm"), m.term), m.stores.Log.StoreLogs(batch))
	if err != nil {
		t.Fatal(err)
	}
	m.model.logs = append(m.model.logs, batch...)
}

// Rewrite cuts a suffix above the snapshot, as a new leader makes a follower do.
func (m *logMachine) Rewrite(t *rapid.T) {
	newest, _ := m.stores.Snapshots.Newest()
	from := max(newest.Index+1, m.model.first)
	if len(m.model.logs) == 0 || from > m.model.last() {
		return // nothing is above the snapshot
	}
	from = rapid.Uint64Range(from, m.model.last()).Draw(t, "from")
	if err := m.stores.Log.DeleteRange(from, m.model.last()); err != nil {
		t.Fatal(err)
	}
	m.model.logs = m.model.logs[:from-m.model.first]
	m.term++
}

// Compact takes a snapshot within the log and cuts a prefix up to it.
func (m *logMachine) Compact(t *rapid.T) {
	newest, _ := m.stores.Snapshots.Newest()
	from := max(newest.Index, m.model.first)
	if len(m.model.logs) == 0 || from > m.model.last() {
		return // nothing is new
	}
	at := rapid.Uint64Range(from, m.model.last()).Draw(t, "snapshot")
	if err := takeSnapshot(m.stores.Snapshots, at, m.model.logs[at-m.model.first].Term, nil); err != nil {
		t.Fatal(err)
	}
	upTo := rapid.Uint64Range(m.model.first, at).Draw(t, "up to")
	if err := m.stores.Log.DeleteRange(0, upTo); err != nil {
		t.Fatal(err)
	}
	m.model.logs = m.model.logs[upTo+1-m.model.first:]
	m.model.first = upTo + 1
}

// Reopen closes the group, or cuts the power, and opens it.
func (m *logMachine) Reopen(t *rapid.T) {
	if rapid.Bool().Draw(t, "power cut") {
		m.disk.Crash(diskfault.LoseAll, diskfault.LoseNames)
		_ = m.stores.Close() // its files are gone
	} else if err := m.stores.Close(); err != nil {
		t.Fatal(err)
	}
	m.open(t)
}

// Check compares everything.
func (m *logMachine) Check(t *rapid.T) {
	var want [2]uint64
	if len(m.model.logs) > 0 {
		want = [2]uint64{m.model.first, m.model.last()}
	}
	first, _ := m.stores.Log.FirstIndex()
	last, _ := m.stores.Log.LastIndex()
	if got := [2]uint64{first, last}; got != want {
		t.Fatalf("log holds %v, want %v", got, want)
	}
	for _, w := range m.model.logs {
		var got raft.Log
		if err := m.stores.Log.GetLog(w.Index, &got); err != nil {
			t.Fatal(err)
		}
		if got.Index != w.Index || got.Term != w.Term || !bytes.Equal(got.Data, w.Data) ||
			!bytes.Equal(got.Extensions, w.Extensions) {
			t.Fatalf("entry %d is %+v, want %+v", w.Index, got, w)
		}
	}
}

// Any sequence of what Raft does leaves the log that a slice would be, across restarts and power
// cuts.
func TestLogAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &logMachine{disk: newDisk(), term: 1, model: modelLog{first: 1}}
		m.open(t)
		t.Repeat(map[string]func(*rapid.T){
			"Append": m.Append, "Rewrite": m.Rewrite, "Compact": m.Compact, "Reopen": m.Reopen, "": m.Check,
		})
		if err := m.stores.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
