package schedule

import (
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/cron"
	"github.com/belfrydb/belfry/cron/calendar"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
)

// newRequest returns a request with the default limits.
func newRequest() *check.Request {
	limits := check.DefaultLimits()
	return &check.Request{Limits: &limits, Now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
}

// newService returns a service that can check specs.
func newService(t *testing.T) *Service {
	t.Helper()
	zones, err := cron.BuiltInZones()
	if err != nil {
		t.Fatal(err)
	}
	return &Service{calendars: calendar.New(zones)}
}

// expectFault compares the field and the message of a request's fault; "" for none.
func expectFault(t *testing.T, what string, c *check.Request, field, message string) {
	t.Helper()
	switch {
	case c.Err == nil && message != "":
		t.Errorf("%s is taken, want %q", what, message)
	case c.Err != nil && (message == "" || c.Err.Field != field || !strings.HasPrefix(c.Err.Message, field+": ") ||
		!strings.Contains(c.Err.Message, message)):
		t.Errorf("%s: %q of %q, want %q of %q", what, c.Err.Message, c.Err.Field, message, field)
	}
}

// TestNames: a name has segments of the bytes that queues' names have, with slashes between them.
func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"a": "", "nightly": "", "a/b/c/d": "", "A.b_c:d-e9/...": "", strings.Repeat("n", 128): "",
		"": "required: 1 to 128 bytes", strings.Repeat("n", 129): "129 bytes; the limit is 128",
		"/": "a part", "a/": "a part", "/a": "a part", "a//b": "a part", ".": "a part", "a/../b": "a part",
		"a b": "only letters", "a@b": "only letters", "é": "only letters", "\xff": "only letters", "a\x00": "only letters",
		"a,b": "only letters", "a%2Fb": "only letters",
	} {
		c := newRequest()
		checkName(c, "name", name)
		expectFault(t, "the name "+name, c, "name", want)
	}
}

// TestTimesAreExact: the times of a rule are kept as they are, or refused with their range.
func TestTimesAreExact(t *testing.T) {
	s := newService(t)
	const wanted = " is out of range: after 1970-01-01T00:00:00Z and before 2200-01-01T00:00:00Z"
	for text, want := range map[string]string{
		"2026-11-21T12:00:00.123456789Z": "", "1970-01-01T00:00:00.000000001Z": "", "2199-12-31T23:59:59.999Z": "",
		"1970-01-01T00:00:00Z": wanted, "1960-01-01T00:00:00Z": wanted, "0001-01-01T00:00:00Z": wanted,
		"2200-01-01T00:00:00Z": wanted, "2500-01-01T00:00:00Z": wanted, "9999-12-31T23:59:59Z": wanted,
	} {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		if want != "" {
			want = text + want
		}
		in := &belfryv1.ScheduleSpec{Rule: &belfryv1.ScheduleSpec_Cron{Cron: "@daily"}, Start: timestamppb.New(at)}
		c := newRequest()
		spec, _ := s.spec(c, in)
		expectFault(t, "the start "+text, c, "spec.start", want)
		if c.Err == nil && int64(spec.Start) != at.UnixNano() {
			t.Errorf("%s became %d", text, spec.Start)
		}
		in.Start, in.End = nil, timestamppb.New(at)
		c = newRequest()
		spec, _ = s.spec(c, in)
		expectFault(t, "the end "+text, c, "spec.end", want)
		if c.Err == nil && int64(spec.End) != at.UnixNano() {
			t.Errorf("%s became %d", text, spec.End)
		}
	}
	c := newRequest()
	exactTime(c, "at", &timestamppb.Timestamp{Nanos: -1})
	expectFault(t, "half a time", c, "at", "not a valid time; the range is after 1970")
	if c = newRequest(); exactTime(c, "at", nil) != 0 || c.Err != nil {
		t.Errorf("no time: %v", c.Err)
	}
}

// TestDurations: a duration that is too long for any is named as it was written, with the limit of its
// field; package cron names the others.
func TestDurations(t *testing.T) {
	s := newService(t)
	const forever = 315_576_000_000
	every := func(d *durationpb.Duration) *belfryv1.ScheduleSpec {
		return &belfryv1.ScheduleSpec{Rule: &belfryv1.ScheduleSpec_Every{Every: d}}
	}
	minutely := func(phase, jitter *durationpb.Duration) *belfryv1.ScheduleSpec {
		spec := every(durationpb.New(time.Minute))
		spec.Phase, spec.Jitter = phase, jitter
		return spec
	}
	for _, tc := range []struct {
		spec        *belfryv1.ScheduleSpec
		field, want string
	}{
		{every(durationpb.New(time.Second)), "", ""},
		{every(durationpb.New(everyMax)), "", ""},
		{minutely(durationpb.New(time.Minute-time.Millisecond), durationpb.New(24*time.Hour)), "", ""},
		{every(&durationpb.Duration{Seconds: forever}), "spec.every", "315576000000s is out of range: 1s to 292y (2559672h)"},
		{every(&durationpb.Duration{Seconds: -forever}), "spec.every", "-315576000000s is out of range: 1s to 292y"},
		{every(&durationpb.Duration{Seconds: math.MaxInt64}), "spec.every", "not a valid duration; the range is 1s to 292y"},
		{every(durationpb.New(time.Second - time.Millisecond)), "spec.every", "999ms is less than 1s"},
		{every(durationpb.New(0)), "spec.every", "0s is out of range: 1s to 292y"},
		{minutely(&durationpb.Duration{Seconds: forever}, nil), "spec.phase", "315576000000s is out of range: 0s to 292y"},
		{minutely(durationpb.New(time.Minute), nil), "spec.phase", "1m0s is not less than every"},
		{minutely(nil, &durationpb.Duration{Seconds: forever}), "spec.jitter", "315576000000s is out of range: 0s to 24h"},
		{minutely(nil, durationpb.New(24*time.Hour+time.Millisecond)), "spec.jitter", "24h"},
	} {
		c := newRequest()
		s.spec(c, tc.spec)
		expectFault(t, tc.spec.String(), c, tc.field, tc.want)
	}
}

