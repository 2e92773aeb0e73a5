package codec

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func TestDecodePut(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       *belfryv1.PutRequest
	}{
		{"nothing", "", &belfryv1.PutRequest{}},
		{"whitespace", " \n", &belfryv1.PutRequest{}},
		{"empty object", "{}", &belfryv1.PutRequest{}},
		{"strict duration", `{"delay":"300s"}`,
			&belfryv1.PutRequest{When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(300e9)}}},
		{"Go duration", `{"delay":"1h30m"}`,
			&belfryv1.PutRequest{When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(5400e9)}}},
		{"number of seconds", `{"delay":5}`,
			&belfryv1.PutRequest{When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(5e9)}}},
		{"fraction of a second", `{"delay":0.25}`,
			&belfryv1.PutRequest{When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(25e7)}}},
		{"negative, for the validation to refuse", `{"delay":-1}`,
			&belfryv1.PutRequest{When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(-1e9)}}},
		{"days", `{"ttl":"7d"}`, &belfryv1.PutRequest{Ttl: durationpb.New(7 * 86400e9)}},
		{"list of durations", `{"retryDelays":["0s","2m",3]}`, &belfryv1.PutRequest{
			RetryDelays: []*durationpb.Duration{durationpb.New(0), durationpb.New(120e9), durationpb.New(3e9)},
		}},
		{"both names of a field", `{"max_attempts":3,"ttl":"5m"}`, &belfryv1.PutRequest{
			MaxAttempts: proto.Uint32(3), Ttl: durationpb.New(300e9),
		}},
		{"null is absent", `{"priority":null,"ttr":"5m"}`, &belfryv1.PutRequest{Ttr: durationpb.New(300e9)}},
		{"a body that looks like a duration stays", `{"text":"5m","delay":"5m","headers":{"delay":"5m"}}`,
			&belfryv1.PutRequest{
				Body: &belfryv1.PutRequest_Text{Text: "5m"}, When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(300e9)},
				Headers: map[string]string{"delay": "5m"},
			}},
		{"a body that looks like JSON stays",
			`{"text":"{\"delay\": \"5m\",\u0000 \ud83d\ude00 \"state\":\"DELAYED\"}","ttr":1}`, &belfryv1.PutRequest{
				Body: &belfryv1.PutRequest_Text{Text: "{\"delay\": \"5m\",\x00 😀 \"state\":\"DELAYED\"}"}, Ttr: durationpb.New(1e9),
			}},
		{"escaped names", `{"del\u0061y":"5m"}`,
			&belfryv1.PutRequest{When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(300e9)}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := &belfryv1.PutRequest{}
			if err := JSON().Unmarshal([]byte(c.text), got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeEnums(t *testing.T) {
	for text, want := range map[string]belfryv1.JobState{
		`{"state":"DELAYED"}`:                        belfryv1.JobState_JOB_STATE_DELAYED,
		`{"state":"JOB_STATE_DEAD"}`:                 belfryv1.JobState_JOB_STATE_DEAD,
		`{"state":"ready"}`:                          belfryv1.JobState_JOB_STATE_READY,
		`{"state":"job-state-dead"}`:                 belfryv1.JobState_JOB_STATE_DEAD,
		`{"state":"job_state_Dead"}`:                 belfryv1.JobState_JOB_STATE_DEAD,
		`{"state":3}`:                                belfryv1.JobState_JOB_STATE_RESERVED,
		`{"state":2,"dueAfter":null,"pageSize":"7"}`: belfryv1.JobState_JOB_STATE_READY,
	} {
		got := &belfryv1.ListRequest{}
		if err := decodeJSON([]byte(text), got); err != nil || got.GetState() != want {
			t.Errorf("%s: %v, %v", text, got.GetState(), err)
		}
	}
}

// TestDecodeErrors checks that each message starts with the path of the field and says what is
// wanted.
func TestDecodeErrors(t *testing.T) {
	for _, c := range []struct {
		text    string
		message proto.Message
		want    string
	}{
		{`{"dealy":"300s"}`, &belfryv1.PutRequest{}, `dealy: unknown field; did you mean "delay"?`},
		{`{"zzzzzzzzzzz":1}`, &belfryv1.GetRequest{}, `zzzzzzzzzzz: unknown field; the fields here are queue, id`},
		{`{"jobs":[{},{"quue":"x"}]}`, &belfryv1.PutBatchRequest{}, `jobs[1].quue: unknown field; did you mean "queue"?`},
		{`{"settings":{"overdue":{"mod":"FIRE"}}}`, &belfryv1.UpdateQueueRequest{},
			`settings.overdue.mod: unknown field; did you mean "mode"?`},
		{`{"delay":"soon"}`, &belfryv1.PutRequest{}, `delay: want a duration such as`},
		{`{"delay":{}}`, &belfryv1.PutRequest{}, `delay: want a duration such as`},
		{`{"delay":true}`, &belfryv1.PutRequest{}, `delay: want a duration such as`},
		{`{"delay":1e300}`, &belfryv1.PutRequest{}, `delay: the duration is longer than 292 years`},
		{`{"retryDelays":["0s","x"]}`, &belfryv1.PutRequest{}, `retryDelays[1]: want a duration`},
		{`{"retryDelays":"0s"}`, &belfryv1.PutRequest{}, `retryDelays: want a JSON array, not "0s"`},
		{`{"retryDelays":[null]}`, &belfryv1.PutRequest{}, `retryDelays[0]: null is not allowed here`},
		{`{"dueAt":"tomorrow"}`, &belfryv1.PutRequest{}, `dueAt: want a time such as`},
		{`{"dueAt":1732184000}`, &belfryv1.PutRequest{}, `dueAt: want a time such as`},
		{`{"queue":5}`, &belfryv1.PutRequest{}, `queue: want a string, not 5`},
		{`{"data":5}`, &belfryv1.PutRequest{}, `data: want a string, not 5`},
		{`{"again":"yes"}`, &belfryv1.PutRequest{}, `again: want true or false, not "yes"`},
		{`{"priority":1.5}`, &belfryv1.PutRequest{}, `priority: want a whole number from -9007199254740992 to 9007199254740992, not 1.5`},
		{`{"maxAttempts":-1}`, &belfryv1.PutRequest{}, `maxAttempts: want a whole number from 0 to 4294967295, not -1`},
		{`{"headers":{"a":1}}`, &belfryv1.PutRequest{}, `headers["a"]: want a string, not 1`},
		{`{"headers":[]}`, &belfryv1.PutRequest{}, `headers: want a JSON object of strings, not []`},
		{`{"state":"LATE"}`, &belfryv1.ListRequest{}, `state: want one of DELAYED, READY, RESERVED, DEAD, not "LATE"`},
		{`{"delay":"1s","dueAt":"2026-11-21T09:30:00Z"}`, &belfryv1.PutRequest{}, `dueAt: not together with delay`},
		{`{"dueAt":"2026-11-21T09:30:00Z","delay":5}`, &belfryv1.RescheduleRequest{}, `delay: not together with dueAt`},
		{`{"jobs":[{"data":"YQ==","text":""}]}`, &belfryv1.PutBatchRequest{}, `jobs[0].text: not together with data`},
		{`{"state":true}`, &belfryv1.ListRequest{}, `state: want one of DELAYED`},
		{`[]`, &belfryv1.PutRequest{}, `request: want a JSON object such as {"queue": …}, not []`},
		{`"x"`, &belfryv1.PutRequest{}, `request: want a JSON object`},
		{`{"queue":"a"`, &belfryv1.PutRequest{}, `request: not valid JSON: it ends too early`},
		{`{"queue" "a"}`, &belfryv1.PutRequest{}, `request: not valid JSON`},
		{`{"queue":"a"}{}`, &belfryv1.PutRequest{}, `request: more than one JSON value`},
		{`{"queue":"a",}`, &belfryv1.PutRequest{}, `request: not valid JSON`},
		{"{\"queue\":\"\xff\"}", &belfryv1.PutRequest{}, `request: not valid UTF-8`},
		{`{"text":"a","data":"YQ=="}`, &belfryv1.PutRequest{}, `data: not together with text`},
		{`{"queue":"a","queue":"b"}`, &belfryv1.PutRequest{}, `request: (line 1:14): duplicate field "queue"`},
		{`{"data":"***"}`, &belfryv1.PutRequest{}, `data: want base64, not "***"; plain text goes into "text" as it is`},
		{`{"jobs":[{"data":"close order 42"}]}`, &belfryv1.PutBatchRequest{},
			`jobs[0].data: want base64, not "close order 42"; plain text goes into "text"`},
		{`{"body":"x"}`, &belfryv1.PutRequest{}, `body: unknown field; did you mean "text"?`},
		{`{"payload":"x"}`, &belfryv1.PutRequest{}, `payload: unknown field; did you mean "text"?`},
		{`{"message":"x"}`, &belfryv1.PutRequest{}, `message: unknown field; did you mean "text"?`},
		{`{"jobs":[{"Payload":"x"}]}`, &belfryv1.PutBatchRequest{}, `jobs[0].Payload: unknown field; did you mean "text"?`},
		{`{"message":"x"}`, &belfryv1.GetRequest{}, `message: unknown field; the fields here are queue, id`},
	} {
		err := decodeJSON([]byte(c.text), c.message)
		if err == nil {
			t.Errorf("%s is accepted as %v", c.text, c.message)
			continue
		}
		got := strings.TrimPrefix(err.Error(), "INVALID: ")
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s:\n got %s\nwant %s…", c.text, got, c.want)
		}
		if len(got) > 500 {
			t.Errorf("%s: the message has %d bytes", c.text, len(got))
		}
	}
}

func TestDecodeDoesNotRepeatLongInput(t *testing.T) {
	text := `{"delay":"` + strings.Repeat("x", 1<<16) + `"}`
	if err := decodeJSON([]byte(text), &belfryv1.PutRequest{}); err == nil || len(err.Error()) > 400 {
		t.Errorf("the message has %d bytes", len(err.Error()))
	}
	text = `{"` + strings.Repeat("x", 1<<16) + `":1}`
	if err := decodeJSON([]byte(text), &belfryv1.PutRequest{}); err == nil || len(err.Error()) > 400 {
		t.Errorf("the message has %d bytes", len(err.Error()))
	}
}

func TestEncode(t *testing.T) {
	for _, c := range []struct {
		message proto.Message
		want    string
	}{
		{&belfryv1.ReserveResponse{}, `{"jobs":[],"witnesses":[]}`},
		{&belfryv1.PutResponse{
			Id: "order-42", DueAt: timestamppb.New(timestamppb.Now().AsTime().Truncate(0)), Created: true,
		}, ""},
		{&belfryv1.PutResponse{
			Id: "a\"\\\n\r\t\x01 é😀<>&", DueAt: &timestamppb.Timestamp{Seconds: 1_800_000_000, Nanos: 5_000_000},
			State:   belfryv1.JobState_JOB_STATE_DELAYED,
			Witness: &belfryv1.Witness{Shard: 3, Term: 2, Index: math.MaxUint64, Time: &timestamppb.Timestamp{Nanos: 1}},
		}, `{"id":"a\"\\\n\r\t\u0001 é😀<>&","dueAt":"2027-01-15T08:00:00.005Z","created":false,"state":"DELAYED",` +
			`"witness":{"shard":3,"term":"2","index":"18446744073709551615","entry":0,` +
			`"time":"1970-01-01T00:00:00.000000001Z"},"replaced":false,"version":"0"}`},
		{&belfryv1.NackResponse{State: 99}, `{"state":99}`},
		{&belfryv1.EntryError{
			Reason: belfryv1.Reason_REASON_STALE_LEASE, Shard: proto.Uint32(0), RetryAfter: durationpb.New(1500e6),
		},
			`{"code":"","reason":"STALE_LEASE","message":"","outcome":"UNSPECIFIED","shard":0,"leader":"",` +
				`"retryAfter":"1.500s"}`},
		{&belfryv1.QueueRates{PutsPerSecond: 0.5}, `{"putsPerSecond":0.5,"reservesPerSecond":0,"acksPerSecond":0}`},
	} {
		got, err := JSON().Marshal(c.message)
		if err != nil {
			t.Fatal(err)
		}
		if c.want != "" && string(got) != c.want+"\n" {
			t.Errorf("got  %swant %s", got, c.want)
		}
		if !json.Valid(got) {
			t.Errorf("not JSON: %s", got)
		}
	}
}

func TestEncodeBody(t *testing.T) {
	for body, want := range map[string]string{
		"plain": `"text":"plain"`, "": `"text":""`, "{\"a\":9007199254740993}": `"text":"{\"a\":9007199254740993}"`,
		"\xff\xfe": `"data":"//4="`, "a\x00b": `"text":"a\u0000b"`, "\xed\xa0\x80": `"data":"7aCA"`,
	} {
		got, err := JSON().Marshal(&belfryv1.GetResponse{Job: &belfryv1.Job{Body: &belfryv1.Job_Data{Data: []byte(body)}}})
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%q: %s, %v; want %s in it", body, got, err, want)
		}
	}
}

