package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/google/go-cmp/cmp"
)

// fill sets every field below v to a value that is not zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(9)
	case reflect.String:
		v.SetString("x")
	default:
		t.Fatalf("no value is known for a %v", v.Kind())
	}
}

func TestEveryFieldOfARecordIsStored(t *testing.T) {
	var settings fsm.Settings
	fill(t, reflect.ValueOf(&settings).Elem())
	before := queueRecord{Name: "q", Partitions: 3, State: Active, Version: 5, Settings: settingsRecord(settings)}
	data, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	var after queueRecord
	if err := decodeStrictly(data, &after); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(settings, after.config().Settings); diff != "" {
		t.Errorf("settings changed on their way (-before +after):\n%s", diff)
	}
}

// apply applies commands, one an entry, and returns the last outcome.
func apply(t *testing.T, m *machine, commands ...command) outcome {
	t.Helper()
	return applyFrom(t, m, 1, commands...)
}

// applyFrom applies commands as entries from first on.
func applyFrom(t *testing.T, m *machine, first uint64, commands ...command) outcome {
	t.Helper()
	var last outcome
	for i, c := range commands {
		c.Format = fsm.FirstFormat
		entry, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		value, err := m.Apply(first+uint64(i), entry)
		if err != nil {
			t.Fatal(err)
		}
		last = value.(outcome)
	}
	return last
}

func create(name string) command { return command{Create: &queueRecord{Name: name, Partitions: 2}} }

func TestMachineVerdicts(t *testing.T) {
	tests := []struct {
		name     string
		commands []command
		want     verdict
		queues   []string
	}{
		{"create", []command{create("a")}, done, []string{"a"}},
		{"create twice", []command{create("a"), create("a")}, exists, []string{"a"}},
		{"in order of names", []command{create("b"), create("a"), create("c")}, done, []string{"a", "b", "c"}},
		{"activate", []command{create("a"), {Activate: &versioned{Name: "a"}}}, done, []string{"a"}},
		{"activate what is gone", []command{{Activate: &versioned{Name: "a"}}}, overtaken, nil},
		{"configure the unknown", []command{{Configure: &configuration{Name: "a"}}}, done, []string{"a"}},
		{"configure from version 1", []command{create("a"), {Configure: &configuration{Name: "a", Version: 1}}},
			done, []string{"a"}},
		{"configure from an old version", []command{create("a"), {Configure: &configuration{Name: "a", Version: 1}},
			{Configure: &configuration{Name: "a", Version: 1}}}, overtaken, []string{"a"}},
		{"configure as unknown what is known", []command{create("a"), {Configure: &configuration{Name: "a"}}}, overtaken,
			[]string{"a"}},
		{"configure what is gone", []command{{Configure: &configuration{Name: "a", Version: 1}}}, overtaken, nil},
		{"forget", []command{create("a"), create("b"), {Forget: &versioned{Name: "a"}}}, done, []string{"b"}},
		{"forget the unknown", []command{{Forget: &versioned{Name: "a"}}}, done, nil},
		{"delete", []command{create("a"), {Delete: &versioned{Name: "a"}}}, done, []string{"a"}},
		{"delete twice", []command{create("a"), {Delete: &versioned{Name: "a"}}, {Delete: &versioned{Name: "a"}}}, done,
			[]string{"a"}},
		{"delete the unknown", []command{{Delete: &versioned{Name: "a"}}}, overtaken, nil},
		{"delete another version", []command{create("a"), {Delete: &versioned{Name: "a", Version: 2}}}, overtaken,
			[]string{"a"}},
		{"create what is being deleted", []command{create("a"), {Delete: &versioned{Name: "a"}}, create("a")}, exists,
			[]string{"a"}},
		{"activate what is being deleted", []command{create("a"), {Delete: &versioned{Name: "a"}},
			{Activate: &versioned{Name: "a"}}}, overtaken, []string{"a"}},
		{"configure what is being deleted", []command{create("a"), {Delete: &versioned{Name: "a"}},
			{Configure: &configuration{Name: "a", Version: 1}}}, overtaken, []string{"a"}},
		{"forget what is being deleted", []command{create("a"), {Delete: &versioned{Name: "a"}},
			{Forget: &versioned{Name: "a", Version: 1}}}, done, nil},
		{"forget another version", []command{create("a"), {Forget: &versioned{Name: "a", Version: 2}}}, overtaken,
			[]string{"a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine()
			if got := apply(t, m, tt.commands...); got.verdict != tt.want {
				t.Errorf("verdict is %d, want %d", got.verdict, tt.want)
			}
			var queues []string
			for _, q := range m.state.Queues {
				queues = append(queues, q.Name)
				if m.byName[q.Name] != q {
					t.Errorf("the index does not have queue %s", q.Name)
				}
			}
			if diff := cmp.Diff(tt.queues, queues); diff != "" || len(m.byName) != len(queues) {
				t.Errorf("queues, of which %d are indexed (-want +got):\n%s", len(m.byName), diff)
			}
		})
	}
}

