package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
)

// madeToken makes a token that ends at a time, never if that is 0, and allows to put to q.
func madeToken(made, end int64) *tokens.Record {
	_, id, hash := tokens.New()
	return &tokens.Record{ID: id, Hash: hash, Created: made, NotAfter: end,
		Scopes: tokens.Scopes{{Actions: []tokens.Action{tokens.Put}, Queues: "q"}}}
}

// TestTokensAreKept: what is recorded is found at once and after a restart, and what has ended is
// not.
func TestTokensAreKept(t *testing.T) {
	dir := t.TempDir()
	_, c, end := open(t, dir)
	kept, goes := madeToken(1, 0), madeToken(1, 0)
	for _, r := range []*tokens.Record{kept, goes} {
		if err := c.AddToken(t.Context(), *r); err != nil {
			t.Fatal(err)
		}
		if known, ok := c.Token(r.ID); !ok || known.Hash != r.Hash {
			t.Errorf("a token that was made: %+v, %v", known, ok)
		}
	}
	if err := c.AddToken(t.Context(), *kept); !errors.Is(err, ErrTokenExists) {
		t.Errorf("made again: %v", err)
	}
	later := time.Unix(0, 5)
	for _, test := range []struct {
		id   string
		at   time.Time
		want error
	}{{goes.ID, time.Time{}, nil}, {goes.ID, time.Time{}, ErrTokenUnknown}, {goes.ID, later, ErrTokenUnknown},
		{kept.ID, later, nil}, {kept.ID, later.Add(time.Hour), nil}} {
		if err := c.EndToken(t.Context(), test.id, test.at); !errors.Is(err, test.want) {
			t.Errorf("ending a token at %v: %v, want %v", test.at, err, test.want)
		}
	}
	end()
	_, c, _ = open(t, dir)
	if known, ok := c.Token(kept.ID); !ok || known.NotAfter != later.UnixNano() || !known.Scopes.Allow(tokens.Put, "q") {
		t.Errorf("after a restart: %+v, %v; want the earliest end that it was given", known, ok)
	}
	if _, ok := c.Token(goes.ID); ok || len(c.Tokens()) != 1 {
		t.Errorf("after a restart there are %d tokens", len(c.Tokens()))
	}
	bad := *kept
	bad.Scopes = nil
	if err := c.AddToken(t.Context(), bad); err == nil {
		t.Error("a token that allows nothing is taken")
	}
}

// TestTokensOfASnapshot: a replica that gets a snapshot accepts the tokens in it, and no others.
func TestTokensOfASnapshot(t *testing.T) {
	m, replica := newMachine(), newMachine()
	known, gone := madeToken(1, 0), madeToken(1, 0)
	apply(t, m, command{AddToken: known})
	apply(t, replica, command{AddToken: gone})
	shown := replica.access
	if _, err := replica.Restore(bytes.NewReader(m.encode())); err != nil {
		t.Fatal(err)
	}
	if all := shown.Load().tokens; len(all) != 1 || all[known.ID] == nil {
		t.Errorf("the replica knows %v", all)
	}
	for name, change := range map[string]func(all []*tokens.Record) []*tokens.Record{
		"twice":  func(all []*tokens.Record) []*tokens.Record { return append(all, all[0]) },
		"none":   func(all []*tokens.Record) []*tokens.Record { return append(all, nil) },
		"flawed": func(all []*tokens.Record) []*tokens.Record { return append(all, &tokens.Record{ID: "zzzz"}) },
	} {
		state := m.state
		state.Tokens = change([]*tokens.Record{known})
		data, err := json.Marshal(state)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newMachine().Restore(bytes.NewReader(data)); err == nil {
			t.Errorf("%s: a snapshot is restored", name)
		}
	}
}

// TestTokensAreBounded: there are so many and no more, and those that had ended make room.
func TestTokensAreBounded(t *testing.T) {
	m := newMachine()
	all := make([]*tokens.Record, tokensMax)
	for i := range all {
		all[i] = &tokens.Record{ID: fmt.Sprintf("%016d", i), Hash: tokens.Hash(strings.Repeat("0", 64)), Created: 1}
	}
	all[7].NotAfter = 5
	m.state.Tokens = all
	if out := apply(t, m, command{AddToken: madeToken(4, 0)}); out.verdict != needed {
		t.Errorf("one too many: %v", out.verdict)
	}
	if out := apply(t, m, command{AddToken: madeToken(5, 0)}); out.verdict != done || len(m.state.Tokens) != tokensMax {
		t.Errorf("when one has ended: %v, %d tokens", out.verdict, len(m.state.Tokens))
	}
	if out := apply(t, m, command{EndToken: &tokenEnd{ID: "0000000000000008"}}); out.verdict != done {
		t.Errorf("ending one: %v", out.verdict)
	}
}

// TestTokensRequiredByANode: while one node requires tokens, the cluster does, also at a replica
// that restores a snapshot. TokensRequiredAltered reports each change.
func TestTokensRequiredByANode(t *testing.T) {
	m, replica := newMachine(), newMachine()
	shown := &Catalog{access: m.access}
	altered := shown.TokensRequiredAltered()
	expect := func(when, required string, changes bool) {
		t.Helper()
		changed := false
		select {
		case <-altered:
			changed = true
		default:
		}
		if g := shown.TokensRequiredBy(); g != required || changed != changes {
			t.Errorf("%s: %q, and whoever follows that heard of it: %v; want %q, %v", when, g, changed, required, changes)
		}
		altered = shown.TokensRequiredAltered()
	}
	expect("at first", "", false)
	one, two := Node{Name: "n1", ServerID: "n1.a"}, Node{Name: "n2", ServerID: "n2.a", RequiresTokens: true}
	apply(t, m, command{Join: &one})
	expect("with one that asks nobody", "", false)
	apply(t, m, command{Join: &two})
	expect("with one that asks", "n2", true)
	shown = &Catalog{access: replica.access}
	altered = shown.TokensRequiredAltered()
	if _, err := replica.Restore(bytes.NewReader(m.encode())); err != nil {
		t.Fatal(err)
	}
	expect("in a snapshot", "n2", true)
	shown = &Catalog{access: m.access}
	altered = shown.TokensRequiredAltered()
	two.RequiresTokens = false
	apply(t, m, command{Join: &two})
	expect("when that asks no more", "", true)
	two.RequiresTokens = true
	apply(t, m, command{Join: &two})
	apply(t, m, command{AddToken: madeToken(1, 0)}, command{Leave: &Departure{ServerID: two.ServerID}})
	expect("when that has left", "", true)
	apply(t, m, command{AddToken: madeToken(1, 0)})
	expect("with a token", "", false)
}