var quotedPriority = regexp.MustCompile(`"priority": ?"(-?\d+)"`)

// TestEncodeAgreesWithProtojson holds our writer against protojson: equal but for the prefixes of
// enum values and text.
func TestEncodeAgreesWithProtojson(t *testing.T) {
	for _, m := range sampleMessages() {
		ours, err := JSON().Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		text := string(theirs)
		for _, prefix := range []string{"JOB_STATE_", "OVERDUE_MODE_", "EXPIRE_TO_", "REASON_", "OUTCOME_",
			"ON_EXISTING_"} {
			text = strings.ReplaceAll(text, `"`+prefix, `"`)
		}
		// numbers of 64 bits with a sign fit into a float64 here
		text = quotedPriority.ReplaceAllString(text, `"priority":$1`)
		var a, b any
		if err := json.Unmarshal(ours, &a); err != nil {
			t.Fatalf("%s: %v", ours, err)
		}
		if err := json.Unmarshal([]byte(text), &b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(b, a); diff != "" {
			t.Errorf("%T:\n%s", m, diff)
		}
		again := m.ProtoReflect().New().Interface()
		if err := decodeJSON(ours, again); err != nil {
			t.Fatalf("%T does not read back: %v\n%s", m, err, ours)
		}
		if diff := cmp.Diff(m, again, protocmp.Transform()); diff != "" {
			t.Errorf("%T reads back differently:\n%s", m, diff)
		}
	}
}

// sampleMessages has every kind of field of the contract.
func sampleMessages() []proto.Message {
	at := &timestamppb.Timestamp{Seconds: 1_800_000_000, Nanos: 120_000_000}
	job := &belfryv1.Job{
		Queue: "a/b", Id: "1-2", Lease: "x", Fence: 77, Attempt: 1, DueAt: at, LeaseUntil: at,
		Body:    &belfryv1.Job_Data{Data: []byte{0xff}},
		Headers: map[string]string{"b": "2", "a": "1", "": "é"}, State: belfryv1.JobState_JOB_STATE_RESERVED, Priority: -5,
		Ttr:         durationpb.New(1),
		RetryDelays: []*durationpb.Duration{durationpb.New(0), durationpb.New(1e9 + 1e3), durationpb.New(-5e8)},
		Witness:     &belfryv1.Witness{Shard: 1, Time: &timestamppb.Timestamp{Seconds: -5, Nanos: 1000}},
	}
	return []proto.Message{
		&belfryv1.Job{}, job, &belfryv1.ReserveResponse{Jobs: []*belfryv1.Job{job, {}}},
		&belfryv1.PutRequest{
			Body: &belfryv1.PutRequest_Text{Text: ""}, Priority: proto.Int64(0), When: &belfryv1.PutRequest_DueAt{DueAt: at},
		},
		&belfryv1.PutRequest{
			Key: "é", OnExisting: belfryv1.OnExisting_ON_EXISTING_NEXT, MaxWait: durationpb.New(1e9), IfVersion: math.MaxUint64,
		},
		&belfryv1.PutResponse{Replaced: true, Version: 3},
		&belfryv1.Job{Key: "k", Version: 2, Next: &belfryv1.Successor{Version: 3, DueAt: at}},
		&belfryv1.QueueSettings{}, &belfryv1.QueueSettings{
			MaxAttempts: proto.Uint32(0), DedupForever: proto.Bool(false), MaxBytes: proto.Uint64(math.MaxUint64),
			ExpireTo: belfryv1.ExpireTo_EXPIRE_TO_DEAD.Enum(),
			Overdue:  &belfryv1.OverduePolicy{Mode: belfryv1.OverdueMode_OVERDUE_MODE_SPREAD},
		},
		&belfryv1.QueueRates{PutsPerSecond: 1e21, AcksPerSecond: 1.25},
		&belfryv1.PutBatchResponse{Results: []*belfryv1.PutBatchResult{
			{Result: &belfryv1.PutBatchResult_Put{Put: &belfryv1.PutResponse{}}},
			{Result: &belfryv1.PutBatchResult_Error{Error: &belfryv1.EntryError{Outcome: belfryv1.Outcome_OUTCOME_UNKNOWN}}},
		}},
	}
}

// withPrefix returns the JSON of a put as protojson reads it: our enum values lack their prefix.
func withPrefix(t *testing.T, out []byte, m *belfryv1.PutRequest) []byte {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(out, &fields); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	if want := `"` + strings.TrimPrefix(m.GetOnExisting().String(), "ON_EXISTING_") + `"`; m.GetOnExisting() >= 0 &&
		m.GetOnExisting() <= belfryv1.OnExisting_ON_EXISTING_NEXT && string(fields["onExisting"]) != want {
		t.Errorf("onExisting is %s, want %s", fields["onExisting"], want)
	}
	fields["onExisting"] = json.RawMessage(strconv.Itoa(int(m.GetOnExisting())))
	all, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func FuzzDecodeJSON(f *testing.F) {
	f.Add(`{"queue":"orders","id":"order-42","delay":"30m","ttr":60,"text":"5m",` +
		`"headers":{"a":"b"},"retryDelays":["0s",1]}`)
	f.Add(`{"dealy":1}`)
	f.Add(`{"data":"aGk=","dueAt":"2026-11-21T09:30:00Z","priority":"-4"}`)
	f.Add(`{"delay":1e3,"ttl":"7d"}`)
	f.Add(`{"key":"k","onExisting":"REPLACE","maxWait":"5m","ifVersion":3}`)
	f.Add(`{"onExisting":"ON_EXISTING_KEEP","ifVersion":"18446744073709551615"}`)
	f.Add(`{"onExisting":7}`)
	f.Add("{\"text\":\"\xff\"}")
	f.Fuzz(func(t *testing.T, text string) {
		m := &belfryv1.PutRequest{}
		if err := decodeJSON([]byte(text), m); err != nil {
			return
		}
		// What was accepted is written and read back as the same message.
		out, err := JSON().Marshal(m)
		if err != nil {
			t.Fatalf("%q is read and cannot be written: %v", text, err)
		}
		again := &belfryv1.PutRequest{}
		if err := protojson.Unmarshal(withPrefix(t, out, m), again); err != nil {
			t.Fatalf("%q is written as %s: %v", text, out, err)
		}
		if !proto.Equal(m, again) {
			t.Fatalf("%q: %v became %v", text, m, again)
		}
		// A strict reader's opinion counts where it has one.
		strict := &belfryv1.PutRequest{}
		if protojson.Unmarshal([]byte(text), strict) == nil && !proto.Equal(strict, m) {
			t.Fatalf("%q: strict %v, ours %v", text, strict, m)
		}
	})
}

// BenchmarkEncodeJobs is the JSON of a reserve of 100 jobs of 100 bytes.
func BenchmarkEncodeJobs(b *testing.B) {
	job := sampleMessages()[1].(*belfryv1.Job)
	job.Body = &belfryv1.Job_Data{Data: bytes.Repeat([]byte("x"), 100)}
	res := &belfryv1.ReserveResponse{}
	for range 100 {
		res.Jobs = append(res.Jobs, job)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := JSON().Marshal(res); err != nil {
			b.Fatal(err)
		}
	}
}
