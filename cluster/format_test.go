package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/fsm"
	"github.com/google/go-cmp/cmp"
)

// reading returns the command by which a node joins, or says anew, that reads formats up to one.
func reading(name string, format fsm.Format) command {
	return command{Join: &Node{Name: name, ServerID: name + ".1", Format: format}}
}

// TestFormatsOfAMachine: no format is spoken that a recorded node does not read, and no node is recorded that does not read what is spoken,
// in whichever order they come.
func TestFormatsOfAMachine(t *testing.T) {
	raised := command{Raise: &raise{2}}
	gone := command{Leave: &departure{ServerID: "b.1"}}
	tests := []struct {
		name     string
		spoken   fsm.Format // before
		commands []command
		want     verdict
		spokenBy string // after: the format, and what each node reads
	}{
		{"a raise past an old node", 1, []command{reading("a", 2), reading("b", 1), raised}, unread, "1 a2 b1"},
		{"a raise past a node of before there were formats", 1, []command{reading("a", 2), reading("b", 0), raised}, unread, "1 a2 b0"},
		{"a raise when all read it", 1, []command{reading("a", 2), reading("b", 3), raised}, done, "2 a2 b3"},
		{"a raise once the old node is gone", 1, []command{reading("a", 2), reading("b", 1), raised, gone, raised}, done, "2 a2"},
		{"a raise once the old node is new", 1, []command{reading("a", 2), reading("b", 1), raised, reading("b", 2), raised}, done, "2 a2 b2"},
		{"a node that went back before the raise", 1, []command{reading("a", 2), reading("b", 2), reading("b", 1), raised}, unread, "1 a2 b1"},
		{"a raise to what is spoken", 2, []command{reading("a", 2), raised}, done, "2 a2"},
		{"a raise that comes late", 3, []command{reading("a", 3), raised}, done, "3 a3"},
		{"an old node after the raise", 2, []command{reading("a", 2), reading("b", 1)}, unread, "2 a2"},
		{"a node of before there were formats after the raise", 2, []command{reading("a", 2), reading("b", 0)}, unread, "2 a2"},
		{"a node that goes back after the raise", 2, []command{reading("a", 2), reading("b", 2), reading("b", 1)}, unread, "2 a2 b2"},
		{"newer nodes after the raise", 2, []command{reading("a", 2), reading("b", 3)}, done, "2 a2 b3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine()
			m.state.Format = tt.spoken
			var out outcome
			for i, c := range tt.commands {
				c.Format = fsm.FirstFormat
				entry, err := json.Marshal(c)
				if err != nil {
					t.Fatal(err)
				}
				before := m.Digest()
				value, err := m.Apply(uint64(i)+1, entry)
				if err == nil {
					out = value.(outcome)
					continue
				}
				// A raise beyond what this program reads ends it, and says so.
				numbers := fmt.Sprintf("format 2, this program reads up to %d", fsm.LatestFormat)
				if tt.want != done || fsm.LatestFormat >= 2 || !strings.Contains(err.Error(), numbers) || m.Digest() != before {
					t.Errorf("command %d: %v", i, err)
				}
				return
			}
			spokenBy := fmt.Sprint(m.state.Format)
			for _, n := range m.state.Nodes {
				spokenBy += fmt.Sprintf(" %s%d", n.Name, n.Format)
			}
			if out.verdict != tt.want || spokenBy != tt.spokenBy {
				t.Errorf("verdict %d, %s; want %d, %s", out.verdict, spokenBy, tt.want, tt.spokenBy)
			}
			if restored, err := m.Restore(strings.NewReader(string(m.encode()))); m.state.Format <= fsm.LatestFormat {
				if err != nil || restored.(*machine).state.Format != m.state.Format {
					t.Errorf("restored: %v", err)
				}
			} else if !errors.Is(err, fsm.ErrVersion) {
				t.Errorf("a snapshot of format %d: %v", m.state.Format, err)
			}
		})
	}
}

// TestRefusalNamesBothFormats and the node that is to be replaced.
func TestRefusalNamesBothFormats(t *testing.T) {
	m := newMachine()
	m.state.Format = 2
	err := m.admits(reading("b", 0).Join)
	for _, words := range []string{"format 2", "reads up to 1", "b.1"} {
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}

// TestFormatThatAllRead is the lowest of what records and reports say, and the first while a node is silent.
func TestFormatThatAllRead(t *testing.T) {
	const last = fsm.LatestFormat
	tests := []struct {
		name    string
		records string // what each node is recorded to read
		reports string // what each says; a dash is silence
		want    fsm.Format
	}{
		{"this program", string([]byte{byte(last), byte(last)}), string([]byte{byte(last), byte(last)}), last},
		{"later ones", string([]byte{byte(last), byte(last) + 1}), string([]byte{byte(last), byte(last) + 1}), last},
		{"one of before there were formats", string([]byte{byte(last), 0}), string([]byte{byte(last), 0}), fsm.FirstFormat},
		{"one that goes back", string([]byte{byte(last), byte(last)}), string([]byte{byte(last), 1}), fsm.FirstFormat},
		{"one that is not recorded anew yet", string([]byte{byte(last), 1}), string([]byte{byte(last), byte(last)}), fsm.FirstFormat},
		{"a silent one", string([]byte{byte(last), byte(last)}), string([]byte{byte(last), '-'}), fsm.FirstFormat},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var nodes []Node
			reports := map[string]*Report{}
			for i := range tt.records {
				id := fmt.Sprint(i)
				nodes = append(nodes, Node{ServerID: id, Format: fsm.Format(tt.records[i])})
				if tt.reports[i] != '-' {
					reports[id] = &Report{Format: fsm.Format(tt.reports[i])}
				}
			}
			if got := agreed(nodes, reports); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// TestClusterSpeaksTheFormatThatAllRead: nodes of this program come to speak its format by themselves, and an older one is not admitted any more.
func TestClusterSpeaksTheFormatThatAllRead(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		a := newMember(t, network, dir, "a", nil)
		if a.node.Format() != fsm.LatestFormat { // or its first queues had other defaults than the next ones
			t.Errorf("a new cluster begins in format %d", a.node.Format())
		}
		b := newMember(t, network, dir, "b", a)
		await(t, "two voters of each shard", func() bool { return settled(a.cluster, 2, a, b) })
		await(t, "the latest format", func() bool { return a.node.Format() == fsm.LatestFormat && b.node.Format() == fsm.LatestFormat })
		if err := put(b, "q0"); err != nil {
			t.Error(err)
		}
		want := []fsm.Format{fsm.LatestFormat, fsm.LatestFormat}
		var got []fsm.Format
		for _, n := range b.cluster.Nodes() {
			got = append(got, n.Format)
		}
		if diff := cmp.Diff(want, got); diff != "" || b.cluster.Format() != fsm.LatestFormat {
			t.Errorf("the cluster speaks %d; nodes read (-want +got):\n%s", b.cluster.Format(), diff)
		}
		old := Node{Name: "old", ServerID: "old.1", Format: fsm.LatestFormat - 1}
		if err := b.cluster.Admit(t.Context(), old); errors.Is(err, ErrFormat) != (fsm.LatestFormat > fsm.FirstFormat) {
			t.Errorf("a node that reads up to %d: %v", old.Reads(), err)
		}
	})
}
