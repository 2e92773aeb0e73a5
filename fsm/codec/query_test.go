package codec

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/fsmtest"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// inFirstFormat returns a reading with what the first format has of it.
func inFirstFormat(v fsm.Reading) fsm.Reading {
	v.Jobs, v.Queues = slices.Clone(v.Jobs), slices.Clone(v.Queues)
	for i := range v.Jobs {
		v.Jobs[i].End = nil
		v.Jobs[i].Client, v.Jobs[i].Leased, v.Jobs[i].Attempts = "", 0, nil
	}
	v = withoutKeys(v)
	for i := range v.Queues {
		v.Queues[i].Recent, v.Queues[i].Format, v.Queues[i].Parked = nil, 0, nil
	}
	return v
}

// withoutKeys returns a reading with what the formats before 4 have of it.
func withoutKeys(v fsm.Reading) fsm.Reading {
	v.Jobs, v.Queues = slices.Clone(v.Jobs), slices.Clone(v.Queues)
	for i := range v.Jobs {
		v.Jobs[i].Key, v.Jobs[i].Version, v.Jobs[i].Place, v.Jobs[i].Next = "", 0, 0, nil
	}
	for i := range v.Queues {
		v.Queues[i].Settings.Keys = fsm.KeySettings{}
	}
	return withoutFIFO(v)
}

// withoutFIFO returns a reading with what the formats before 5 have of it.
func withoutFIFO(v fsm.Reading) fsm.Reading {
	v.Jobs, v.Queues = slices.Clone(v.Jobs), slices.Clone(v.Queues)
	for i := range v.Jobs {
		v.Jobs[i].FIFO, v.Jobs[i].Uses = false, nil
	}
	for i := range v.Queues {
		v.Queues[i].Urgent = 0
	}
	return v
}

// everyResult has every field set to a value of its own, and results with nearly nothing.
func everyResult() []fsm.Result {
	return []fsm.Result{
		{
			Code: fsm.RateLimited, State: fsm.Delayed, Created: true, More: true, Replayed: true, Partition: 2, Serial: 300,
			Due: 1_800_000_000_001_000_000, Until: 1_800_000_060_002_000_000, Count: 4096, Wait: 3 * time.Second,
			Grants: fsmtest.EveryGrant(),
		},
		{}, {
			Code: fsm.Quota, State: fsm.Expired, Until: 1,
		}, {Replayed: true}, {More: true, Partition: 1}, {Wait: 1}, {Count: 1},
	}
}

// everyKeyedResult is everyResult with what format 4 adds.
func everyKeyedResult() []fsm.Result {
	results := append(everyResult(), fsm.Result{Version: 1})
	results[0].Version, results[0].Replaced = 300, true
	return results
}

func TestGoldenQueries(t *testing.T) {
	seen := map[fsm.QueryKind]bool{}
	for _, q := range fsmtest.EveryQuery() {
		seen[q.Kind()] = true
		name := reflect.TypeOf(q).Elem().Name()
		requireSet(t, name, reflect.ValueOf(q).Elem(), false)
		encoded := AppendQuery(nil, q)
		golden(t, "query_"+name, encoded)
		if name == "SearchQuery" {
			first := *q.(*fsm.SearchQuery)
			first.Match.Key = ""
			if got, err := ParseQuery(encoded); err != nil || !cmp.Equal(got, fsm.Query(&first)) {
				t.Errorf("%s of the first format came back as %+v, %v", name, got, err)
			}
			encoded = AppendQueryIn(nil, 4, q)
			golden(t, "query_4_"+name, encoded)
		}
		if name == "JobQuery" {
			if got, err := ParseQuery(encoded); err != nil || !cmp.Equal(got, fsm.Query(&fsm.JobQuery{
				Queue: "ns/orders", ID: "order-42",
			})) {
				t.Errorf("%s of the first format came back as %+v, %v", name, got, err)
			}
			encoded = AppendQueryIn(nil, 2, q)
			golden(t, "query_2_"+name, encoded)
			encoded = AppendQueryIn(nil, 4, q)
			golden(t, "query_4_"+name, encoded)
		}
		got, err := ParseQuery(encoded)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		clear(encoded)
		if diff := cmp.Diff(q, got); diff != "" {
			t.Errorf("%s came back changed (-want +got):\n%s", name, diff)
		}
	}
	for kind := fsm.KindJobQuery; kind <= fsm.KindScheduleQuery; kind++ { // later ones have a test of their own
		if known(kind) && !seen[kind] {
			t.Errorf("kind %d has no golden file", kind)
		}
	}
}

