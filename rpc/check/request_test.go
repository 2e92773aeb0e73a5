package check

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
)

// noon is the serving node's time in these tests.
func noon() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// newRequest returns a request with the default limits at noon.
func newRequest() *Request {
	limits := DefaultLimits()
	return &Request{Limits: &limits, Now: noon()}
}

func TestQueueNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "orders": true, "ns/orders": true, "A.b_c:d-e9": true, "...": true, ".a": true, "-": true, "a/b": true,
		strings.Repeat("q", 256): true, strings.Repeat("q", 127) + "/" + strings.Repeat("q", 128): true,
		"": false, "/": false, "a/": false, "/a": false, "a//b": false, "a/b/c": false, ".": false, "..": false,
		"a/..": false, "./a": false,
		"a b": false, "a\n": false, "é": false, "a\x00": false, "a%2Fb": false, "a\\b": false, "a@b": false, "a+b": false,
		"*":                      false,
		strings.Repeat("q", 257): false,
	} {
		c := newRequest()
		c.Queue("queue", name)
		if (c.Err == nil) != ok {
			t.Errorf("%q: %v", name, c.Err)
		}
		if c.Err != nil && (c.Err.Field != "queue" || !strings.HasPrefix(c.Err.Message, "queue: ")) {
			t.Errorf("%q: %v does not name the field", name, c.Err)
		}
	}
}

func TestIDs(t *testing.T) {
	for id, ok := range map[string]bool{
		"": true, "order-42": true, "42": true, "a-1": true, "1-a": true, "-1": true, "1-": true, "1-2-3": true, "é😀": true,
		"a b\n":                  true,
		strings.Repeat("i", 256): true, "٣-٣": true,
		"0-1": false, "17-4711": false, "00-00": false, strings.Repeat("9", 100) + "-1": false,
		strings.Repeat("i", 257): false, "\xff": false,
	} {
		c := newRequest()
		if c.newID("id", id); (c.Err == nil) != ok {
			t.Errorf("%q: %v", id, c.Err)
		}
	}
	c := newRequest()
	if c.JobID("id", "0-1"); c.Err != nil {
		t.Errorf("a generated id names a job: %v", c.Err)
	}
	if c.JobID("id", ""); c.Err == nil {
		t.Error("no id names a job")
	}
}