// TestPolicies: each field of a policy has a range.
func TestPolicies(t *testing.T) {
	for _, tc := range []struct {
		in          *belfryv1.SchedulePolicy
		field, want string
	}{
		{nil, "", ""},
		{&belfryv1.SchedulePolicy{Window: durationpb.New(windowMin)}, "", ""},
		{&belfryv1.SchedulePolicy{Window: durationpb.New(windowMax)}, "", ""},
		{&belfryv1.SchedulePolicy{Window: durationpb.New(windowMin - 1)}, "policy.window", "is out of range: 1s to 1y"},
		{&belfryv1.SchedulePolicy{Window: durationpb.New(windowMax + 1)}, "policy.window", "is out of range: 1s to 1y"},
		{&belfryv1.SchedulePolicy{CatchUp: 9}, "policy.catchUp", "LATEST, ALL, NONE"},
		{&belfryv1.SchedulePolicy{Overlap: 9}, "policy.overlap", "ALLOW, SKIP, ONE_WAITING"},
	} {
		c := newRequest()
		policy(c, tc.in)
		expectFault(t, tc.in.String(), c, tc.field, tc.want)
	}
}

// TestJobs: the jobs of a schedule have the fields of a put, but for those that the schedule decides.
func TestJobs(t *testing.T) {
	for _, tc := range []struct {
		in          *belfryv1.PutRequest
		field, want string
	}{
		{nil, "", ""},
		{&belfryv1.PutRequest{
			Ttr: durationpb.New(time.Minute), Priority: new(int64(-3)), Body: &belfryv1.PutRequest_Data{Data: []byte{0xff}},
			Headers: map[string]string{"a": "b"}, MaxAttempts: new(uint32(3)), Ttl: durationpb.New(time.Hour), Key: "k",
			RetryDelays: []*durationpb.Duration{durationpb.New(time.Second)},
		}, "", ""},
		{&belfryv1.PutRequest{Queue: "q"}, "job.queue", "none of their own"},
		{&belfryv1.PutRequest{Id: "x"}, "job.id", "none of their own"},
		{&belfryv1.PutRequest{Again: true}, "job.again", "none of their own"},
		{&belfryv1.PutRequest{IfVersion: 1}, "job.ifVersion", "none of their own"},
		{&belfryv1.PutRequest{When: &belfryv1.PutRequest_Delay{}}, "job.delay", "none of their own"},
		{&belfryv1.PutRequest{Headers: map[string]string{fsm.HeaderSchedule: "x"}}, "job.headers", fsm.HeaderSchedule},
		{&belfryv1.PutRequest{Key: strings.Repeat("k", 129)}, "job.key", "129 bytes; the limit is 128"},
		{&belfryv1.PutRequest{Key: "\xff"}, "job.key", "not valid UTF-8"},
		{&belfryv1.PutRequest{Priority: new(int64(1 << 32))}, "job.priority", "out of range: -128 to 4294967295"},
		{&belfryv1.PutRequest{Body: &belfryv1.PutRequest_Text{Text: strings.Repeat("x", 1<<20+1)}}, "job.text",
			"the limit is 1048576"},
	} {
		c := newRequest()
		put := job(c, tc.in)
		expectFault(t, "a job", c, tc.field, tc.want)
		if put.Queue != "" || put.ID != "" {
			t.Errorf("%v: it has a queue or an id: %v", tc.in, put)
		}
	}
}

// TestProblems: a fault names the problems of all parts, by the field of the first.
func TestProblems(t *testing.T) {
	c := newRequest()
	p := problems{request: c}
	p.part(func(c *check.Request) { checkName(c, "name", "a b") })
	p.part(func(*check.Request) {})
	p.part(func(c *check.Request) { policy(c, &belfryv1.SchedulePolicy{CatchUp: 9}) })
	p.fail()
	expectFault(t, "two problems", c, "name", "; policy.catchUp: want one of")
}