func TestGoldenReading(t *testing.T) {
	v := fsmtest.EveryReading()
	requireSet(t, "Job", reflect.ValueOf(func() fsm.Job {
		j := v.Jobs[0]
		j.Generated = v.Jobs[1].Generated
		return j
	}()), false)
	requireSet(t, "Queue", reflect.ValueOf(v.Queues[0]), false)
	requireSet(t, "Attempt", reflect.ValueOf(v.Jobs[0].Attempts[0]), false)
	requireSet(t, "Reading", reflect.ValueOf(v), false)
	v.Scanned, v.Last, v.Minutes, v.Since, v.Keys, v.Next = 0, fsm.Cursor{}, nil, 0, nil, 0
	v.Schedules = nil
	first := inFirstFormat(v)
	encoded := AppendReading(nil, &v)
	golden(t, "reading", encoded)
	if got, err := ParseReading(encoded); err != nil || !cmp.Equal(first, got) {
		t.Errorf("the reading came back changed, %v (-want +got):\n%s", err, cmp.Diff(first, got))
	}
	v.Queues = append(v.Queues, fsm.Queue{Name: "idle", Recent: &fsm.Recent{Window: 41}})
	encoded = AppendReadingIn(nil, 2, &v)
	golden(t, "reading_2", encoded)
	got, err := ParseReading(encoded)
	second := withoutKeys(v)
	second.Queues[0].Parked = nil
	second.Jobs[0].Client, second.Jobs[0].Leased, second.Jobs[0].Attempts = "", 0, nil
	if diff := cmp.Diff(second, got); err != nil || diff != "" {
		t.Errorf("the reading of format 2 came back changed, %v (-want +got):\n%s", err, diff)
	}
	for _, job := range v.Jobs[:2] {
		if cap(job.Body) != len(job.Body) {
			t.Errorf("what follows the body of job %s can be reached from it", job.ID)
		}
	}
	for kind := fsm.KindJobQuery; kind <= fsm.KindFirstQuery; kind++ {
		if !known(kind) {
			continue
		}
		empty := fsm.Reading{Kind: kind, Clock: 1, Now: 2}
		if got, err := ParseReading(AppendReading(nil, &empty)); err != nil || !cmp.Equal(empty, got) {
			t.Errorf("an empty reading of kind %d came back as %+v, %v", kind, got, err)
		}
	}
}

