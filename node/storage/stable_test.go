package storage_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

func TestStableKeepsValues(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	must(t, checkVote(s.Stable, 0, 0, ""))
	if got, err := s.Stable.Get([]byte("absent")); got != nil || err != nil {
		t.Errorf("absent key: %v, %v; Raft takes any value for a vote cast", got, err)
	}
	setTerm(t, s, 7)
	must(t, vote(s.Stable, 7, "b"))
	must(t, s.Stable.Set([]byte("other"), []byte{0, 1, 2}))
	must(t, s.Stable.Set([]byte("empty"), nil))
	if _, err := s.Stable.GetUint64([]byte("other")); err == nil {
		t.Error("three bytes were taken for a number")
	}
	closeStores(t, s)
	s = openOn(t, d)
	defer closeStores(t, s)
	must(t, checkVote(s.Stable, 7, 7, "b"))
	if got, err := s.Stable.Get([]byte("other")); !bytes.Equal(got, []byte{0, 1, 2}) || err != nil {
		t.Errorf("other: %v, %v", got, err)
	}
}

// The term of a vote is neither visible nor durable before its candidate.
func TestStableVoteIsOneRecord(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	setTerm(t, s, 7)
	must(t, vote(s.Stable, 7, "b"))
	must(t, s.Stable.SetUint64([]byte("LastVoteTerm"), 8))
	must(t, checkVote(s.Stable, 7, 7, "b"))
	// Another write in between must not carry it along.
	setTerm(t, s, 8)
	must(t, checkVote(s.Stable, 8, 7, "b"))
	syncs := 0
	d.SetHook(func(o diskfault.Op) error {
		if o.Kind == diskfault.OpSync && strings.Contains(o.Path, "stable") {
			syncs++
		}
		return nil
	})
	must(t, s.Stable.Set([]byte("LastVoteCand"), []byte("c")))
	d.Crash(diskfault.LoseAll, diskfault.LoseNames)
	if syncs != 1 {
		t.Errorf("%d syncs for a vote", syncs)
	}
	_ = s.Close() // its files are gone
	s = openOn(t, d)
	defer closeStores(t, s)
	must(t, checkVote(s.Stable, 8, 8, "c"))
}

func TestStableRepeatedWriteCostsNothing(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	defer closeStores(t, s)
	setTerm(t, s, 7)
	must(t, vote(s.Stable, 7, "b"))
	d.SetHook(func(o diskfault.Op) error {
		if o.Mutates() {
			t.Errorf("%s of %s", o.Kind, o.Path)
		}
		return nil
	})
	setTerm(t, s, 7)
	must(t, vote(s.Stable, 7, "b"))
	d.SetHook(nil)
	// The second vote's term must not wait for some later candidate.
	must(t, s.Stable.Set([]byte("LastVoteCand"), []byte("z")))
	must(t, checkVote(s.Stable, 7, 7, "z"))
}

func TestStableOwnsItsSlices(t *testing.T) {
	s := openOn(t, newDisk())
	defer closeStores(t, s)
	value := []byte("value")
	must(t, s.Stable.Set([]byte("k"), value))
	value[0] = 'X'
	got, err := s.Stable.Get([]byte("k"))
	must(t, err)
	got[1] = 'X'
	if again, _ := s.Stable.Get([]byte("k")); string(again) != "value" {
		t.Errorf("value became %q", again)
	}
}

// A heartbeat that Raft answers beside its main loop may be overtaken by an election, and would
// then bring an old term back.
func TestStableTakesNoLowerTerm(t *testing.T) {
	var fatal []error
	s, err := storage.Open("/g", storage.Config{Group: "g", FS: newDisk(), OnFatal: func(err error) {
		fatal = append(fatal, err)
	}})
	must(t, err)
	defer func() { _ = s.Close() }() // it has failed
	setTerm(t, s, 7)
	must(t, vote(s.Stable, 7, "b"))
	setTerm(t, s, 7)
	setTerm(t, s, 8)
	if len(fatal) > 0 {
		t.Fatalf("gave up over %v", fatal)
	}
	if err := s.Stable.SetUint64([]byte("CurrentTerm"), 7); err == nil || len(fatal) != 1 {
		t.Errorf("term 7 after term 8: %v; told of %v", err, fatal)
	}
	if got, err := s.Stable.GetUint64([]byte("CurrentTerm")); got != 8 || err != nil {
		t.Errorf("the term is %d, %v", got, err)
	}
	if err := s.Stable.SetUint64([]byte("CurrentTerm"), 9); err == nil {
		t.Error("the group goes on")
	}
}
