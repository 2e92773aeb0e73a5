package node

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
)

func testFounding(servers ...string) *Founding {
	return &Founding{Servers: servers, Shards: [][]int{{0, 1}, {2, 1}}, Groups: []int{0, 1, 2}, Settings: json.RawMessage(`{"a":1}`)}
}

func TestFoundingNamesVoters(t *testing.T) {
	f := testFounding("a.1", "b.1", "c.1")
	id := &identity{Name: "b", Incarnation: "1", Founding: f}
	for group, want := range map[string][]string{
		"shard-0": {"a.1", "b.1"}, "shard-1": {"c.1", "b.1"}, "catalog": {"a.1", "b.1", "c.1"}, "shard-2": nil, "shard-x": nil,
	} {
		if got := id.firstVoters(group); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", group, got, want)
		}
	}
	id.Name = "a"
	if got := id.firstVoters("shard-1"); got != nil {
		t.Errorf("a node founds a shard with the voters %v", got)
	}
}

func TestFoundingIsChecked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(f *Founding)
		want   string
	}{
		{"sound", func(*Founding) {}, ""},
		{"too few shards", func(f *Founding) { f.Shards = f.Shards[:1] }, "1 shards, not 2"},
		{"a shard of nobody", func(f *Founding) { f.Shards[1] = nil }, "no voters"},
		{"a group of nobody", func(f *Founding) { f.Groups = nil }, "no voters"},
		{"a voter that there is not", func(f *Founding) { f.Shards[0][1] = 3 }, "voter 3 of 3"},
		{"a voter twice", func(f *Founding) { f.Shards[0][1] = 0 }, "voter 0 of 3"},
		{"a later format", func(f *Founding) { f.Format = fsm.LatestFormat + 1 }, "this program reads up to"},
		{"too large", func(f *Founding) { f.Settings = json.RawMessage(`"` + strings.Repeat("x", foundingBytesMax) + `"`) }, "at most"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := testFounding("a.1", "b.1", "c.1")
			tt.change(f)
			if err := f.check(2); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestIdentityOfAFounder: what a node founds is in its data directory, and a node that the founding does not name makes none.
func TestIdentityOfAFounder(t *testing.T) {
	incarnation := NewIncarnation()
	f := testFounding("a."+incarnation, "b.1", "c.1")
	cfg := Config{Dir: t.TempDir(), Name: "a", Incarnation: incarnation, Shards: 2, Founding: f}.withDefaults()
	id, err := loadIdentity(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if id.Founder || len(id.ClusterID) != 32 {
		t.Errorf("the identity is %+v", id)
	}
	again, err := loadIdentity(Config{Dir: cfg.Dir}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(id.firstVoters("shard-0"), again.firstVoters("shard-0")); diff != "" || len(again.firstVoters("shard-0")) != 2 {
		t.Errorf("the next start founds with other voters:\n%s", diff)
	}
	cfg.Dir, cfg.Incarnation = t.TempDir(), NewIncarnation()
	if _, err := loadIdentity(cfg); err == nil || !strings.Contains(err.Error(), "none of the nodes that found the cluster") {
		t.Errorf("a stranger makes an identity: %v", err)
	}
}

// TestFoundingIsTold: who asks a node hears how its cluster was founded, together with the rest.
func TestFoundingIsTold(t *testing.T) {
	l := listenTCP(t)
	incarnation := NewIncarnation()
	cfg := testConfig(t, t.TempDir())
	cfg.Name, cfg.Incarnation, cfg.Shards, cfg.Peers = "a", incarnation, 2, l
	cfg.Founding = testFounding("a."+incarnation, "b.1", "c.1")
	n, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	got, err := Hello(t.Context(), nil, l.Addr().String())
	if diff := cmp.Diff(cfg.Founding, got.Founding); err != nil || diff != "" || got.Shards != 2 {
		t.Errorf("%+v, %v (-want +got):\n%s", got, err, diff)
	}
}