// TestGoldenReadingThree: readings of format 3, those of a search and of minutes among them.
func TestGoldenReadingThree(t *testing.T) {
	of := func(kind fsm.QueryKind) fsm.Reading {
		v := fsmtest.EveryReading()
		v.Kind, v.Schedules, v.Keys, v.Next = kind, nil, nil, 0
		if kind != fsm.KindSearchQuery {
			v.Scanned, v.Last = 0, fsm.Cursor{}
		}
		if kind != fsm.KindMinuteQuery {
			v.Minutes, v.Since = nil, 0
		}
		return v
	}
	for name, want := range map[string]fsm.Reading{
		"reading_3": of(fsm.KindHeldQuery), "reading_search": of(fsm.KindSearchQuery),
		"reading_minute": of(fsm.KindMinuteQuery),
	} {
		encoded := AppendReadingIn(nil, 3, &want)
		want = withoutKeys(want)
		golden(t, name, encoded)
		got, err := ParseReading(encoded)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s came back changed, %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestGoldenReadingFour: a reading of format 4.
func TestGoldenReadingFour(t *testing.T) {
	want := fsmtest.EveryReading()
	want.Scanned, want.Last, want.Minutes, want.Since = 0, fsm.Cursor{}, nil, 0
	want.Jobs[0].Next.Content = [16]byte{15: 2}
	schedules := want.Schedules
	keys := fsm.Reading{Kind: fsm.KindKeysQuery, Clock: 1, Now: 2, Scanned: 3, Keys: want.Keys, Next: want.Next}
	requireSet(t, "Key", reflect.ValueOf(keys.Keys[0]), false)
	want.Keys, want.Next, want.Schedules = nil, 0, nil
	for name, want := range map[string]fsm.Reading{"reading_4": want, "reading_keys": keys} {
		encoded := AppendReadingIn(nil, 4, &want)
		golden(t, name, encoded)
		want = withoutFIFO(want)
		if got, err := ParseReading(encoded); err != nil || !cmp.Equal(want, got) {
			t.Errorf("%s came back changed, %v (-want +got):\n%s", name, err, cmp.Diff(want, got))
		}
	}
	keys.Keys[0].Blocked = fsm.BlockedByRate + 1
	if _, err := ParseReading(AppendReadingIn(nil, 4, &keys)); !errors.Is(err, fsm.ErrVersion) {
		t.Errorf("a key that is blocked by what is unknown: %v", err)
	}
	want = fsm.Reading{Kind: fsm.KindSchedulesQuery, Clock: 1, Now: 2, More: true, Schedules: schedules}
	encoded := AppendReadingIn(nil, 4, &want)
	golden(t, "reading_schedules", encoded)
	if got, err := ParseReading(encoded); err != nil || !cmp.Equal(want, got) {
		t.Errorf("the reading of schedules came back changed, %v (-want +got):\n%s", err, cmp.Diff(want, got))
	}
}

// TestGoldenReadingFive: a reading of format 5, and that of a list, which says where it ends.
func TestGoldenReadingFive(t *testing.T) {
	want := fsmtest.EveryReading()
	want.Scanned, want.Last, want.Minutes, want.Since = 0, fsm.Cursor{}, nil, 0
	want.Keys, want.Next, want.Schedules = nil, 0, nil
	want.Jobs[0].Priority, want.Jobs[0].Next.Priority, want.Jobs[0].Next.FIFO = 1<<31, 1024, true
	list := want
	list.Kind, list.Last = fsm.KindListQuery, fsm.Cursor{Due: 42, Serial: 43}
	for name, want := range map[string]fsm.Reading{"reading_5": want, "reading_5_list": list} {
		encoded := AppendReadingIn(nil, 5, &want)
		golden(t, name, encoded)
		if got, err := ParseReading(encoded); err != nil || !cmp.Equal(want, got) {
			t.Errorf("%s came back changed, %v (-want +got):\n%s", name, err, cmp.Diff(want, got))
		}
	}
	first := AppendReadingIn(nil, 4, &list) // as a node before format 5 reads it
	if got, err := ParseReading(first); err != nil || got.Jobs[0].Priority != 127 || got.Last != (fsm.Cursor{}) {
		t.Errorf("in format 4: priority %d, last %+v, %v", got.Jobs[0].Priority, got.Last, err)
	}
}

// TestGoldenFIFOQueries: the queries of format 5 come back, and no earlier format has them.
func TestGoldenFIFOQueries(t *testing.T) {
	for _, q := range fsmtest.EveryFIFOQuery() {
		name := reflect.TypeOf(q).Elem().Name()
		requireSet(t, name, reflect.ValueOf(q).Elem(), false)
		encoded := AppendQueryIn(nil, 5, q)
		golden(t, "query_5_"+name, encoded)
		if got, err := ParseQuery(encoded); err != nil || !cmp.Equal(q, got) {
			t.Errorf("%s came back as %+v, %v", name, got, err)
		}
		if _, err := ParseQuery(AppendQueryIn(nil, 4, q)); !errors.Is(err, fsm.ErrVersion) {
			t.Errorf("%s in format 4: %v", name, err)
		}
	}
}

// TestAttemptsAreBounded: a job with more attempts than a job keeps is damaged.
func TestAttemptsAreBounded(t *testing.T) {
	v := fsm.Reading{Kind: fsm.KindJobQuery, Jobs: []fsm.Job{{Queue: "q", ID: "x"}}}
	for n := range fsm.AttemptsKept + 2 {
		v.Jobs[0].Attempts = make([]fsm.Attempt, n)
		if _, err := ParseReading(AppendReadingIn(nil, 3, &v)); (err != nil) != (n > fsm.AttemptsKept) {
			t.Errorf("%d attempts: %v", n, err)
		}
	}
}

func TestGoldenResults(t *testing.T) {
	golden(t, "results", AppendResults(nil, everyResult()))
	results := everyKeyedResult()
	requireSet(t, "Result", reflect.ValueOf(results[0]), false)
	for _, g := range results[0].Grants {
		requireSet(t, "Grant", reflect.ValueOf(g), false)
	}
	encoded := AppendResults(nil, results)
	golden(t, "results_4", encoded)
	got, err := ParseResults(encoded)
	clear(encoded)
	if diff := cmp.Diff(results, got, cmpopts.IgnoreUnexported(fsm.Result{})); err != nil || diff != "" {
		t.Errorf("the results came back changed, %v (-want +got):\n%s", err, diff)
	}
	if got, err := ParseResults(AppendResults(nil, nil)); got != nil || err != nil {
		t.Errorf("no results came back as %v, %v", got, err)
	}
}

func TestRequestsComeBack(t *testing.T) {
	for _, want := range []*fsm.Request{
		{Caller: "ns", ID: "request", Commands: append(fsmtest.EveryCommand(), fsmtest.EveryCommand()...)}, {},
		{
			ID: "two of a kind",
			Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"a", "b"}}, &fsm.Reserve{Queues: []string{"c"}},
				&fsm.Redrive{IDs: []string{"x"}}, &fsm.Redrive{IDs: []string{"y"}}},
		},
	} {
		got, err := ParseRequest(AppendRequest(nil, want), fsm.FirstFormat)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("the request came back changed, %v (-want +got):\n%s", err, diff)
		}
		_, requests, err := DecodeEntry(AppendEntry(nil, 5, [][]byte{AppendRequest(nil, want)}))
		if diff := cmp.Diff([]fsm.Request{*want}, requests); err != nil || diff != "" {
			t.Errorf("the request came back changed from an entry, %v (-want +got):\n%s", err, diff)
		}
	}
}

