package fsm

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func everyGrant() []Grant {
	return []Grant{
		{Queue: "ns/orders", Partition: 2, Serial: 300, Fence: 70000, Attempt: 3, Due: 1_800_000_000_001_000_000, Until: 1_800_000_060_002_000_000},
		{Queue: "mail", Partition: 1, Serial: 301, Fence: 70001, Attempt: 1, Due: 1, Until: 2},
	}
}

// everyQuery has one query of each kind with every field set to a value of its own.
func everyQuery() []Query {
	return []Query{
		&JobQuery{Queue: "ns/orders", ID: "order-42", Ended: true},
		&ListQuery{
			Queue: "orders", State: Dead, DueAfter: 1_800_000_000_000_000_001, DueBefore: 1_800_000_000_000_000_002,
			After: Cursor{Due: 1_800_000_000_000_000_003, Serial: 300}, Max: 1000,
		},
		&QueueQuery{Queue: "ns/orders"},
		&QueuesQuery{Prefix: "ns/", After: "ns/mail", Max: 200},
		&RecallQuery{Caller: "ns", RequestID: "request#0.1", Content: [16]byte{15: 1}},
		&HeldQuery{Grants: everyGrant()},
	}
}

// everyReading has every field of a job and of a queue set to a value of its own: two jobs of one queue and one of another, one
// without body, and one with a generated id.
func everyReading() Reading {
	job := Job{
		Queue: "ns/orders", Partition: 2, Serial: 300, ID: "order-42", State: Reserved, Priority: -7,
		Due: 1_800_000_000_001_000_000, FirstDue: 1_800_000_000_002_000_000, Created: 1_800_000_000_000_000_003,
		Given: GivenTTR | GivenTTL, TTR: time.Minute, MaxAttempts: 5, RetryDelays: []time.Duration{0, time.Minute},
		TTL: 1_800_000_000_004_000_000, Headers: []Header{{"a", "1"}, {"traceparent", "00-ab-cd-01"}}, Body: []byte("close order 42"),
		BodyBytes: 14, Attempt: 3, Fence: 70000, Until: 1_800_000_060_005_000_000, LeaseTTR: 2 * time.Minute, Redrives: 6,
		LastError: "smtp 421", Died: 1_800_000_000_000_000_007, Ended: 1_800_000_000_000_000_010, AttemptUnknown: true,
	}
	generated := Job{Queue: "ns/orders", Partition: 2, Serial: 301, ID: "2-301", Generated: true, Body: []byte{}}
	return Reading{
		Kind: KindHeldQuery, Code: Invalid, Clock: 1_800_000_000_000_000_008, Now: 1_800_000_000_000_000_009, More: true,
		Jobs: []Job{job, generated, {Queue: "mail", ID: "x", BodyBytes: 1 << 20}},
		Queues: []Queue{{
			Name: "ns/orders", Partition: 2, Partitions: 3, Version: 9, Settings: everySetting(),
			Counts:   Counts{Delayed: 1, Ready: 2, Reserved: 3, Dead: 4, Bytes: 5},
			Counters: Counters{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, OldestReady: 15, NextDue: 16, Created: 17, Tombstones: 18, DedupSince: 19,
			Due: Due{
				Overdue: 20, Minute: 21, Hour: 22, Day: 23, Month: 24, Later: 25,
				Minutes: []DueSlice{{Start: 26 * minute, Jobs: 27}, {Start: TimeMax / minute * minute, Jobs: 28}},
				Hours:   []DueSlice{{Start: 29 * hour, Jobs: 30}}, Days: []DueSlice{{Start: 31 * day, Jobs: 32}},
			},
			Recent: &Recent{Window: 33, Puts: 34, Grants: 35, Acks: 36, Late: [LateBuckets]uint64{0: 37, 5: 38, LateBuckets - 1: 39}, LateMax: 40},
			Format: LatestFormat,
		}, {Name: "mail"}},
	}
}

// inFirstFormat returns a reading with what the first format has of it.
func inFirstFormat(v Reading) Reading {
	v.Jobs, v.Queues = slices.Clone(v.Jobs), slices.Clone(v.Queues)
	for i := range v.Jobs {
		v.Jobs[i].Ended, v.Jobs[i].AttemptUnknown = 0, false
	}
	for i := range v.Queues {
		v.Queues[i].Recent, v.Queues[i].Format = nil, 0
	}
	return v
}

// everyResult has every field set to a value of its own, and results with nearly nothing.
func everyResult() []Result {
	return []Result{
		{
			Code: RateLimited, State: Delayed, Created: true, More: true, Replayed: true, Partition: 2, Serial: 300,
			Due: 1_800_000_000_001_000_000, Until: 1_800_000_060_002_000_000, Count: 4096, Wait: 3 * time.Second, Grants: everyGrant(),
		},
		{}, {Code: Quota, State: Expired, Until: 1}, {Replayed: true}, {More: true, Partition: 1}, {Wait: 1}, {Count: 1},
	}
}

func TestGoldenQueries(t *testing.T) {
	seen := map[QueryKind]bool{}
	for _, q := range everyQuery() {
		seen[q.Kind()] = true
		name := reflect.TypeOf(q).Elem().Name()
		requireSet(t, name, reflect.ValueOf(q).Elem(), false)
		encoded := AppendQuery(nil, q)
		golden(t, "query_"+name, encoded)
		if name == "JobQuery" {
			if got, err := ParseQuery(encoded); err != nil || !cmp.Equal(got, Query(&JobQuery{Queue: "ns/orders", ID: "order-42"})) {
				t.Errorf("%s of the first format came back as %+v, %v", name, got, err)
			}
			encoded = AppendQueryIn(nil, 2, q)
			golden(t, "query_2_"+name, encoded)
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
	for kind := KindJobQuery; kind <= KindHeldQuery; kind++ {
		if !seen[kind] {
			t.Errorf("kind %d has no golden file", kind)
		}
	}
}

func TestGoldenReading(t *testing.T) {
	v := everyReading()
	requireSet(t, "Job", reflect.ValueOf(func() Job { j := v.Jobs[0]; j.Generated = v.Jobs[1].Generated; return j }()), false)
	requireSet(t, "Queue", reflect.ValueOf(v.Queues[0]), false)
	requireSet(t, "Reading", reflect.ValueOf(v), false)
	first := inFirstFormat(v)
	encoded := AppendReading(nil, &v)
	golden(t, "reading", encoded)
	if got, err := ParseReading(encoded); err != nil || !cmp.Equal(first, got) {
		t.Errorf("the reading came back changed, %v (-want +got):\n%s", err, cmp.Diff(first, got))
	}
	v.Queues = append(v.Queues, Queue{Name: "idle", Recent: &Recent{Window: 41}})
	encoded = AppendReadingIn(nil, 2, &v)
	golden(t, "reading_2", encoded)
	got, err := ParseReading(encoded)
	if diff := cmp.Diff(v, got); err != nil || diff != "" {
		t.Errorf("the reading of format 2 came back changed, %v (-want +got):\n%s", err, diff)
	}
	for _, job := range v.Jobs[:2] {
		if cap(job.Body) != len(job.Body) {
			t.Errorf("what follows the body of job %s can be reached from it", job.ID)
		}
	}
	for kind := KindJobQuery; kind <= KindHeldQuery; kind++ {
		empty := Reading{Kind: kind, Clock: 1, Now: 2}
		if got, err := ParseReading(AppendReading(nil, &empty)); err != nil || !cmp.Equal(empty, got) {
			t.Errorf("an empty reading of kind %d came back as %+v, %v", kind, got, err)
		}
	}
}

func TestGoldenResults(t *testing.T) {
	results := everyResult()
	requireSet(t, "Result", reflect.ValueOf(results[0]), false)
	for _, g := range results[0].Grants {
		requireSet(t, "Grant", reflect.ValueOf(g), false)
	}
	encoded := AppendResults(nil, results)
	golden(t, "results", encoded)
	got, err := ParseResults(encoded)
	clear(encoded)
	if diff := cmp.Diff(results, got, cmpopts.IgnoreUnexported(Result{})); err != nil || diff != "" {
		t.Errorf("the results came back changed, %v (-want +got):\n%s", err, diff)
	}
	if got, err := ParseResults(AppendResults(nil, nil)); got != nil || err != nil {
		t.Errorf("no results came back as %v, %v", got, err)
	}
}

func TestRequestsComeBack(t *testing.T) {
	for _, want := range []*Request{
		{Caller: "ns", ID: "request", Commands: append(everyCommand(), everyCommand()...)}, {},
		{ID: "two of a kind", Commands: []Command{&Reserve{Queues: []string{"a", "b"}}, &Reserve{Queues: []string{"c"}}, &Redrive{IDs: []string{"x"}}, &Redrive{IDs: []string{"y"}}}},
	} {
		got, err := ParseRequest(AppendRequest(nil, want))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("the request came back changed, %v (-want +got):\n%s", err, diff)
		}
		_, requests, err := DecodeEntry(AppendEntry(nil, 5, [][]byte{AppendRequest(nil, want)}))
		if diff := cmp.Diff([]Request{*want}, requests); err != nil || diff != "" {
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
		"request": func(b []byte) error { _, err := ParseRequest(b); return err },
	}
}

func TestWhatIsNotWholeIsRefused(t *testing.T) {
	reading := everyReading()
	whole := map[string][][]byte{"reading": {AppendReadingIn(nil, LatestFormat, &reading)}, "results": {AppendResults(nil, everyResult())}}
	whole["request"] = [][]byte{AppendRequest(nil, &Request{Caller: "ns", ID: "request", Commands: everyCommand()})}
	for _, q := range everyQuery() {
		whole["query"] = append(whole["query"], AppendQueryIn(nil, LatestFormat, q))
	}
	for format, parse := range parsers() {
		for _, b := range whole[format] {
			for cut := range b {
				if err := parse(b[:cut]); !errors.Is(err, ErrDamaged) {
					t.Errorf("%s %x, cut to %d bytes: %v", format, b, cut, err)
				}
			}
			if err := parse(append(bytes.Clone(b), 0)); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s %x with a byte more: %v", format, b, err)
			}
			if format == "request" {
				continue // the version is that of the entry
			}
			if err := parse(append([]byte{b[0] + 1}, b[1:]...)); !errors.Is(err, ErrVersion) {
				t.Errorf("%s %x of the next version: %v", format, b, err)
			}
		}
	}
}

func TestWhatIsUnknownIsRefused(t *testing.T) {
	var huge []byte
	huge = appendText(append(huge, byte(FirstFormat), byte(KindQueuesQuery)), "")
	huge = append(appendText(huge, ""), 0x80, 0x80, 0x80, 0x80, 0x08) // 2^31
	beyond := AppendReading(nil, &Reading{Kind: KindQueueQuery, Queues: []Queue{{Due: Due{Days: []DueSlice{{Start: TimeMax, Jobs: 1}}}}}})
	beyond[len(beyond)-2]++ // the last byte of the last day's number
	for name, tc := range map[string]struct {
		format string
		b      []byte
		want   error
	}{
		"query of kind 0":     {"query", []byte{byte(FirstFormat), 0}, ErrVersion},
		"query of a new kind": {"query", []byte{byte(FirstFormat), byte(KindHeldQuery) + 1, 0}, ErrVersion},
		"limit of 2^31":       {"query", huge, ErrDamaged},
		"reading of kind 0":   {"reading", []byte{byte(FirstFormat), 0, 0, 0, 0, 0, 0, 0}, ErrVersion},
		"reading of new kind": {"reading", []byte{byte(FirstFormat), byte(KindHeldQuery) + 1, 0, 0, 0, 0, 0, 0}, ErrVersion},
		"reading of new code": {"reading", []byte{byte(FirstFormat), byte(KindHeldQuery), byte(Restoring) + 1, 0, 0, 0, 0, 0}, ErrVersion},
		"flag of 2":           {"reading", []byte{byte(FirstFormat), byte(KindJobQuery), 0, 2, 0, 0, 0, 0}, ErrDamaged},
		"job with new fields": {"reading", changedJob(func(b []byte) { b[0] = jobFieldsEnd }), ErrVersion},
		"job in a new state":  {"reading", changedJob(func(b []byte) { b[1] = byte(Expired) + 1 }), ErrVersion},
		"slice after the end": {"reading", beyond, ErrDamaged},
		"many jobs":           {"reading", []byte{byte(FirstFormat), byte(KindJobQuery), 0, 0, 0, 0, 0xff, 0xff, 3, 0}, ErrDamaged},
		"command of new kind": {"request", []byte{0, 0, 1, 2, byte(KindResetClock) + 1, 0}, ErrVersion},
		"new code":            {"results", []byte{resultsVersion, 1, byte(Restoring) + 1, 0, 0}, ErrVersion},
		"new state":           {"results", []byte{resultsVersion, 1, 0, byte(Expired) + 1, 0}, ErrVersion},
		"many results":        {"results", []byte{resultsVersion, 0xff, 0xff, 3, 0, 0, 0}, ErrDamaged},
	} {
		if err := parsers()[tc.format](tc.b); !errors.Is(err, tc.want) {
			t.Errorf("%s: error %v, should wrap %v", name, err, tc.want)
		}
	}
}

// changedJob returns a reading of one job whose bytes were changed.
func changedJob(change func(b []byte)) []byte {
	reading := Reading{Kind: KindJobQuery, Jobs: []Job{{Queue: "orders", ID: "x"}}}
	b := AppendReading(nil, &reading)
	change(b[bytes.Index(b, []byte("orders"))-5:]) // fields, state, priority, given, length
	return b
}

// TestNegativeTimesAreReadAsZero: as in commands, no mistake of a caller ends as bytes that nobody can read.
func TestNegativeTimesAreReadAsZero(t *testing.T) {
	reading := Reading{
		Kind: KindJobQuery, Clock: -1, Now: -1, Queues: []Queue{{OldestReady: -1, NextDue: -1, Created: -1, DedupSince: -1}},
		Jobs: []Job{{Due: -1, FirstDue: -1, Created: -1, TTR: -1, TTL: -1, Until: -1, LeaseTTR: -1, Died: -1, RetryDelays: []time.Duration{-1}}},
	}
	if _, err := ParseReading(AppendReading(nil, &reading)); err != nil {
		t.Error(err)
	}
	if _, err := ParseResults(AppendResults(nil, []Result{{Due: -1, Until: -1, Wait: -1, Grants: []Grant{{Due: -1, Until: -1}}}})); err != nil {
		t.Error(err)
	}
	for _, q := range []Query{
		&ListQuery{DueAfter: -1, DueBefore: -1, After: Cursor{Due: -1}, Max: -1}, &QueuesQuery{Max: -1}, &HeldQuery{Grants: []Grant{{Due: -1, Until: -1}}},
	} {
		if _, err := ParseQuery(AppendQuery(nil, q)); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func FuzzParseQuery(f *testing.F) {
	for _, q := range everyQuery() {
		f.Add(AppendQueryIn(nil, LatestFormat, q))
	}
	m := populated(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := ParseQuery(b)
		if err != nil {
			return
		}
		if again, err := ParseQuery(AppendQueryIn(nil, LatestFormat, q)); err != nil || !cmp.Equal(q, again) {
			t.Fatalf("the query does not survive encoding: %+v, %v", again, err)
		}
		r := m.Answer(q, 0)
		if again, err := ParseReading(AppendReadingIn(nil, LatestFormat, &r)); err != nil || !cmp.Equal(r, again, cmpopts.EquateEmpty()) {
			t.Fatalf("the reading does not survive encoding: %+v, %v", again, err)
		}
	})
}

func FuzzParseReading(f *testing.F) {
	reading := everyReading()
	f.Add(AppendReadingIn(nil, LatestFormat, &reading))
	for _, q := range []Query{&JobQuery{Queue: "orders", ID: "order-42"}, &QueuesQuery{Max: 9}, &ListQuery{Queue: "orders", State: Dead, Max: 9}} {
		r := populated(f).Answer(q, 0)
		f.Add(AppendReadingIn(nil, LatestFormat, &r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseReading(b)
		if err != nil {
			return
		}
		if again, err := ParseReading(AppendReadingIn(nil, LatestFormat, &r)); err != nil || !cmp.Equal(r, again) {
			t.Fatalf("the reading does not survive encoding: %+v, %v", again, err)
		}
	})
}

func FuzzParseResults(f *testing.F) {
	f.Add(AppendResults(nil, everyResult()))
	f.Fuzz(func(t *testing.T, b []byte) {
		results, err := ParseResults(b)
		if err != nil {
			return
		}
		again, err := ParseResults(AppendResults(nil, results))
		if err != nil || !cmp.Equal(results, again, cmpopts.IgnoreUnexported(Result{})) {
			t.Fatalf("the results do not survive encoding: %+v, %v", again, err)
		}
	})
}
