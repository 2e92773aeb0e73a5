package cluster

import (
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cluster/catalog"
)

func TestDirectory(t *testing.T) {
	type heard struct{ server, addr string }
	for _, test := range []struct {
		name  string
		steps []any  // seen, or []Node as the catalog records them
		want  string // addresses
	}{
		{"nobody", nil, ""},
		{"from the catalog", []any{[]catalog.Node{{ServerID: "a.1", PeerAddr: "x"}}}, "x"},
		{"from gossip", []any{heard{"a.1", "y"}}, "y"},
		{"gossip before the first look into the catalog", []any{heard{"a.1", "y"}, []catalog.Node{{
			ServerID: "a.1", PeerAddr: "x",
		}}}, "y x"},
		{"gossip after the catalog", []any{[]catalog.Node{{ServerID: "a.1", PeerAddr: "x"}}, heard{"a.1", "y"}}, "y x"},
		{"both say the same", []any{[]catalog.Node{{ServerID: "a.1", PeerAddr: "x"}}, heard{"a.1", "x"}}, "x"},
		{"a new record after gossip", []any{[]catalog.Node{{
			ServerID: "a.1", PeerAddr: "x",
		}}, heard{"a.1", "y"}, []catalog.Node{{ServerID: "a.1", PeerAddr: "z"}}}, "z"},
		{"another server is heard there", []any{[]catalog.Node{{ServerID: "a.1", PeerAddr: "x"}}, heard{"a.2", "x"}}, ""},
		{"another server is heard there, and it elsewhere", []any{[]catalog.Node{{
			ServerID: "a.1", PeerAddr: "x",
		}}, heard{"a.2", "x"}, heard{"a.1", "y"}}, "y"},
		{"another server was heard there first", []any{heard{"a.2", "x"}, []catalog.Node{{
			ServerID: "a.1", PeerAddr: "x",
		}}}, ""},
		{"another server follows it there", []any{heard{"a.1", "x"}, heard{"a.2", "x"}}, ""},
		{"it comes back", []any{heard{"a.1", "x"}, heard{"a.2", "x"}, heard{"a.1", "x"}}, "x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := NewDirectory()
			for _, step := range test.steps {
				switch step := step.(type) {
				case heard:
					d.Hear(step.server, step.addr)
				case []catalog.Node:
					d.record(step)
				}
			}
			got, err := d.Resolve("a.1")
			if strings.Join(got, " ") != test.want || (err != nil) != (test.want == "") {
				t.Errorf("resolved to %q, %v, want %q", got, err, test.want)
			}
			if err != nil && !strings.Contains(err.Error(), "a.1") {
				t.Errorf("the error does not name the server: %v", err)
			}
		})
	}
	d := NewDirectory()
	d.Hear("b.1", "y")
	d.record([]catalog.Node{{ServerID: "a.1", PeerAddr: "x"}, {ServerID: "b.1", PeerAddr: "y"}})
	if got := d.servers(); !slices.Equal(got, []string{"a.1", "b.1"}) {
		t.Errorf("the known servers are %v", got)
	}
}

// TestDirectoryForgets: the directory forgets servers that the catalog has dropped, and keeps new
// ones that the catalog does not have yet.
func TestDirectoryForgets(t *testing.T) {
	d := NewDirectory()
	d.record([]catalog.Node{{ServerID: "a.1", PeerAddr: "x"}, {ServerID: "b.1", PeerAddr: "y"}})
	d.Hear("b.1", "z")
	d.Hear("c.1", "w")
	d.record([]catalog.Node{{ServerID: "a.1", PeerAddr: "x"}})
	if got := d.servers(); !slices.Equal(got, []string{"a.1", "c.1"}) {
		t.Errorf("the known servers are %v", got)
	}
	if addr, err := d.Resolve("b.1"); err == nil {
		t.Errorf("a server that was removed is still known at %s", addr)
	}
}