// parsers reads each of the formats and forgets what it read.
func parsers() map[string]func([]byte) error {
	return map[string]func([]byte) error{
		"query":   func(b []byte) error { _, err := ParseQuery(b); return err },
		"reading": func(b []byte) error { _, err := ParseReading(b); return err },
		"results": func(b []byte) error { _, err := ParseResults(b); return err },
		"request": func(b []byte) error { _, err := ParseRequest(b, fsm.LatestFormat); return err },
	}
}

func TestWhatIsNotWholeIsRefused(t *testing.T) {
	reading := fsmtest.EveryReading()
	whole := map[string][][]byte{
		"reading": {AppendReadingIn(nil, fsm.LatestFormat, &reading)}, "results": {AppendResults(nil, everyResult())},
	}
	whole["request"] = [][]byte{AppendRequest(nil, &fsm.Request{
		Caller: "ns", ID: "request", Commands: fsmtest.EveryCommand(),
	})}
	for _, q := range fsmtest.EveryQuery() {
		whole["query"] = append(whole["query"], AppendQueryIn(nil, fsm.LatestFormat, q))
	}
	for format, parse := range parsers() {
		for _, b := range whole[format] {
			for cut := range b {
				if err := parse(b[:cut]); !errors.Is(err, fsm.ErrDamaged) {
					t.Errorf("%s %x, cut to %d bytes: %v", format, b, cut, err)
				}
			}
			if err := parse(append(bytes.Clone(b), 0)); !errors.Is(err, fsm.ErrDamaged) {
				t.Errorf("%s %x with a byte more: %v", format, b, err)
			}
			if format == "request" {
				continue // the version is that of the entry
			}
			if err := parse(append([]byte{b[0] + 1}, b[1:]...)); !errors.Is(err, fsm.ErrVersion) {
				t.Errorf("%s %x of the next version: %v", format, b, err)
			}
		}
	}
}

func TestWhatIsUnknownIsRefused(t *testing.T) {
	var huge []byte
	huge = AppendText(append(huge, byte(fsm.FirstFormat), byte(fsm.KindQueuesQuery)), "")
	huge = append(AppendText(huge, ""), 0x80, 0x80, 0x80, 0x80, 0x08) // 2^31
	beyond := AppendReading(nil, &fsm.Reading{
		Kind: fsm.KindQueueQuery, Queues: []fsm.Queue{{Due: fsm.Due{Days: []fsm.DueSlice{{Start: fsm.TimeMax, Jobs: 1}}}}},
	})
	beyond[len(beyond)-2]++ // the last byte of the last day's number
	for name, tc := range map[string]struct {
		format string
		b      []byte
		want   error
	}{
		"query of kind 0":     {"query", []byte{byte(fsm.FirstFormat), 0}, fsm.ErrVersion},
		"query of a new kind": {"query", []byte{byte(fsm.FirstFormat), byte(fsm.KindFirstQuery) + 1, 0}, fsm.ErrVersion},
		"limit of 2^31":       {"query", huge, fsm.ErrDamaged},
		"reading of kind 0":   {"reading", []byte{byte(fsm.FirstFormat), 0, 0, 0, 0, 0, 0, 0}, fsm.ErrVersion},
		"reading of new kind": {"reading", []byte{byte(fsm.FirstFormat), byte(fsm.KindFirstQuery) + 1, 0, 0, 0, 0, 0, 0},
			fsm.ErrVersion},
		"reading of new code": {"reading",
			[]byte{byte(fsm.FirstFormat), byte(fsm.KindHeldQuery), byte(fsm.LastCode) + 1, 0, 0, 0, 0, 0}, fsm.ErrVersion},
		"flag of 2": {"reading", []byte{byte(fsm.FirstFormat), byte(fsm.KindJobQuery), 0, 2, 0, 0, 0, 0},
			fsm.ErrDamaged},
		"job with new fields": {"reading", changedJob(func(b []byte) { b[0] = jobFieldsEnd }), fsm.ErrVersion},
		"job in a new state":  {"reading", changedJob(func(b []byte) { b[1] = byte(fsm.Expired) + 1 }), fsm.ErrVersion},
		"slice after the end": {"reading", beyond, fsm.ErrDamaged},
		"many jobs": {"reading",
			[]byte{byte(fsm.FirstFormat), byte(fsm.KindJobQuery), 0, 0, 0, 0, 0xff, 0xff, 3, 0}, fsm.ErrDamaged},
		"command of new kind": {"request", []byte{0, 0, 0, 1, 2, byte(fsm.KindReserveJob) + 2, 0}, fsm.ErrVersion},
		"new code":            {"results", []byte{resultsVersion, 1, byte(fsm.LastCode) + 1, 0, 0}, fsm.ErrVersion},
		"new state":           {"results", []byte{resultsVersion, 1, 0, byte(fsm.Expired) + 1, 0}, fsm.ErrVersion},
		"many results":        {"results", []byte{resultsVersion, 0xff, 0xff, 3, 0, 0, 0}, fsm.ErrDamaged},
	} {
		if err := parsers()[tc.format](tc.b); !errors.Is(err, tc.want) {
			t.Errorf("%s: error %v, should wrap %v", name, err, tc.want)
		}
	}
}

