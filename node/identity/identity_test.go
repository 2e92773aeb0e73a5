package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

func TestIdentityIsMadeOnceAndKept(t *testing.T) {
	cfg := Config{FS: disk.OSFS{}, Dir: t.TempDir(), Name: "n1"}
	first, err := Load(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if first.Name != "n1" || len(first.Incarnation) != 16 || len(first.ClusterID) != 32 || first.Shards != DefaultShards ||
		!first.Founder {
		t.Errorf("new identity is %+v", first)
	}
	if want := "n1." + first.Incarnation; first.ServerID() != want {
		t.Errorf("server id is %q, want %q", first.ServerID(), want)
	}
	cfg.Name = "" // what is not given comes from the directory
	again, err := Load(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the identity changed (-first +again):\n%s", diff)
	}
}

func TestIdentityDiffersBetweenDirectories(t *testing.T) {
	a, err := Load(Config{FS: disk.OSFS{}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Load(Config{FS: disk.OSFS{}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if a.Incarnation == b.Incarnation || a.ClusterID == b.ClusterID {
		t.Errorf("two directories share an incarnation or a cluster id: %+v and %+v", a, b)
	}
}

func TestIdentityOfAJoiningNode(t *testing.T) {
	id, err := Load(Config{FS: disk.OSFS{}, Dir: t.TempDir(), Join: "c0ffee"})
	if err != nil {
		t.Fatal(err)
	}
	if id.Founder || id.ClusterID != "c0ffee" {
		t.Errorf("identity is %+v, want a member of the cluster that it joins", id)
	}
}

func TestIdentityRecordsFoundedGroups(t *testing.T) {
	cfg := Config{FS: disk.OSFS{}, Dir: t.TempDir()}
	id, err := Load(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time changes nothing
		if err := id.Found("shard-0", "catalog"); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Load(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"shard-0", "catalog"}, again.Groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

// TestIdentityThatWasFoundIsKept: the process before was killed between the renaming and the sync
// of the directory.
func TestIdentityThatWasFoundIsKept(t *testing.T) {
	d := diskfault.New()
	cfg := Config{Dir: "/", FS: d}
	id, err := Load(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.SetHook(func(op diskfault.Op) error {
		if op.Kind == diskfault.OpSyncDir {
			return diskfault.ErrCrashed
		}
		return nil
	})
	if err := id.Quarantine("shard-0"); err == nil {
		t.Fatal("the directory was synced")
	}
	d.Crash(nil, diskfault.LoseNames)
	if _, err := Load(cfg); err != nil {
		t.Fatal(err)
	}
	d.Crash(diskfault.LoseAll, diskfault.LoseNames)
	again, err := Load(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"shard-0"}, again.Quarantined); diff != "" {
		t.Errorf("quarantined (-want +got):\n%s", diff)
	}
}

func TestIdentityIsRefused(t *testing.T) {
	edit := func(f func([]byte) []byte) func(*testing.T, *Config) {
		return func(t *testing.T, cfg *Config) {
			path := filepath.Join(cfg.Dir, File)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, f(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	resum := func(change func(*Record)) func(*testing.T, *Config) {
		return edit(func(data []byte) []byte {
			id, err := parse("", data)
			if err != nil {
				return nil
			}
			change(id)
			return id.format()
		})
	}
	tests := []struct {
		name    string
		spoil   func(*testing.T, *Config)
		problem string
	}{
		{"another name", func(_ *testing.T, cfg *Config) { cfg.Name = "n2" }, `belongs to node "n1", not "n2"`},
		{"another cluster", func(_ *testing.T, cfg *Config) { cfg.Join = "other" }, "belongs to cluster"},
		{"more shards", func(_ *testing.T, cfg *Config) { cfg.Shards = 9 }, "has 6 shards, not 9, and keeps that number"},
		{"a later format", resum(func(id *Record) { id.Format = 4 }), "format 4, this program reads 1 to 3"},
		{
			"data of a later format", resum(func(id *Record) { id.Speaks = fsm.LatestFormat + 1 }),
			fmt.Sprintf("format %d, this program reads up to %d", fsm.LatestFormat+1, fsm.LatestFormat),
		},
		{"a flipped bit", edit(func(b []byte) []byte { b[30] ^= 1; return b }),
			"node.json is damaged at offset 0: the checksum is"},
		{"a cut file", edit(func(b []byte) []byte { return b[:100] }), "node.json is damaged at offset 100: its last line"},
		{"an empty file", edit(func([]byte) []byte { return nil }), "node.json is damaged at offset 0: its last line"},
		{"no incarnation", resum(func(id *Record) { id.Incarnation = "" }), "node.json is damaged at offset 0: a field"},
		{"no shards", resum(func(id *Record) { id.Shards = 0 }), "node.json is damaged at offset 0: a field"},
		{"not JSON", edit(func([]byte) []byte {
			return fmt.Appendf(nil, "{]\ncrc32c %08x\n", sum([]byte("{]")))
		}), "node.json is damaged at offset 2: it is no identity"},
		{"shards without identity", func(t *testing.T, cfg *Config) {
			if err := os.Remove(filepath.Join(cfg.Dir, File)); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(cfg.Dir, shardsDir), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "holds shards but no node.json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Config{FS: disk.OSFS{}, Dir: t.TempDir(), Name: "n1"}
			if _, err := Load(cfg); err != nil {
				t.Fatal(err)
			}
			tt.spoil(t, &cfg)
			_, err := Load(cfg)
			if err == nil || !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("error is %v, want one that says %q", err, tt.problem)
			}
			if _, typed := errors.AsType[*disk.CorruptError](err); typed != strings.Contains(tt.problem, "damaged") {
				t.Errorf("error is %v; that it is a disk.CorruptError is %v", err, typed)
			}
		})
	}
}

func testFounding(servers ...string) *founding.Plan {
	return &founding.Plan{Servers: servers, Shards: [][]int{{0, 1}, {2, 1}}, Groups: []int{0, 1, 2},
		Settings: json.RawMessage(`{"a":1}`)}
}

func TestFoundingNamesVoters(t *testing.T) {
	f := testFounding("a.1", "b.1", "c.1")
	id := &Record{Name: "b", Incarnation: "1", Founding: f}
	for group, want := range map[string][]string{
		"shard-0": {"a.1", "b.1"}, "shard-1": {"c.1", "b.1"}, "catalog": {"a.1", "b.1", "c.1"}, "shard-2": nil,
		"shard-x": nil,
	} {
		if got := id.FirstVoters(group); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", group, got, want)
		}
	}
	id.Name = "a"
	if got := id.FirstVoters("shard-1"); got != nil {
		t.Errorf("a node founds a shard with the voters %v", got)
	}
}

// TestIdentityOfAFounder: what a node founds is in its data directory, and a node that the founding
// does not name makes none.
func TestIdentityOfAFounder(t *testing.T) {
	incarnation := NewIncarnation()
	f := testFounding("a."+incarnation, "b.1", "c.1")
	cfg := Config{FS: disk.OSFS{}, Dir: t.TempDir(), Name: "a", Incarnation: incarnation, Shards: 2, Founding: f}
	id, err := Load(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if id.Founder || len(id.ClusterID) != 32 {
		t.Errorf("the identity is %+v", id)
	}
	again, err := Load(Config{FS: cfg.FS, Dir: cfg.Dir})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(id.FirstVoters("shard-0"), again.FirstVoters("shard-0")); diff != "" ||
		len(again.FirstVoters("shard-0")) != 2 {
		t.Errorf("the next start founds with other voters:\n%s", diff)
	}
	cfg.Dir, cfg.Incarnation = t.TempDir(), NewIncarnation()
	if _, err := Load(cfg); err == nil || !strings.Contains(err.Error(),
		"none of the nodes that found the cluster") {
		t.Errorf("a stranger makes an identity: %v", err)
	}
}

func TestIdentityRecordsWhoLeft(t *testing.T) {
	cfg := Config{FS: disk.OSFS{}, Dir: t.TempDir()}
	id, err := Load(cfg)
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		do         func() error
		here, left []string
		format     int
	}{
		{func() error { return id.Found("a", "b", "c") }, []string{"a", "b", "c"}, nil, formatFirst},
		{func() error { return id.Leave("b") }, []string{"a", "c"}, []string{"b"}, formatLeft},
		{func() error { return id.Leave("c") }, []string{"a"}, []string{"b", "c"}, formatLeft},
		{func() error { return id.Enter("b") }, []string{"a", "b"}, []string{"c"}, formatLeft},
		{func() error { return id.Enter("d") }, []string{"a", "b", "d"}, []string{"c"}, formatLeft},
		{func() error { return id.Quarantine("d") }, []string{"a", "b"}, []string{"c"}, formatQuarantined},
		{func() error { return id.Leave("b") }, []string{"a"}, []string{"c", "b"}, formatQuarantined},
	}
	for i, step := range steps {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		again, err := Load(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(again.Groups, step.here) || !slices.Equal(again.Left, step.left) || again.Format != step.format {
			t.Errorf("step %d: %v are here, %v left, in format %d", i, again.Groups, again.Left, again.Format)
		}
		if diff := cmp.Diff(id.format(), again.format()); diff != "" {
			t.Errorf("step %d: memory and file differ:\n%s", i, diff)
		}
	}
	id.Left = nil
	if err := os.Remove(filepath.Join(cfg.Dir, File)); err != nil {
		t.Fatal(err)
	}
	id.Dir = filepath.Join(cfg.Dir, "missing")
	if err := id.Leave("a"); err == nil || !slices.Contains(id.Groups, "a") || len(id.Left) != 0 {
		t.Errorf("a change that was not saved gives %v and %+v", err, id)
	}
}

// TestIncompleteIdentityIsRefused although its checksum is right.
func TestIncompleteIdentityIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(id *Record){
		"nothing":                func(*Record) {},
		"the cluster":            func(id *Record) { id.ClusterID = "" },
		"the name":               func(id *Record) { id.Name = "a.b" },
		"the incarnation":        func(id *Record) { id.Incarnation = "" },
		"shards, too few":        func(id *Record) { id.Shards = 0 },
		"shards, too many":       func(id *Record) { id.Shards = founding.ShardsMax + 1 },
		"the format, too old":    func(id *Record) { id.Format = formatFirst - 1 },
		"the format, of another": func(id *Record) { id.Format = formatQuarantined + 1 },
	} {
		id := Record{Format: formatFirst, ClusterID: "c", Name: "n", Incarnation: "i", Shards: 1}
		spoil(&id)
		if _, err := parse(File, id.format()); (err == nil) != (name == "nothing") {
			t.Errorf("%s is wrong: %v", name, err)
		}
	}
}

func FuzzParseIdentity(f *testing.F) {
	id := Record{Format: formatFirst, ClusterID: "c", Name: "n", Incarnation: "i", Shards: 1}
	f.Add(id.format())
	f.Add([]byte("{}\ncrc32c 00000000\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		id, err := parse("node.json", data)
		if err != nil {
			return
		}
		again, err := parse("node.json", id.format())
		if err != nil || !bytes.Equal(again.format(), id.format()) {
			t.Errorf("an identity that was read does not survive being written: %v", err)
		}
	})
}
