package node

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

func TestIdentityIsMadeOnceAndKept(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Name: "n1"}.withDefaults()
	first, err := loadIdentity(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if first.Name != "n1" || len(first.Incarnation) != 16 || len(first.ClusterID) != 32 || first.Shards != DefaultShards ||
		!first.Founder {
		t.Errorf("new identity is %+v", first)
	}
	if want := "n1." + first.Incarnation; first.serverID() != want {
		t.Errorf("server id is %q, want %q", first.serverID(), want)
	}
	cfg.Name = "" // what is not given comes from the directory
	again, err := loadIdentity(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the identity changed (-first +again):\n%s", diff)
	}
}

func TestIdentityDiffersBetweenDirectories(t *testing.T) {
	a, err := loadIdentity(Config{Dir: t.TempDir()}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	b, err := loadIdentity(Config{Dir: t.TempDir()}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	if a.Incarnation == b.Incarnation || a.ClusterID == b.ClusterID {
		t.Errorf("two directories share an incarnation or a cluster id: %+v and %+v", a, b)
	}
}

func TestIdentityOfAJoiningNode(t *testing.T) {
	id, err := loadIdentity(Config{Dir: t.TempDir(), Join: "c0ffee"}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	if id.Founder || id.ClusterID != "c0ffee" {
		t.Errorf("identity is %+v, want a member of the cluster that it joins", id)
	}
}

func TestIdentityRecordsFoundedGroups(t *testing.T) {
	cfg := Config{Dir: t.TempDir()}.withDefaults()
	id, err := loadIdentity(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time changes nothing
		if err := id.founded(cfg.Dir, "shard-0", "catalog"); err != nil {
			t.Fatal(err)
		}
	}
	again, err := loadIdentity(cfg)
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
	cfg := Config{Dir: "/", FS: d}.withDefaults()
	id, err := loadIdentity(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.SetHook(func(op diskfault.Op) error {
		if op.Kind == diskfault.OpSyncDir {
			return diskfault.ErrCrashed
		}
		return nil
	})
	if err := id.quarantine(cfg.Dir, "shard-0"); err == nil {
		t.Fatal("the directory was synced")
	}
	d.Crash(nil, diskfault.LoseNames)
	if _, err := loadIdentity(cfg); err != nil {
		t.Fatal(err)
	}
	d.Crash(diskfault.LoseAll, diskfault.LoseNames)
	again, err := loadIdentity(cfg)
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
			path := filepath.Join(cfg.Dir, identityFile)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, f(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	resum := func(change func(*identity)) func(*testing.T, *Config) {
		return edit(func(data []byte) []byte {
			id, err := parseIdentity("", data)
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
		{"a later format", resum(func(id *identity) { id.Format = 4 }), "format 4, this program reads 1 to 3"},
		{
			"data of a later format", resum(func(id *identity) { id.Speaks = fsm.LatestFormat + 1 }),
			fmt.Sprintf("format %d, this program reads up to %d", fsm.LatestFormat+1, fsm.LatestFormat),
		},
		{"a flipped bit", edit(func(b []byte) []byte { b[30] ^= 1; return b }),
			"node.json is damaged at offset 0: the checksum is"},
		{"a cut file", edit(func(b []byte) []byte { return b[:100] }), "node.json is damaged at offset 100: its last line"},
		{"an empty file", edit(func([]byte) []byte { return nil }), "node.json is damaged at offset 0: its last line"},
		{"no incarnation", resum(func(id *identity) { id.Incarnation = "" }), "node.json is damaged at offset 0: a field"},
		{"no shards", resum(func(id *identity) { id.Shards = 0 }), "node.json is damaged at offset 0: a field"},
		{"not JSON", edit(func([]byte) []byte {
			return fmt.Appendf(nil, "{]\ncrc32c %08x\n", identitySum([]byte("{]")))
		}), "node.json is damaged at offset 2: it is no identity"},
		{"shards without identity", func(t *testing.T, cfg *Config) {
			if err := os.Remove(filepath.Join(cfg.Dir, identityFile)); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(cfg.Dir, shardsDir), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "holds shards but no node.json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Config{Dir: t.TempDir(), Name: "n1"}.withDefaults()
			if _, err := loadIdentity(cfg); err != nil {
				t.Fatal(err)
			}
			tt.spoil(t, &cfg)
			_, err := loadIdentity(cfg)
			if err == nil || !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("error is %v, want one that says %q", err, tt.problem)
			}
			if _, typed := errors.AsType[*disk.CorruptError](err); typed != strings.Contains(tt.problem, "damaged") {
				t.Errorf("error is %v; that it is a storage.CorruptError is %v", err, typed)
			}
		})
	}
}

func FuzzParseIdentity(f *testing.F) {
	id := identity{Format: dataFormat, ClusterID: "c", Name: "n", Incarnation: "i", Shards: 1}
	f.Add(id.format())
	f.Add([]byte("{}\ncrc32c 00000000\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		id, err := parseIdentity("node.json", data)
		if err != nil {
			return
		}
		again, err := parseIdentity("node.json", id.format())
		if err != nil || !bytes.Equal(again.format(), id.format()) {
			t.Errorf("an identity that was read does not survive being written: %v", err)
		}
	})
}
