package catalog

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/cluster/quota"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/bulk"
	"github.com/belfrydb/belfry/node"
)

// writeGolden is the environment variable that has TestGoldenFormat write its files: only for what
// is new in a format that was never released.
const writeGolden = "TEST_WRITES_GOLDEN"

// everyEntry has each command, with every field, in the order of a cluster's life. The version of a
// record is the position of its last change.
func everyEntry() []command {
	settings := settingsRecord{
		TTR: time.Minute, MaxAttempts: 3, MaxAttemptsSet: true, RetryDelays: []time.Duration{0, time.Minute},
		DedupWindow: time.Hour, DedupWindowSet: true, MaxInFlight: 5,
		MaxJobs: 6, MaxBytes: 7, PutsPerSecond: 8, Overdue: fsm.SpreadOverdue, OverduePeriod: time.Hour,
		OverdueAfter: time.Second, ExpireToDead: true, Paused: true, PausedUntil: 9,
	}
	member := func(name, incarnation string) Node {
		return Node{Name: name, ServerID: name + "." + incarnation, PeerAddr: name + ":7401", ClientAddr: name + ":7400",
			Zone: "z-" + name, Format: fsm.FirstFormat}
	}
	a, b, replacement := member("a", "1"), member("b", "1"), member("b", "2")
	return []command{
		{Found: &foundation{ClusterID: "c1", Shards: 2}},
		{Settle: &Settings{Factor: 3, Grace: time.Minute}},
		{Join: &a},
		{Join: &b},
		{Place: &Placement{Shard: 1, Servers: []string{"a.1", "b.1"}}},
		{Create: &queueRecord{Name: "orders", Partitions: 2, State: Creating, Settings: settings},
			Request: &request{ID: "r1", Content: "x", At: 5}},
		{Activate: &versioned{Name: "orders", Version: 6}},
		{Configure: &configuration{Name: "orders", Version: 6, Settings: settingsRecord{DedupForever: true}},
			Request: &request{ID: "r2", Content: "y", At: 6}},
		{Create: &queueRecord{Name: "mails", Partitions: 1, State: Creating}},
		{Delete: &versioned{Name: "mails"}},
		{Forget: &versioned{Name: "mails"}},
		{Delete: &versioned{Name: "orders", Version: 8}},
		{Drain: &drain{ServerID: "a.1", Draining: true, Keep: 1}},
		{Join: &replacement, Silent: []string{"b.1"}},
		{Leave: &Departure{ServerID: "b.1", Replacement: "b.2"}},
		{Raise: &raise{Format: fsm.FirstFormat}},
		{AddToken: &tokens.Record{
			ID: "aaaaaaaaaaaaaaaa", Hash: tokens.Hash(strings.Repeat("0", 64)), About: "shop", Created: 7, NotAfter: 9,
			CreatedBy: "bbbbbbbbbbbbbbbb",
			Scopes:    tokens.Scopes{{Actions: []tokens.Action{tokens.Consume, tokens.Put}, Queues: "shop/*"}},
		}},
		{EndToken: &tokenEnd{ID: "aaaaaaaaaaaaaaaa", NotAfter: 8}},
		{Limit: &limitation{Name: "tenant", Set: [node.Limits]bool{true, true, true, true},
			Quota: amounts(100, 2000, 30, 4000)}},
		{Limit: &limitation{Name: "other", Set: [node.Limits]bool{node.JobsLimit: true}, Quota: amounts(1, 2, 0, 0)}},
		{Limit: &limitation{Name: "other", Remove: true}},
		{ShardQuotas: &quota.ShardChanges{Shard: 1, Term: 4, Changes: []quota.Change{{Name: "tenant", Created: 19}}}},
		{ShardQuotas: &quota.ShardChanges{Shard: 1, Term: 4, Changes: []quota.Change{{
			Name: "tenant", Created: 19, Version: 22, Granted: amounts(50, 600, 7, 8), Seen: 19,
			Wanted: [4]bool{node.JobsLimit: true}, Tight: [4]bool{node.PutRate: true},
		}}}},
	}
}

// laterEntries has what the second format adds.
func laterEntries() []command {
	a := Node{Name: "a", ServerID: "a.1", PeerAddr: "a:7401", Format: settingsFormat}
	return []command{
		{Join: &a},
		{Raise: &raise{Format: settingsFormat}},
		{Settle: &Settings{Factor: 3, Grace: time.Minute, MinVoters: 3}},
		{Settle: &Settings{MinVoters: 2}, Lower: true},
		{Found: &foundation{ClusterID: "c1", Shards: 2}},
		{Settle: &Settings{NoAutoCreate: new(true)}},
	}
}

