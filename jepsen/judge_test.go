package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/jepsen/checker"
	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/jepsen/report"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/journal"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// put writes a file into a directory.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRecord keeps a record, and reads nothing else.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	r := &record{
		Command: "c", Commit: "v", Started: time.Unix(5, 0).UTC(), Seed: 1<<64 - 1, Nodes: 3, Workloads: []string{"puts"},
		Nemeses: []string{"delay"}, Loaded: 3, Healed: 4, Drained: 5,
		Faults:   []report.Fault{{Name: "delay", Text: "slow", From: 1, To: 2}},
		Clocks:   []checker.Clock{{Node: "n1", From: 1, To: 2, Least: -3, Most: 4}},
		Removals: []checker.Removal{{Node: "n2", From: 9}}, Flips: checker.Flips{Injected: 3, Noticed: 2, Unread: 1},
		Probes: []checker.Probe{{Name: "p", Took: 1, Limit: 2, Failure: "f"}},
		Counts: map[string]int64{"x": 7}, Calls: 12, Journals: map[string]int64{"n1-1.journal": 17},
		Replicas: []replica{{Node: "n1", Shard: 2, Applied: 30}},
	}
	r.fail("I35", time.Second, "because of %d", 5)
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := readRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, got); diff != "" {
		t.Error(diff)
	}
	whole, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty": "", "torn": string(whole[:len(whole)/2]), "twice": string(whole) + string(whole),
		"another field": strings.Replace(string(whole), `"seed"`, `"sead"`, 1),
	} {
		put(t, dir, recordName, text)
		if _, err := readRecord(dir); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
	if _, err := readRecord(t.TempDir()); err == nil {
		t.Error("a directory without a record is read")
	}
}

