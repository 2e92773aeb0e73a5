package catalog

import (
	"bytes"
	"fmt"
	"testing"
)

// TestDepartureIsRemembered: a server that left is not recorded again, whatever it asks for, also
// after a snapshot.
func TestDepartureIsRemembered(t *testing.T) {
	x, moved, other := Node{Name: "x", ServerID: "x.1"}, Node{Name: "x", ServerID: "x.1", PeerAddr: "elsewhere"},
		Node{Name: "x", ServerID: "x.2"}
	m := newMachine()
	apply(t, m, command{Join: &x}, command{Join: &other, Silent: []string{"x.1"}})
	for _, step := range []struct {
		name string
		c    command
		want verdict
	}{
		{"an unknown node leaves", command{Leave: &Departure{ServerID: "x.9"}}, overtaken},
		{"it leaves", command{Leave: &Departure{ServerID: "x.1", Replacement: "x.2"}}, done},
		{"it leaves again", command{Leave: &Departure{ServerID: "x.1"}}, overtaken},
		{"it comes back", command{Join: &x, Silent: []string{"x.2"}}, gone},
		{"it comes back from elsewhere", command{Join: &moved, Silent: []string{"x.2"}}, gone},
		{"an unknown node joins", command{Join: &Node{Name: "x", ServerID: "x.9"}, Silent: []string{"x.2"}}, done},
	} {
		if got := apply(t, m, step.c); got.verdict != step.want {
			t.Errorf("%s: verdict %d, want %d", step.name, got.verdict, step.want)
		}
	}
	if got, _ := m.departed("x.1"); got.Replacement != "x.2" {
		t.Errorf("its replacement is %q", got.Replacement)
	}
	var stored bytes.Buffer
	if _, err := m.Snapshot().WriteTo(&stored); err != nil {
		t.Fatal(err)
	}
	restored, err := newMachine().Restore(&stored)
	if err != nil {
		t.Fatal(err)
	}
	if got := apply(t, restored.(*machine), command{Join: &x, Silent: []string{"x.2", "x.9"}}); got.verdict != gone {
		t.Errorf("after a restore it is admitted: verdict %d", got.verdict)
	}
}

// TestDeparturesAreBounded: the oldest are forgotten, the others are not.
func TestDeparturesAreBounded(t *testing.T) {
	m := newMachine()
	id := func(i int) string { return fmt.Sprintf("x.%d", i) }
	const more = 3
	for i := range departedMax + more {
		apply(t, m, command{Join: &Node{Name: id(i), ServerID: id(i)}}, command{Leave: &Departure{ServerID: id(i)}})
	}
	if n := len(m.state.Departed); n != departedMax {
		t.Errorf("%d departures are remembered", n)
	}
	for i, want := range map[int]verdict{more - 1: done, more: gone, departedMax + more - 1: gone} {
		if got := apply(t, m, command{Join: &Node{Name: id(i), ServerID: id(i)}}); got.verdict != want {
			t.Errorf("%s comes back: verdict %d, want %d", id(i), got.verdict, want)
		}
	}
}