// changedJob returns a reading of one job whose bytes were changed.
func changedJob(change func(b []byte)) []byte {
	reading := fsm.Reading{Kind: fsm.KindJobQuery, Jobs: []fsm.Job{{Queue: "orders", ID: "x"}}}
	b := AppendReading(nil, &reading)
	change(b[bytes.Index(b, []byte("orders"))-5:]) // fields, state, priority, given, length
	return b
}

// TestNegativeTimesAreReadAsZero: as in commands, no mistake of a caller ends as bytes that cannot
// be read.
func TestNegativeTimesAreReadAsZero(t *testing.T) {
	reading := fsm.Reading{
		Kind: fsm.KindJobQuery, Clock: -1, Now: -1, Queues: []fsm.Queue{{
			OldestReady: -1, NextDue: -1, Created: -1, DedupSince: -1,
		}},
		Jobs: []fsm.Job{{
			Due: -1, FirstDue: -1, Created: -1, TTR: -1, TTL: -1, Until: -1, LeaseTTR: -1, Died: -1,
			RetryDelays: []time.Duration{-1},
		}},
	}
	if _, err := ParseReading(AppendReading(nil, &reading)); err != nil {
		t.Error(err)
	}
	if _, err := ParseResults(AppendResults(nil, []fsm.Result{{
		Due: -1, Until: -1, Wait: -1, Grants: []fsm.Grant{{Due: -1, Until: -1}},
	}})); err != nil {
		t.Error(err)
	}
	for _, q := range []fsm.Query{
		&fsm.ListQuery{
			DueAfter: -1, DueBefore: -1, After: fsm.Cursor{Due: -1}, Max: -1,
		}, &fsm.QueuesQuery{Max: -1}, &fsm.KeysQuery{Scan: -1}, &fsm.HeldQuery{Grants: []fsm.Grant{{Due: -1, Until: -1}}},
	} {
		if _, err := ParseQuery(AppendQuery(nil, q)); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func FuzzParseResults(f *testing.F) {
	f.Add(AppendResults(nil, everyKeyedResult()))
	f.Fuzz(func(t *testing.T, b []byte) {
		results, err := ParseResults(b)
		if err != nil {
			return
		}
		again, err := ParseResults(AppendResults(nil, results))
		if err != nil || !cmp.Equal(results, again, cmpopts.IgnoreUnexported(fsm.Result{})) {
			t.Fatalf("the results do not survive encoding: %+v, %v", again, err)
		}
	})
}

// TestEndIsOfTheState: a job that ended at the time 0 comes back as one that has ended.
func TestEndIsOfTheState(t *testing.T) {
	for state := fsm.Delayed; state <= fsm.Expired; state++ {
		v := fsm.Reading{Kind: fsm.KindJobQuery, Jobs: []fsm.Job{{State: state}}}
		if !state.Held() {
			v.Jobs[0].End = &fsm.End{}
		}
		got, err := ParseReading(AppendReadingIn(nil, 2, &v))
		if err != nil || (got.Jobs[0].End == nil) != state.Held() {
			t.Errorf("state %d: %+v, %v", state, got.Jobs, err)
		}
	}
}