// TestReadJournals reads two lives of one node and one of another, and refuses what is no journal.
func TestReadJournals(t *testing.T) {
	dir := t.TempDir()
	for name, indexes := range map[string][]uint64{"n1-1.journal": {1, 2}, "n1-2.journal": {3}, "n10-1.journal": {1}} {
		w, err := journal.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range indexes {
			if err := w.Append(node.AppliedEntry{Shard: 1, Term: 2, Index: i, Digest: 3, Entry: []byte("entry")}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sizes, err := sizeJournals(dir)
	if err != nil {
		t.Fatal(err)
	}
	journals, err := readJournals(dir, sizes)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]uint64{}
	for _, j := range journals {
		for _, e := range j.Entries {
			got[j.Node] = append(got[j.Node], e.Index)
		}
	}
	if diff := cmp.Diff(map[string][]uint64{"n1": {1, 2, 3}, "n10": {1}}, got); diff != "" || len(journals) != 3 {
		t.Errorf("%d journals: %s", len(journals), diff)
	}
	if _, err := readJournals(dir, map[string]int64{"n1-1.journal": sizes["n1-1.journal"]}); err == nil {
		t.Error("journals that are none of the run are read")
	}
	put(t, dir, "n3-1.journal", "something else altogether")
	sizes["n3-1.journal"] = int64(len("something else altogether"))
	if _, err := readJournals(dir, sizes); err == nil || !strings.Contains(err.Error(), "n3-1.journal") {
		t.Errorf("of a file that is no journal it says: %v", err)
	}
	delete(sizes, "n3-1.journal")
	if err := os.Remove(filepath.Join(dir, "n3-1.journal")); err != nil {
		t.Fatal(err)
	}
	// cut off, then gone
	for _, spoil := range []func(path string) error{func(path string) error { return os.Truncate(path, 30) }, os.Remove} {
		if err := spoil(filepath.Join(dir, "n1-2.journal")); err != nil {
			t.Fatal(err)
		}
		if _, err := readJournals(dir, sizes); err == nil || !strings.Contains(err.Error(), "n1-2.journal") {
			t.Errorf("of a journal that was spoilt it says: %v", err)
		}
	}
}

// TestCutShort: a node without a journal, or with one that ends too early, agrees with everybody,
// and proves nothing.
func TestCutShort(t *testing.T) {
	lives := func(name string, indexes ...uint64) (j checker.Journal) {
		j.Node = name
		for _, i := range indexes {
			j.Entries = append(j.Entries, journal.Entry{AppliedEntry: node.AppliedEntry{Shard: 1, Index: i}})
		}
		return j
	}
	at := []replica{{Node: "n1", Shard: 1, Applied: 9}, {Node: "n2", Shard: 1, Applied: 9}}
	for _, c := range []struct {
		name     string
		journals []checker.Journal
		missing  int
	}{
		{"both", []checker.Journal{lives("n1", 3, 5, 8, 12), lives("n2", 8)}, 0},
		{"in the life before", []checker.Journal{lives("n1", 8), lives("n2", 3, 8), lives("n2")}, 0},
		{"one is cut short", []checker.Journal{lives("n1", 3, 8), lives("n2", 3)}, 1},
		{"one has none", []checker.Journal{lives("n1", 3, 8)}, 1},
		{"nobody has any", nil, 2},
	} {
		if got := cutShort(at, c.journals); len(got) != c.missing {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// TestReadElections finds elections in logs, beside torn lines and others that speak of elections.
func TestReadElections(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "n1.log", `{"msg":"raft: election won","group":"shard-1","term":4}
{"msg":"raft: election won","group":"shard-2","te

{"time":"2026-11-29T21:16:30.25Z","msg":"raft: election won","group":"catalog","term":7}
{"msg":"a note on \"raft: election won\"","group":"shard-9","term":9}
{"msg":"raft: election lost","group":"shard-1","term":5}
`)
	put(t, dir, "n2.log", `{"msg":"raft: election won","group":"shard-1","term":6}`)
	put(t, dir, "n3.txt", `{"msg":"raft: election won","group":"shard-1","term":8}`)
	got, err := readElections(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []checker.Election{{Node: "n1", Group: "shard-1", Term: 4}, {Node: "n1", Group: "catalog", Term: 7,
		At: time.Date(2026, 11, 29, 21, 16, 30, 250e6, time.UTC)}, {Node: "n2", Group: "shard-1", Term: 6}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestSeconds counts calls in the seconds in which they ended, whenever it is asked.
func TestSeconds(t *testing.T) {
	start := time.Now().Add(-time.Hour)
	h := &history.History{Start: start}
	due := timestamppb.New(start.Add(1500 * time.Millisecond))
	h.Add(&history.Op{Invoked: 100 * time.Millisecond, Returned: 120 * time.Millisecond,
		Outcome: belfryv1.Outcome_OUTCOME_APPLIED, Request: &belfryv1.PutRequest{}, Response: &belfryv1.PutResponse{}})
	h.Add(&history.Op{Returned: 200 * time.Millisecond, Outcome: belfryv1.Outcome_OUTCOME_NOT_APPLIED,
		Request: &belfryv1.AckRequest{}})
	h.Add(&history.Op{Returned: 300 * time.Millisecond, Outcome: belfryv1.Outcome_OUTCOME_UNKNOWN,
		Request: &belfryv1.AckRequest{}})
	h.Add(&history.Op{
		Invoked: time.Second, Returned: 2 * time.Second, Outcome: belfryv1.Outcome_OUTCOME_APPLIED,
		Request:  &belfryv1.ReserveRequest{},
		Response: &belfryv1.ReserveResponse{Jobs: []*belfryv1.Job{{DueAt: due, Attempt: 1}, {DueAt: due, Attempt: 2}}},
	})
	want := []report.Second{
		{Applied: 1, NotApplied: 1, Unknown: 1, Latency: report.Quantiles{Count: 1, P50: 20, P99: 20, Max: 20}},
		{},
		{Applied: 1, Lateness: report.Quantiles{Count: 1, P50: 500, P99: 500, Max: 500}},
	}
	if diff := cmp.Diff(want, seconds(h)); diff != "" {
		t.Error(diff)
	}
}

// TestUnproven judges runs that nothing is wrong with and that prove nothing.
func TestUnproven(t *testing.T) {
	whole := func() (*record, *checker.Verdict, *history.History) {
		h := history.New()
		h.Add(&history.Op{Outcome: belfryv1.Outcome_OUTCOME_APPLIED, Request: &belfryv1.PutRequest{},
			Response: &belfryv1.PutResponse{}})
		r := &record{Command: "c", Commit: "v", Started: time.Now(), Nodes: 1, Healed: 1, Drained: 1,
			Probes: []checker.Probe{{Name: "p"}}, Replicas: []replica{{Node: "n1"}}}
		return r, &checker.Verdict{Checks: []report.Check{{Invariant: "I1", Looked: 1}, {Invariant: "I35", Looked: 1}}}, h
	}
	r, v, h := whole()
	if got := r.report(v, h); got.Verdict != report.Valid || len(got.Probes) != 1 || got.Probes[0].Name != "p" {
		t.Fatalf("a whole run is %v: %v, it tried %v", got.Verdict, got.Violations, got.Probes)
	}
	for name, spoil := range map[string]func(*record, *checker.Verdict, *history.History){
		"no checks": func(_ *record, v *checker.Verdict, _ *history.History) { v.Checks = nil },
		"nothing looked": func(_ *record, v *checker.Verdict, _ *history.History) {
			v.Checks[0].Looked, v.Checks[1].Looked = 0, 0
		},
		"no answer":   func(_ *record, _ *checker.Verdict, h *history.History) { h.Ops()[0].Response = nil },
		"not drained": func(r *record, _ *checker.Verdict, _ *history.History) { r.Drained = 0 },
		"not healed":  func(r *record, _ *checker.Verdict, _ *history.History) { r.Healed = 0 },
		"not equal":   func(r *record, _ *checker.Verdict, _ *history.History) { r.Replicas = nil },
		"not tried":   func(r *record, _ *checker.Verdict, _ *history.History) { r.Probes = nil },
		"an end by itself": func(r *record, _ *checker.Verdict, _ *history.History) {
			r.fail("I35", 0, "n1 ended by itself")
		},
		"broken off": func(r *record, _ *checker.Verdict, _ *history.History) { r.fail(itself, 0, "interrupted") },
	} {
		r, v, h := whole()
		spoil(r, v, h)
		got := r.report(v, h)
		if got.Verdict != report.Invalid {
			t.Errorf("%s: it is %v", name, got.Verdict)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(v.Checks) > 1 && v.Checks[1].Violations != 0 {
			t.Errorf("%s: the checker's own verdict was changed", name)
		}
	}
}

// TestReadPassages reads what went through Redis in a run with the mirror, all of it or nothing.
func TestReadPassages(t *testing.T) {
	dir := t.TempDir()
	h := history.New()
	h.Pass(history.Passage{Client: "c1", Queue: "mirror/in", Payload: []byte("p")})
	if err := writeFile(filepath.Join(dir, passageName), h.WritePassages); err != nil {
		t.Fatal(err)
	}
	for name, one := range map[string]struct {
		dir  string
		kept record
		want int // -1 for an error
	}{
		"all":            {dir, record{Passages: 1}, 1},
		"one is gone":    {dir, record{Passages: 2}, -1},
		"no file":        {t.TempDir(), record{Passages: 1}, -1},
		"without mirror": {t.TempDir(), record{}, 0},
	} {
		read := history.New()
		if err := readPassages(one.dir, &one.kept, read); (err != nil) != (one.want < 0) || err == nil &&
			len(read.Passages()) != one.want {
			t.Errorf("%s: %d passages, %v", name, len(read.Passages()), err)
		}
	}
}
