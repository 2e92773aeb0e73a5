package codec

import (
	"errors"
	"flag"
	"reflect"
	"slices"
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/fsmtest"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "rewrite the golden files; only for a new version of a format")

func golden(tb testing.TB, name string, got []byte) {
	tb.Helper()
	fsmtest.Golden{Update: *update}.Check(tb, name, got)
}

func TestGoldenCommands(t *testing.T) {
	seen := map[fsm.Kind]bool{}
	for _, c := range fsmtest.EveryCommand() {
		seen[c.Kind()] = true
		name := "command_" + reflect.TypeOf(c).Elem().Name()
		entry := AppendEntry(nil, 1_800_000_000_000_000_001, [][]byte{
			AppendRequest(nil, &fsm.Request{Caller: "ns", ID: "request", Commands: []fsm.Command{c}}),
		})
		golden(t, name, entry)
		stamp, requests, err := DecodeEntry(entry)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := []fsm.Request{{Caller: "ns", ID: "request", Commands: []fsm.Command{c}}}
		if diff := cmp.Diff(want, requests); diff != "" || stamp != 1_800_000_000_000_000_001 {
			t.Errorf("%s came back changed, stamp %d (-want +got):\n%s", name, stamp, diff)
		}
	}
	for _, c := range append(fsmtest.EveryKeyCommand(), fsmtest.EveryScheduleCommand()...) {
		seen[c.Kind()] = true
		name := "command_4_" + reflect.TypeOf(c).Elem().Name()
		want := []fsm.Request{{Caller: "ns", ID: "request", Client: "w", Commands: []fsm.Command{c}}}
		entry := AppendEntryIn(nil, 4, 7, [][]byte{AppendRequestIn(nil, 4, &want[0])})
		golden(t, name, entry)
		if _, requests, err := DecodeEntry(entry); err != nil || !cmp.Equal(want, requests) {
			t.Errorf("%s came back changed, %v (-want +got):\n%s", name, err, cmp.Diff(want, requests))
		}
		earlier := AppendEntryIn(nil, 3, 7, [][]byte{AppendRequestIn(nil, 3, &want[0])})
		if _, _, err := DecodeEntry(earlier); !errors.Is(err, fsm.ErrVersion) {
			t.Errorf("%s in an entry of format 3: %v", name, err)
		}
	}
	goldenFIFOCommands(t, seen)
	for kind := fsm.KindPut; kind <= fsm.KindImport; kind++ {
		if !seen[kind] {
			t.Errorf("kind %d has no golden file", kind)
		}
	}
}

// goldenFIFOCommands is TestGoldenCommands for what format 5 adds.
func goldenFIFOCommands(t *testing.T, seen map[fsm.Kind]bool) {
	t.Helper()
	for _, c := range fsmtest.EveryFIFOCommand() {
		seen[c.Kind()] = true
		name := "command_5_" + reflect.TypeOf(c).Elem().Name()
		want := []fsm.Request{{Caller: "ns", ID: "request", Client: "w", Commands: []fsm.Command{c}}}
		entry := AppendEntryIn(nil, 5, 7, [][]byte{AppendRequestIn(nil, 5, &want[0])})
		golden(t, name, entry)
		if _, requests, err := DecodeEntry(entry); err != nil || !cmp.Equal(want, requests) {
			t.Errorf("%s came back changed, %v (-want +got):\n%s", name, err, cmp.Diff(want, requests))
		}
		earlier := AppendEntryIn(nil, 4, 7, [][]byte{AppendRequestIn(nil, 4, &want[0])})
		if _, _, err := DecodeEntry(earlier); !errors.Is(err, fsm.ErrVersion) {
			t.Errorf("%s in an entry of format 4: %v", name, err)
		}
		if format := want[0].Format(); format != 5 {
			t.Errorf("%s needs format %d", name, format)
		}
	}
}

// TestDecodedCommandsStandAlone: commands of one kind in one entry share nothing.
func TestDecodedCommandsStandAlone(t *testing.T) {
	want := []fsm.Request{
		{
			ID: "first",
			Commands: append(fsmtest.EveryCommand(), &fsm.Put{
				Queue: "a", Body: []byte("a"),
			}, &fsm.Put{Queue: "b", Body: []byte("b")}),
		},
		{
			ID: "second",
			Commands: []fsm.Command{&fsm.Put{
				Queue: "c", Body: []byte("c"),
			}, &fsm.Ack{Ref: fsm.Ref{Queue: "c", Serial: 3}}, &fsm.Ack{Ref: fsm.Ref{Queue: "d", Serial: 4}}},
		},
	}
	entry := AppendEntry(nil, 7, [][]byte{AppendRequest(nil, &want[0]), AppendRequest(nil, &want[1])})
	_, got, err := DecodeEntry(entry)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEveryFieldIsEncoded fails when a field is added to a command and forgotten in the codec.
func TestEveryFieldIsEncoded(t *testing.T) {
	commands := fsmtest.EveryFIFOCommand()
	for _, c := range append(fsmtest.EveryKeyCommand(), fsmtest.EveryCommand()...) {
		if !slices.ContainsFunc(commands, func(d fsm.Command) bool { return d.Kind() == c.Kind() }) {
			commands = append(commands, c)
		}
	}
	schedule := fsmtest.EverySchedule()
	for _, v := range []any{schedule.Spec, schedule.Policy, schedule.Counts, schedule.Recent[0]} {
		requireSet(t, reflect.TypeOf(v).Name(), reflect.ValueOf(v), false)
	}
	for _, c := range commands {
		if c.Kind() == fsm.KindPutSchedule { // its parts are checked above
			continue
		}
		v := reflect.ValueOf(c).Elem()
		requireSet(t, v.Type().Name(), v, c.Kind() == fsm.KindPut || c.Kind() == fsm.KindReschedule)
	}
}

// requireSet reports fields that are zero, so that a round trip would not notice that they are
// lost. Delay and DueAt exclude each other.
func requireSet(t *testing.T, path string, v reflect.Value, eitherDue bool) {
	t.Helper()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if !v.Type().Field(i).IsExported() {
			continue
		}
		if f.Kind() == reflect.Struct {
			requireSet(t, path+"."+name, f, false)
		} else if excluded := eitherDue && (name == "DueAt" || name == "Delay"); f.IsZero() && !excluded {
			t.Errorf("%s.%s is not set in what is encoded here", path, name)
		}
	}
}

func TestContentHashes(t *testing.T) {
	put := fsmtest.EveryCommand()[0].(*fsm.Put)
	// as many as there were
	content, request := ContentHash(put), RequestHash(&fsm.Request{Commands: fsmtest.EveryCommand()[:fsm.KindLead]})
	golden(t, "content_hash", content[:])
	golden(t, "request_hash", request[:])

	other := *put
	other.Queue, other.ID, other.Again, other.Partition, other.Partitions = "q", "i", false, 0, 1
	other.OnExisting, other.MaxWait, other.IfVersion = fsm.ReplaceExisting, 1, 2
	if ContentHash(&other) != content {
		t.Error("queue, id or again are part of the content")
	}
	other = *put // which has a traceparent
	other.Headers = []fsm.Header{put.Headers[0], {Name: "tracestate", Value: "a=1"}}
	if ContentHash(&other) != content || len(other.Headers) != 2 || other.Headers[1].Name != "tracestate" {
		t.Errorf("the trace is part of the content, or its headers are lost: %v", other.Headers)
	}
	for name, change := range map[string]func(*fsm.Put){
		"body":          func(p *fsm.Put) { p.Body = []byte("close order 43") },
		"delay":         func(p *fsm.Put) { p.Delay++ },
		"omitted delay": func(p *fsm.Put) { p.Given &^= fsm.GivenDelay },
		"header":        func(p *fsm.Put) { p.Headers = p.Headers[1:] },
		"ttr":           func(p *fsm.Put) { p.TTR++ },
		"ttl":           func(p *fsm.Put) { p.TTL++ },
		"priority":      func(p *fsm.Put) { p.Priority++ },
		"attempts":      func(p *fsm.Put) { p.MaxAttempts++ },
		"retry delays":  func(p *fsm.Put) { p.RetryDelays = p.RetryDelays[1:] },
		"key":           func(p *fsm.Put) { p.Key = "k" },
		"fifo":          func(p *fsm.Put) { p.FIFO = true },
		"wide priority": func(p *fsm.Put) { p.Priority = 249 }, // the byte of -7
	} {
		changed := *put
		if change(&changed); ContentHash(&changed) == content {
			t.Errorf("%s is not part of the content", name)
		}
	}
}

// TestScheduleIsEncoded: a schedule comes back as it was, and none of its fields is forgotten.
func TestScheduleIsEncoded(t *testing.T) {
	want := fsmtest.EverySchedule()
	encoded := AppendSchedule(nil, &want)
	golden(t, "schedule", encoded)
	want.Queue = "" // it is not encoded
	r := NewReader(encoded)
	if got := r.Schedule(); r.CheckEnd() != nil || !cmp.Equal(want, got) {
		t.Errorf("the schedule came back changed, %v (-want +got):\n%s", r.CheckEnd(), cmp.Diff(want, got))
	}
	for n := range encoded {
		r := NewReader(encoded[:n])
		if r.Schedule(); r.CheckEnd() == nil && n < len(encoded)-len("customer-7")-1 {
			t.Errorf("the first %d bytes of a schedule are read as one", n)
		}
	}
	requireSet(t, "Schedule", reflect.ValueOf(fsmtest.EverySchedule()).FieldByName("Counts"), false)
	v := reflect.ValueOf(fsmtest.EverySchedule())
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("Schedule.%s is not set in what is encoded here", v.Type().Field(i).Name)
		}
	}
}
