package form

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// shown are settings as the server answers them.
func shown() *belfryv1.QueueSettings {
	return &belfryv1.QueueSettings{
		Ttr: durationpb.New(30 * time.Second), MaxAttempts: proto.Uint32(16), RetryDelaysDefault: proto.Bool(true),
		DedupWindow: durationpb.New(10 * time.Minute), DedupForever: proto.Bool(false), MaxInFlight: proto.Uint32(0),
		MaxJobs: proto.Uint32(0), MaxBytes: proto.Uint64(0), PutsPerSecond: proto.Uint32(0),
		Overdue: &belfryv1.OverduePolicy{
			Mode: belfryv1.OverdueMode_OVERDUE_MODE_SPREAD, Period: durationpb.New(time.Hour),
			OverdueAfter: durationpb.New(time.Minute),
		},
		ExpireTo: belfryv1.ExpireTo_EXPIRE_TO_GONE.Enum(),
		KeyRate:  &belfryv1.KeyRate{Count: 10, Per: durationpb.New(time.Minute), Burst: 20},
	}
}

// typed is the form of settings after a person changed some inputs, which are names and texts in turn.
func typed(s *belfryv1.QueueSettings, pairs ...string) Values {
	all := url.Values{}
	for _, setting := range Settings() {
		all.Set(setting.Name, setting.Text(s))
		all.Set(Before(setting.Name), setting.Text(s))
	}
	for i := 0; i < len(pairs); i += 2 {
		all.Set(pairs[i], pairs[i+1])
	}
	return all.Get
}

// TestSettingsHaveEveryField: a field that QueueSettings gets has an input, or is the pause.
func TestSettingsHaveEveryField(t *testing.T) {
	has := map[string]bool{"paused": true, "pausedUntil": true, "retryDelaysDefault": true}
	for _, s := range Settings() {
		name, _, _ := strings.Cut(s.Name, ".")
		has[name] = true
	}
	fields := (&belfryv1.QueueSettings{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if !has[fields.Get(i).JSONName()] {
			t.Errorf("no input for %s", fields.Get(i).JSONName())
		}
	}
}

// TestReadSettings: what was changed is sent, and nothing else.
func TestReadSettings(t *testing.T) {
	for _, tt := range []struct{ change, want string }{
		{"", ""},
		{"ttr=1m30s", `{"ttr":"90s"}`},
		{"ttr=7d", `{"ttr":"604800s"}`},
		{"maxAttempts=0", `{"maxAttempts":0}`},
		{"maxBytes=18446744073709551615", `{"maxBytes":"18446744073709551615"}`},
		{"retryDelays=1s, 2m", `{"retryDelays":["1s","120s"]}`},
		{"retryDelays=0s", `{"retryDelays":["0s"]}`},
		{"dedupForever=yes", `{"dedupForever":true}`},
		{"dedupWindow=0s&maxInFlight=5&maxJobs=6&putsPerSecond=7",
			`{"dedupWindow":"0s","maxInFlight":5,"maxJobs":6,"putsPerSecond":7}`},
		{"expireTo=dead", `{"expireTo":"EXPIRE_TO_DEAD"}`},
		{"overdue.mode=drop", `{"overdue":{"mode":"OVERDUE_MODE_DROP","overdueAfter":"60s"}}`},
		{"overdue.mode=fire&overdue.period=2h", `{"overdue":{"mode":"OVERDUE_MODE_FIRE","period":"7200s","overdueAfter":"60s"}}`},
		{"keyRate.count=5/1s", `{"keyRate":{"count":5,"per":"1s","burst":20}}`},
		{"keyRate.burst=30", `{"keyRate":{"count":10,"per":"60s","burst":30}}`},
		{"keyRate.count=0", `{"keyRate":{}}`},
		{"keyConcurrency=3&keyOrdered=yes&keyFair=yes&holdOnDead=yes&noKeys=yes",
			`{"keyConcurrency":3,"keyOrdered":true,"keyFair":true,"holdOnDead":true,"noKeys":true}`},
		{"overdue.overdueAfter=5m", `{"overdue":{"mode":"OVERDUE_MODE_SPREAD","period":"3600s","overdueAfter":"300s"}}`},
	} {
		change, err := url.ParseQuery(tt.change)
		if err != nil {
			t.Fatal(err)
		}
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(change)) {
			pairs = append(pairs, name, change.Get(name))
		}
		got, err := ReadSettings(typed(shown(), pairs...))
		if err != nil {
			t.Errorf("%s: %v", tt.change, err)
			continue
		}
		if tt.want == "" {
			if got != nil {
				t.Errorf("%s: %v, want nothing", tt.change, got)
			}
			continue
		}
		want := &belfryv1.QueueSettings{}
		if err := protojson.Unmarshal([]byte(tt.want), want); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, want) {
			t.Errorf("%s: %v, want %v", tt.change, got, want)
		}
	}
	own := shown()
	own.RetryDelaysDefault, own.RetryDelays = nil, []*durationpb.Duration{durationpb.New(time.Second)}
	if got, err := ReadSettings(typed(own, "retryDelays", "default")); err != nil || !got.GetRetryDelaysDefault() {
		t.Errorf("back to the default: %v, %v", got, err)
	}
}