func TestMachineIsRestoredFromItsSnapshot(t *testing.T) {
	m := newMachine()
	apply(t, m,
		command{Found: &foundation{ClusterID: "c", Shards: 6}},
		command{Found: &foundation{ClusterID: "other", Shards: 1}}, // changes nothing
		command{Join: &Node{Name: "b", ServerID: "b.1"}}, command{Join: &Node{Name: "a", ServerID: "a.1"}},
		command{Join: &Node{Name: "b", ServerID: "b.1", PeerAddr: "host:7401"}},
		create("x"), command{Activate: &versioned{Name: "x"}}, create("y"),
	)
	s := m.Snapshot()
	var buf bytes.Buffer
	if _, err := s.WriteTo(&buf); err != nil {
		t.Fatal(err)
	}
	s.Release()
	restored, err := m.Restore(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m.state, restored.(*machine).state); diff != "" {
		t.Errorf("state (-before +after):\n%s", diff)
	}
	if restored.Digest() != m.Digest() || s.Digest() != m.Digest() {
		t.Errorf("digests are %x before, %x in the snapshot, %x after", m.Digest(), s.Digest(), restored.Digest())
	}
	want := []Node{{Name: "a", ServerID: "a.1"}, {Name: "b", ServerID: "b.1", PeerAddr: "host:7401"}}
	if diff := cmp.Diff(want, m.state.Nodes); diff != "" || m.state.Foundation.ClusterID != "c" {
		t.Errorf("of cluster %q, nodes (-want +got):\n%s", m.state.Foundation.ClusterID, diff)
	}
	apply(t, restored.(*machine), command{Forget: &versioned{Name: "x"}})
	if restored.Digest() == m.Digest() || len(m.state.Queues) != 2 {
		t.Error("the restored machine shares its state with the first")
	}
}

func TestMachineStopsAtWhatItDoesNotKnow(t *testing.T) {
	tests := []struct{ name, entry, problem string }{
		{"not JSON", "\x00", "invalid character"},
		{"a later format", fmt.Sprintf(`{"format":%d,"split":{}}`, fsm.LatestFormat+1),
			fmt.Sprintf("format %d, this program reads up to %d", fsm.LatestFormat+1, fsm.LatestFormat)},
		{"no format", `{"forget":{"name":"a"}}`, "format 0"},
		{"a later command", `{"format":1,"split":{}}`, "unknown field"},
		{"a later field", `{"format":1,"forget":{"name":"a","purge":true}}`, "unknown field"},
		{"no command", `{"format":1}`, "no command"},
		{"two values", `{"format":1,"forget":{"name":"a"}} {}`, "follows"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := newMachine().Apply(1, []byte(tt.entry)); err == nil || !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("error is %v, want one that says %q", err, tt.problem)
			}
		})
	}
}

func TestMachineRefusesSnapshots(t *testing.T) {
	tests := []struct{ name, data, problem string }{
		{"cut", `{"format":1`, "unexpected EOF"},
		{"a later format", fmt.Sprintf(`{"format":%d,"shardsOf":{}}`, fsm.LatestFormat+1),
			fmt.Sprintf("format %d, this program reads up to %d", fsm.LatestFormat+1, fsm.LatestFormat)},
		{"a queue twice", `{"format":1,"queues":[{"name":"a"},{"name":"a"}]}`, "twice"},
		{"an empty queue", `{"format":1,"queues":[null]}`, "empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := newMachine().Restore(strings.NewReader(tt.data)); err == nil ||
				!strings.Contains(err.Error(), tt.problem) {
				t.Errorf("error is %v, want one that says %q", err, tt.problem)
			}
		})
	}
}

func FuzzMachineApply(f *testing.F) {
	f.Add([]byte(`{"format":1,"create":{"name":"a","partitions":2}}`))
	f.Add([]byte(`{"format":1,"configure":{"name":"a","version":0,"settings":{"maxJobs":3}}}`))
	f.Fuzz(func(t *testing.T, entry []byte) {
		m := newMachine()
		before := m.Digest()
		if _, err := m.Apply(1, entry); err != nil && m.Digest() != before {
			t.Errorf("a refused entry changed the state: %v", err)
		}
		restored, err := m.Restore(bytes.NewReader(m.encode()))
		if err != nil || restored.Digest() != m.Digest() {
			t.Errorf("the state after %q does not survive a snapshot: %v", entry, err)
		}
	})
}

// TestDigestIsComputedOncePerChange: the encoding is made for the first question after a change
// only, and what is remembered is what a machine that has it from a snapshot computes.
func TestDigestIsComputedOncePerChange(t *testing.T) {
	m := newMachine()
	seen := map[uint64]int{}
	for i, c := range []command{create("a"), create("b"), {Delete: &versioned{Name: "a"}},
		{Forget: &versioned{Name: "a"}}} {
		apply(t, m, c)
		got := m.Digest()
		// The mean of so many is rounded down: what other goroutines allocate meanwhile does not count.
		if allocated := testing.AllocsPerRun(1000, func() { m.Digest() }); allocated > 0 {
			t.Errorf("after command %d a repeated question allocates %v times", i, allocated)
		}
		restored, err := m.Restore(bytes.NewReader(m.encode()))
		if err != nil {
			t.Fatal(err)
		}
		if fresh := restored.Digest(); got != fresh {
			t.Errorf("after command %d the digest is %x, of the same state restored %x", i, got, fresh)
		}
		if before, twice := seen[got]; twice {
			t.Errorf("commands %d and %d have the same digest", before, i)
		}
		seen[got] = i
	}
}