// TestBoundsAreInclusive tries each bound and the value beyond it.
func TestBoundsAreInclusive(t *testing.T) {
	span := func(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
	for _, c := range []struct {
		name     string
		in, out  *belfryv1.PutRequest
		reserved bool
	}{
		{"delay, least", &belfryv1.PutRequest{When: &belfryv1.PutRequest_Delay{Delay: span(0)}},
			&belfryv1.PutRequest{When: &belfryv1.PutRequest_Delay{Delay: span(-1)}}, false},
		{"delay, most", &belfryv1.PutRequest{When: &belfryv1.PutRequest_Delay{Delay: span(100 * wire.Year)}},
			&belfryv1.PutRequest{When: &belfryv1.PutRequest_Delay{Delay: span(100*wire.Year + 1)}}, false},
		{"dueAt, most", &belfryv1.PutRequest{When: &belfryv1.PutRequest_DueAt{DueAt: timestamppb.New(
			noon().Add(100 * wire.Year))}},
			&belfryv1.PutRequest{When: &belfryv1.PutRequest_DueAt{DueAt: timestamppb.New(noon().Add(100*wire.Year + 1))}},
			false},
		{"ttr, least", &belfryv1.PutRequest{Ttr: span(time.Millisecond)},
			&belfryv1.PutRequest{Ttr: span(time.Millisecond - 1)}, false},
		{"ttr, most", &belfryv1.PutRequest{Ttr: span(24 * time.Hour)}, &belfryv1.PutRequest{Ttr: span(24*time.Hour + 1)},
			false},
		{"ttl, least", &belfryv1.PutRequest{Ttl: span(time.Millisecond)}, &belfryv1.PutRequest{Ttl: span(0)}, false},
		{"priority, least", &belfryv1.PutRequest{Priority: ptr[int64](-128)},
			&belfryv1.PutRequest{Priority: ptr[int64](-129)}, false},
		{"priority, most", &belfryv1.PutRequest{Priority: ptr[int64](1<<32 - 1)},
			&belfryv1.PutRequest{Priority: ptr[int64](1 << 32)},
			false},
		{"maxAttempts, most", &belfryv1.PutRequest{MaxAttempts: ptr[uint32](1_000_000)},
			&belfryv1.PutRequest{MaxAttempts: ptr[uint32](1_000_001)}, false},
		{"text, most", &belfryv1.PutRequest{Body: &belfryv1.PutRequest_Text{Text: strings.Repeat("x", 1<<20)}},
			&belfryv1.PutRequest{Body: &belfryv1.PutRequest_Text{Text: strings.Repeat("x", 1<<20+1)}}, false},
		{"headers, most", &belfryv1.PutRequest{Headers: map[string]string{"h": strings.Repeat("x", 16<<10-1)}},
			&belfryv1.PutRequest{Headers: map[string]string{"h": strings.Repeat("x", 16<<10)}}, false},
	} {
		for _, try := range []struct {
			req *belfryv1.PutRequest
			ok  bool
		}{{c.in, true}, {c.out, false}} {
			check := newRequest()
			try.req.Queue = "a"
			if check.Put(try.req, &fsm.Put{}); (check.Err == nil) != try.ok {
				t.Errorf("%s, ok %v: %v", c.name, try.ok, check.Err)
			}
		}
	}
}

// ptr returns a pointer to a value.
func ptr[T any](v T) *T { return &v }

// TestPutConversion converts a put with every option, and one with none.
func TestPutConversion(t *testing.T) {
	c := newRequest()
	got := &fsm.Put{}
	size := c.Put(&belfryv1.PutRequest{
		Queue: "ns/q", Id: "order-42", When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(1500*time.Millisecond + 1)},
		Ttr:      durationpb.New(time.Minute),
		Priority: ptr[int64](-3), Body: &belfryv1.PutRequest_Text{Text: "body"}, Headers: map[string]string{
			"z": "26", "a": "1", "m": "",
		},
		MaxAttempts: ptr[uint32](0), RetryDelays: []*durationpb.Duration{durationpb.New(0), durationpb.New(time.Hour)},
		Ttl: durationpb.New(24 * time.Hour), Again: true,
	}, got)
	want := &fsm.Put{
		Queue: "ns/q", ID: "order-42", Again: true, Delay: 1501 * time.Millisecond, TTR: time.Minute, TTL: 24 * time.Hour,
		Priority: -3,
		Given: fsm.GivenDelay | fsm.GivenTTR | fsm.GivenPriority | fsm.GivenMaxAttempts |
			fsm.GivenRetryDelays | fsm.GivenTTL,
		RetryDelays: []time.Duration{0, time.Hour}, Body: []byte("body"), Headers: []fsm.Header{
			{Name: "a", Value: "1"},
			{Name: "m"},
			{Name: "z", Value: "26"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" || c.Err != nil || size != 4+8+6 {
		t.Errorf("%v, %d bytes\n%s", c.Err, size, diff)
	}
	c = newRequest()
	got = &fsm.Put{}
	if c.Put(&belfryv1.PutRequest{Queue: "q"}, got); got.Given != 0 || c.Err != nil || got.RetryDelays != nil ||
		got.Headers != nil {
		t.Errorf("what is omitted does not stay omitted: %+v", got)
	}
}

func TestTimesOnTheWire(t *testing.T) {
	at := func(text string) *timestamppb.Timestamp {
		parsed, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		return timestamppb.New(parsed)
	}
	for in, want := range map[string]string{
		"2026-11-21T12:00:00Z": "2026-11-21T12:00:00Z", "2026-11-21T12:00:00.0000001Z": "2026-11-21T12:00:00.001Z",
		"2026-11-21T12:00:00.001Z": "2026-11-21T12:00:00.001Z", "2026-11-21T12:00:00.9999Z": "2026-11-21T12:00:01Z",
		"1969-01-01T00:00:00Z": "1970-01-01T00:00:00.001Z", "0001-01-01T00:00:00Z": "1970-01-01T00:00:00.001Z",
		"1970-01-01T00:00:00Z": "1970-01-01T00:00:00.001Z",
	} {
		c := newRequest()
		_, due, given := c.When(nil, at(in), 0)
		if c.Err != nil || given != fsm.GivenDueAt || !wire.CeilTime(due).AsTime().Equal(at(want).AsTime()) {
			t.Errorf("%s became %v, %v; want %s", in, wire.CeilTime(due).AsTime(), c.Err, want)
		}
	}
	exact := fsm.Time(1_800_000_000_123_456_789)
	if got := wire.CeilTime(exact).AsTime().UnixNano(); got != 1_800_000_000_124_000_000 {
		t.Errorf("a due time: %d", got)
	}
	if got := wire.FloorTime(exact).AsTime().UnixNano(); got != 1_800_000_000_123_000_000 {
		t.Errorf("the end of a lease: %d", got)
	}
	if got := wire.ExactTime(exact).AsTime().UnixNano(); got != int64(exact) {
		t.Errorf("a witness: %d", got)
	}
	if wire.CeilTime(0) != nil || wire.FloorTime(0) != nil || wire.ExactTime(0) != nil {
		t.Error("no time is a time")
	}
}

// TestLongDurations: one that is too long for a time.Duration is named as it was written.
func TestLongDurations(t *testing.T) {
	for seconds, want := range map[int64]string{
		315_576_000_000:  "ttr: 315576000000s is out of range: 1ms to 24h",
		-315_576_000_000: "ttr: -315576000000s is out of range: 1ms to 24h",
		86_401:           "ttr: 24h0m1s is out of range: 1ms to 24h",
	} {
		c := newRequest()
		if c.TTR("ttr", &durationpb.Duration{Seconds: seconds}); c.Err == nil || c.Err.Message != want {
			t.Errorf("%d s: %v, want %s", seconds, c.Err, want)
		}
	}
}