// TestErrorsNameTheField: what cannot be sent is refused with the name of its input.
func TestErrorsNameTheField(t *testing.T) {
	settings := func(in Values) error {
		_, err := ReadSettings(in)
		return err
	}
	put := func(in Values) error {
		_, err := ReadPut(in, time.UTC)
		return err
	}
	namespace := func(in Values) error {
		_, err := ReadNamespace(in)
		return err
	}
	token := func(in Values) error {
		_, err := ReadToken(in)
		return err
	}
	for _, tt := range []struct {
		read              func(Values) error
		field, text, says string
	}{
		{settings, "ttr", "soon", "is no duration"}, {settings, "ttr", "", "a value is required"},
		{settings, "maxAttempts", "-1", "no whole number from 0 to 4294967295"},
		{settings, "maxJobs", "4294967296", "4294967295"}, {settings, "maxBytes", "1 GiB", "18446744073709551615"},
		{settings, "retryDelays", "1s,,2s", "is no duration"}, {settings, "overdue.period", "x", "is no duration"},
		{settings, "keyRate.count", "10", "COUNT/PERIOD"}, {settings, "keyRate.burst", "x", "no whole number"},
		{put, "due", "noon", "neither a duration"}, {put, "priority", "4294967296", "from -128 to 4294967295"},
		{put, "ttr", "x", "is no duration"}, {put, "ttl", "x", "is no duration"},
		{put, "maxAttempts", "many", "no whole number"}, {put, "retryDelays", "x", "is no duration"},
		{put, "headers", "no colon", "NAME: VALUE"}, {put, "headers", ": x", "NAME: VALUE"},
		{put, "headers", "a: 1\r\na: 2", "twice"},
		{namespace, "maxJobs", "x", "no whole number"}, {namespace, "putsPerSecond", "1000000001", "1000000000"},
		{token, "scopes", " ", "1 to 32"}, {token, "ttl", "x", "is no duration"},
	} {
		in := url.Values{"scopes": {"put:a"}, tt.field: {tt.text}, Before(tt.field): {"1"}}
		err := tt.read(in.Get)
		problem, ok := errors.AsType[*Error](err)
		if !ok || problem.Field != tt.field || !strings.Contains(problem.Text, tt.says) {
			t.Errorf("%s %q: %v, want %s", tt.field, tt.text, err, tt.says)
		}
	}
}

// TestReadPut: a put has what was typed, and its body has the line ends that were typed.
func TestReadPut(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadPut(url.Values{
		"queue": {"q"}, "id": {" a "}, "due": {"2026-07-01 12:00"}, "priority": {"-5"}, "ttr": {"1m"}, "ttl": {"2h"},
		"maxAttempts": {"3"}, "retryDelays": {"1s, 1m"}, "headers": {"a: b: c\r\n\r\n d :e"}, "body": {"{\r\n}"},
		"requestId": {"r"},
	}.Get, berlin)
	if err != nil {
		t.Fatal(err)
	}
	want := &belfryv1.PutRequest{}
	if err := protojson.Unmarshal([]byte(`{"queue":"q","id":"a","dueAt":"2026-07-01T10:00:00Z","priority":-5,"ttr":"60s",
		"ttl":"7200s","maxAttempts":3,"retryDelays":["1s","60s"],"headers":{"a":"b: c","d":"e"},"text":"{\n}",
		"requestId":"r"}`), want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	got, err = ReadPut(url.Values{"due": {"90"}}.Get, berlin)
	if err != nil || got.GetDelay().AsDuration() != 90*time.Second {
		t.Errorf("a delay: %v, %v", got, err)
	}
}