// taskEntries has what the third format adds.
func taskEntries() []command {
	a := Node{Name: "a", ServerID: "a.1", PeerAddr: "a:7401", Format: tasksFormat}
	task := bulk.Task{
		ID: "t1", Queue: "shop/orders", State: fsm.Delayed, DueAfter: 1, DueBefore: 2, IDPrefix: "order-", Text: "4711",
		Cause: "smtp #", Act: bulk.Reschedule, Due: 3, Delay: 4, Most: 5, PerSecond: 6, By: "aaaaaaaaaaaaaaaa", Created: 7,
	}
	cancel := bulk.Task{ID: "t2", Queue: "mail", State: fsm.Reserved, Act: bulk.Cancel, Force: true, Created: 8}
	return []command{
		{Join: &a},
		{Raise: &raise{Format: tasksFormat}},
		{StartTask: &task},
		{StartTask: &cancel},
		{AdvanceTask: &taskAdvance{ID: "t1", Progress: bulk.Progress{
			Places: []bulk.Place{{Due: 9, Serial: 10}, {Due: 11, Serial: 12, Done: true}}, Searched: 13, Matched: 14,
			Changed: 15, Skipped: 16, Ended: 17, Trouble: "shard 1 has no leader",
		}}},
		{StopTask: &taskStop{ID: "t2"}},
	}
}

// keyEntries has what the fourth format adds.
func keyEntries() []command {
	a := Node{Name: "a", ServerID: "a.1", PeerAddr: "a:7401", Format: fsm.KeysFormat}
	return []command{
		{Join: &a},
		{Raise: &raise{Format: fsm.KeysFormat}},
		{Create: &queueRecord{Name: "orders", Partitions: 2, State: Creating, Settings: settingsRecord{Keys: fsm.KeySettings{
			Concurrency: 1, Rate: fsm.KeyRate{Count: 2, Per: time.Minute, Burst: 3}, Ordered: true, Fair: true,
			HoldOnDead: true, Refused: true,
		}}}},
	}
}

// amounts returns a quota in the order in which it is stored, which must not change.
func amounts(jobs, bytes, leases, putRate uint64) node.Amounts {
	return node.Amounts{jobs, bytes, leases, putRate}
}

// TestGoldenFormat: the log and the snapshot of a catalog, as they are on disks, are read and
// written for ever as they are in testdata.
func TestGoldenFormat(t *testing.T) {
	missing := map[string]bool{}
	for i, field := range reflect.VisibleFields(reflect.TypeFor[command]()) {
		missing[field.Name] = i > 0
	}
	testGolden(t, "catalog-1", everyEntry(), missing)
	testGolden(t, "catalog-2", laterEntries(), missing)
	testGolden(t, "catalog-3", taskEntries(), missing)
	testGolden(t, "catalog-4", keyEntries(), missing)
	if len(missing) > 0 {
		t.Errorf("no entry has %v", missing)
	}
}

// testGolden compares what entries are written as, and make of a catalog, with files of testdata.
// What is in them is not missing.
func testGolden(t *testing.T, name string, entries []command, missing map[string]bool) {
	t.Helper()
	var log bytes.Buffer
	m := newMachine()
	for i, c := range entries {
		c.Format = m.state.Format
		entry, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		log.Write(append(entry, '\n'))
		for _, field := range reflect.VisibleFields(reflect.TypeFor[command]()) {
			if !reflect.ValueOf(c).FieldByIndex(field.Index).IsZero() {
				delete(missing, field.Name)
			}
		}
		if decoded, err := decodeCommand(entry); err != nil || !cmp.Equal(c, decoded) {
			t.Errorf("%s is read as %+v, %v", entry, decoded, err)
		}
		if _, err := m.Apply(uint64(i)+1, entry); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, name+".log", log.Bytes())
	golden(t, name+".snapshot", m.encode())
	restored, err := newMachine().Restore(bytes.NewReader(m.encode()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m.encode(), restored.(*machine).encode()); diff != "" {
		t.Errorf("a restored snapshot is written otherwise (-was +is):\n%s", diff)
	}
}

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv(writeGolden) != "" {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: what is on disks would be read otherwise (-file +now):\n%s", file, diff)
	}
}
