package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// reading returns the command by which a node joins, or says anew, that reads formats up to one.
func reading(name string, format fsm.Format) command {
	return command{Join: &Node{Name: name, ServerID: name + ".1", Format: format}}
}

// TestFormatsOfAMachine: no format is spoken that a recorded node does not read, and no node is
// recorded that does not read what is spoken, in whichever order they come.
func TestFormatsOfAMachine(t *testing.T) {
	raised := command{Raise: &raise{2}}
	gone := command{Leave: &Departure{ServerID: "b.1"}}
	tests := []struct {
		name     string
		spoken   fsm.Format // before
		commands []command
		want     verdict
		spokenBy string // after: the format, and what each node reads
	}{
		{"a raise past an old node", 1, []command{reading("a", 2), reading("b", 1), raised}, unread, "1 a2 b1"},
		{"a raise past a node of before there were formats", 1, []command{reading("a", 2), reading("b", 0), raised},
			unread, "1 a2 b0"},
		{"a raise when all read it", 1, []command{reading("a", 2), reading("b", 3), raised}, done, "2 a2 b3"},
		{"a raise once the old node is gone", 1, []command{reading("a", 2), reading("b", 1), raised, gone, raised},
			done, "2 a2"},
		{"a raise once the old node is new", 1, []command{reading("a", 2), reading("b", 1), raised, reading("b", 2), raised},
			done, "2 a2 b2"},
		{"a node that went back before the raise", 1, []command{reading("a", 2), reading("b", 2), reading("b", 1), raised},
			unread, "1 a2 b1"},
		{"a raise to what is spoken", 2, []command{reading("a", 2), raised}, done, "2 a2"},
		{"a raise that comes late", 3, []command{reading("a", 3), raised}, done, "3 a3"},
		{"an old node after the raise", 2, []command{reading("a", 2), reading("b", 1)}, unread, "2 a2"},
		{"a node of before there were formats after the raise", 2, []command{reading("a", 2), reading("b", 0)},
			unread, "2 a2"},
		{"a node that goes back after the raise", 2, []command{reading("a", 2), reading("b", 2), reading("b", 1)},
			unread, "2 a2 b2"},
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
