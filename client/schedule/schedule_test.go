package schedule

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/client/internal/failure"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// PutSchedule implements the service.
func (s *server) PutSchedule(_ context.Context,
	req *belfryv1.PutScheduleRequest) (*belfryv1.PutScheduleResponse, error) {
	return answer(s, req, &belfryv1.PutScheduleResponse{
		Created: true, Version: 4, Times: times(), Warnings: []string{"rare"}, ZoneData: "2025c",
	})
}

// GetSchedule implements the service.
func (s *server) GetSchedule(_ context.Context,
	req *belfryv1.GetScheduleRequest) (*belfryv1.GetScheduleResponse, error) {
	return answer(s, req, &belfryv1.GetScheduleResponse{Schedule: &belfryv1.Schedule{Name: req.GetName(), Version: 7}})
}

// ListSchedules implements the service: three schedules on two pages.
func (s *server) ListSchedules(_ context.Context,
	req *belfryv1.ListSchedulesRequest) (*belfryv1.ListSchedulesResponse, error) {
	if req.GetPageToken() != "" {
		return answer(s, req, &belfryv1.ListSchedulesResponse{Schedules: []*belfryv1.Schedule{{Name: "c"}}})
	}
	return answer(s, req, &belfryv1.ListSchedulesResponse{
		Schedules: []*belfryv1.Schedule{{Name: "a"}, {Name: "b"}}, NextPageToken: "more",
	})
}

// DeleteSchedule implements the service.
func (s *server) DeleteSchedule(_ context.Context,
	req *belfryv1.DeleteScheduleRequest) (*belfryv1.DeleteScheduleResponse, error) {
	return answer(s, req, &belfryv1.DeleteScheduleResponse{Cancelled: 3})
}

// PauseSchedules implements the service: each name is one that changes, but for the first if that is none.
func (s *server) PauseSchedules(_ context.Context,
	req *belfryv1.PauseSchedulesRequest) (*belfryv1.PauseSchedulesResponse, error) {
	res := &belfryv1.PauseSchedulesResponse{Changed: uint32(len(req.GetNames()))}
	if first := req.GetNames()[:1]; strings.HasPrefix(first[0], "none") {
		res.Changed, res.Missing = res.GetChanged()-1, first
	}
	return answer(s, req, res)
}

// ResumeSchedules implements the service.
func (s *server) ResumeSchedules(_ context.Context,
	req *belfryv1.ResumeSchedulesRequest) (*belfryv1.ResumeSchedulesResponse, error) {
	return answer(s, req, &belfryv1.ResumeSchedulesResponse{Changed: 5, Missing: []string{"x"}})
}

// TriggerSchedule implements the service.
func (s *server) TriggerSchedule(_ context.Context,
	req *belfryv1.TriggerScheduleRequest) (*belfryv1.TriggerScheduleResponse, error) {
	return answer(s, req, &belfryv1.TriggerScheduleResponse{Id: "cron:n@x", Created: true})
}

// BackfillSchedule implements the service.
func (s *server) BackfillSchedule(_ context.Context,
	req *belfryv1.BackfillScheduleRequest) (*belfryv1.BackfillScheduleResponse, error) {
	return answer(s, req, &belfryv1.BackfillScheduleResponse{
		Put: 2, Existing: 3, Rest: timestamppb.New(now), QueueFull: true,
	})
}

// PreviewSchedule implements the service.
func (s *server) PreviewSchedule(_ context.Context,
	req *belfryv1.PreviewScheduleRequest) (*belfryv1.PreviewScheduleResponse, error) {
	return answer(s, req, &belfryv1.PreviewScheduleResponse{
		Times: times(), Rule: "0 0 * * *", Warnings: []string{"rare"}, ZoneData: "2025c",
	})
}

// times is one firing on the wire, and time as the SDK has it.
func times() []*belfryv1.ScheduleTime {
	return []*belfryv1.ScheduleTime{{
		Nominal: timestamppb.New(now), DueAt: timestamppb.New(now.Add(time.Second)), Local: "here",
	}}
}

// preview is what becomes of the fake's times.
func preview(rule string) Preview {
	return Preview{
		Times: []Time{{Nominal: now, DueAt: now.Add(time.Second), Local: "here"}}, Rule: rule,
		Warnings: []string{"rare"}, ZoneData: "2025c",
	}
}

// sent checks the requests that a server has had.
func sent(t *testing.T, s *server, want ...proto.Message) {
	t.Helper()
	if diff := cmp.Diff(want, s.requests, protocmp.Transform()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	s.requests = nil
}

// same checks a result without an error.
func same(t *testing.T, got any, err error, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v; result (-want +got):\n%s", err, diff)
	}
}

// TestCalls: each call is one request, changes with an id, and its answer is read in full.
func TestCalls(t *testing.T) {
	fake, ctx := &server{}, t.Context()
	c := fake.client()
	daily := Spec{Cron: "@daily"}
	spec := &belfryv1.ScheduleSpec{Rule: &belfryv1.ScheduleSpec_Cron{Cron: "@daily"}, Dst: belfryv1.DST_DST_ONCE}
	put, err := c.Put(ctx, "q", "n", Definition{Spec: daily, Job: Job{Body: []byte("x")}}, IfVersion(3))
	same(t, put, err, PutResult{Created: true, Version: 4, Preview: preview("")})
	held, err := c.Get(ctx, "q", "n")
	same(t, held.Name, err, "n")
	cancelled, err := c.Delete(ctx, "q", "n", CancelWaiting(), IfVersion(held.Version))
	same(t, cancelled, err, 3)
	paused, err := c.Pause(ctx, "q", Selection{Names: []string{"a", "b"}}, "why")
	same(t, paused, err, PauseResult{Changed: 2})
	resumed, err := c.Resume(ctx, "q", Selection{All: true}, "")
	same(t, resumed, err, PauseResult{Changed: 5, Missing: []string{"x"}})
	trigger, err := c.Trigger(ctx, "q", "n", now)
	same(t, trigger, err, TriggerResult{ID: "cron:n@x", Created: true})
	backfill, err := c.Backfill(ctx, "q", "n", Span{From: now.Add(-time.Hour), To: now, Max: 9})
	same(t, backfill, err, BackfillResult{Put: 2, Existing: 3, Rest: now, QueueFull: true})
	next, err := c.Preview(ctx, PreviewRequest{Spec: daily, Name: "n", After: now, Count: 1})
	same(t, next, err, preview("0 0 * * *"))
	next, err = c.Preview(ctx, PreviewRequest{Spec: daily, Queue: "q", Job: Job{Key: "k"}})
	same(t, next, err, preview("0 0 * * *"))
	sent(t, fake,
		&belfryv1.PutScheduleRequest{
			Queue: "q", Name: "n", Spec: spec, IfVersion: 3, RequestId: "r1", Policy: &belfryv1.SchedulePolicy{
				CatchUp: belfryv1.CatchUp_CATCH_UP_LATEST, Overlap: belfryv1.Overlap_OVERLAP_ALLOW,
			}, Job: &belfryv1.PutRequest{Body: &belfryv1.PutRequest_Data{Data: []byte("x")}},
		},
		&belfryv1.GetScheduleRequest{Queue: "q", Name: "n"},
		&belfryv1.DeleteScheduleRequest{Queue: "q", Name: "n", CancelWaiting: true, IfVersion: 7, RequestId: "r2"},
		&belfryv1.PauseSchedulesRequest{Queue: "q", Names: []string{"a", "b"}, Note: "why", RequestId: "r3"},
		&belfryv1.ResumeSchedulesRequest{Queue: "q", All: true, RequestId: "r4"},
		&belfryv1.TriggerScheduleRequest{Queue: "q", Name: "n", At: timestamppb.New(now), RequestId: "r5"},
		&belfryv1.BackfillScheduleRequest{
			Queue: "q", Name: "n", From: timestamppb.New(now.Add(-time.Hour)), To: timestamppb.New(now), Max: 9, RequestId: "r6",
		},
		&belfryv1.PreviewScheduleRequest{Spec: spec, Name: "n", After: timestamppb.New(now), Count: 1},
		&belfryv1.PreviewScheduleRequest{
			Spec: spec, Queue: "q", Policy: &belfryv1.SchedulePolicy{
				CatchUp: belfryv1.CatchUp_CATCH_UP_LATEST, Overlap: belfryv1.Overlap_OVERLAP_ALLOW,
			}, Job: &belfryv1.PutRequest{Key: "k", Body: &belfryv1.PutRequest_Data{}},
		},
	)
}

// TestListReadsAllPages: each page is asked for with the same selection. The sequence ends where its
// reader or an error ends it.
func TestListReadsAllPages(t *testing.T) {
	fake := &server{}
	read := func(most int) (names string, err error) {
		for s, err := range fake.client().List(t.Context(), "q", "x") {
			if err != nil {
				return names, err
			}
			if names += s.Name; len(names) == most {
				break
			}
		}
		return names, nil
	}
	if names, err := read(9); err != nil || names != "abc" {
		t.Errorf("%q, %v", names, err)
	}
	first := &belfryv1.ListSchedulesRequest{Queue: "q", Prefix: "x", PageSize: 1000}
	second := proto.CloneOf(first)
	second.PageToken = "more"
	sent(t, fake, first, second)
	if names, err := read(2); err != nil || names != "ab" {
		t.Errorf("%q, %v", names, err)
	}
	sent(t, fake, first)
	fake.refuse = func(proto.Message) error { return &failure.Error{Reason: failure.Forbidden} }
	if names, err := read(9); err == nil || names != "" {
		t.Errorf("refused: %q, %v", names, err)
	}
}

// TestManyNames: a request has at most 1,000 names. An error after some were paused has an unknown
// outcome, and the count says how many.
func TestManyNames(t *testing.T) {
	var names []string
	for i := range 2500 {
		names = append(names, fmt.Sprint(i))
	}
	names[0], names[1000] = "none", "none-1000"
	fake := &server{}
	paused, err := fake.client().Pause(t.Context(), "q", Selection{Names: names}, "why")
	same(t, paused, err, PauseResult{Changed: 2498, Missing: []string{"none", "none-1000"}})
	sent(t, fake,
		&belfryv1.PauseSchedulesRequest{Queue: "q", Names: names[:1000], Note: "why", RequestId: "r1"},
		&belfryv1.PauseSchedulesRequest{Queue: "q", Names: names[1000:2000], Note: "why", RequestId: "r2"},
		&belfryv1.PauseSchedulesRequest{Queue: "q", Names: names[2000:], Note: "why", RequestId: "r3"},
	)
	fake.refuse = func(req proto.Message) error {
		if req.(*belfryv1.PauseSchedulesRequest).GetNames()[0] == "2000" {
			return &failure.Error{Reason: failure.NoLeader, Outcome: failure.NotApplied}
		}
		return nil
	}
	paused, err = fake.client().Pause(t.Context(), "q", Selection{Names: names}, "")
	if reason, outcome := failed(err); paused.Changed != 1998 || len(paused.Missing) != 2 ||
		reason != failure.NoLeader || outcome != failure.Unknown {
		t.Errorf("%+v, %s, %s", paused, reason, outcome)
	}
	paused, err = fake.client().Pause(t.Context(), "q", Selection{Names: names[2000:]}, "")
	if reason, outcome := failed(err); paused.Changed != 0 || reason != failure.NoLeader ||
		outcome != failure.NotApplied {
		t.Errorf("%+v, %s, %s", paused, reason, outcome)
	}
}

// TestTriggerKeepsItsTime: without a time, a trigger is for the present of the first attempt, in whole
// milliseconds, also when it is repeated.
func TestTriggerKeepsItsTime(t *testing.T) {
	fake := &server{attempts: []*failure.Error{{Outcome: failure.Unknown}}}
	if _, err := fake.client().Trigger(t.Context(), "q", "n", time.Time{}); err != nil {
		t.Error(err)
	}
	want := &belfryv1.TriggerScheduleRequest{
		Queue: "q", Name: "n", At: timestamppb.New(now.Truncate(time.Millisecond)), RequestId: "r1",
	}
	sent(t, fake, want, want)
}

// TestOpenOutcomes: an attempt whose outcome is unknown stays so after a refusal that does not say what
// became of it.
func TestOpenOutcomes(t *testing.T) {
	put := func(c Client) error {
		_, err := c.Put(t.Context(), "q", "n", Definition{Spec: Spec{Every: time.Hour}})
		return err
	}
	backfill := func(c Client) error {
		_, err := c.Backfill(t.Context(), "q", "n", Span{})
		return err
	}
	remove := func(c Client) error {
		_, err := c.Delete(t.Context(), "q", "n")
		return err
	}
	for _, tt := range []struct {
		name   string
		call   func(Client) error
		first  failure.Outcome
		reason failure.Reason
		want   failure.Outcome
	}{
		{"put, other content under its id", put, failure.Unknown, failure.Invalid, failure.Unknown},
		{"put, invalid after a refusal", put, failure.NotApplied, failure.Invalid, failure.NotApplied},
		{"put, of another version", put, failure.Unknown, failure.VersionChanged, failure.NotApplied},
		{"backfill, deleted since", backfill, failure.Unknown, failure.ScheduleNotFound, failure.Unknown},
		{"backfill, never there", backfill, failure.NotApplied, failure.ScheduleNotFound, failure.NotApplied},
		{"delete, never there", remove, failure.Unknown, failure.ScheduleNotFound, failure.NotApplied},
	} {
		fake := &server{attempts: []*failure.Error{{Outcome: tt.first}}}
		fake.refuse = func(proto.Message) error {
			return &failure.Error{Reason: tt.reason, Outcome: failure.NotApplied}
		}
		if reason, outcome := failed(tt.call(fake.client())); reason != tt.reason || outcome != tt.want {
			t.Errorf("%s: %s, %s, want %s", tt.name, reason, outcome, tt.want)
		}
	}
}

// TestRefusals: what the client itself refuses is not sent.
func TestRefusals(t *testing.T) {
	fake := &server{}
	c := fake.client()
	put := func(d Definition) error {
		_, err := c.Put(t.Context(), "q", "n", d)
		return err
	}
	every := Spec{Every: time.Hour}
	for want, call := range map[string]func() error{
		"Spec: Cron or Every is required": func() error { return put(Definition{}) },
		"Spec: Cron and Every exclude each other": func() error {
			return put(Definition{Spec: Spec{Every: time.Hour, Cron: "@daily"}})
		},
		"MaxAttempts: -1; it is 0 to 4294967295": func() error {
			return put(Definition{Spec: every, Job: Job{MaxAttempts: new(-1)}})
		},
		"Max: -2; it is 0": func() error {
			_, err := c.Backfill(t.Context(), "q", "n", Span{Max: -2})
			return err
		},
		"Count: 4294967296; it is 0": func() error {
			_, err := c.Preview(t.Context(), PreviewRequest{Spec: every, Count: 1 << 32})
			return err
		},
		"required": func() error {
			_, err := c.Preview(t.Context(), PreviewRequest{})
			return err
		},
	} {
		err := call()
		if reason, outcome := failed(err); reason != failure.Invalid || outcome != failure.NotApplied ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if len(fake.requests) > 0 {
		t.Errorf("sent %v", fake.requests)
	}
}

// TestChoices: each choice has the word of the API, the zero value is the default, and a choice of a
// later version keeps its number.
func TestChoices(t *testing.T) {
	for got, want := range map[fmt.Stringer]string{
		DSTOnce: "ONCE", DSTLiteral: "LITERAL", DSTSkip: "SKIP", DST(6): "7", DST(-4): "-4",
		CatchUpLatest: "LATEST", CatchUpAll: "ALL", CatchUpNone: "NONE",
		OverlapAllow: "ALLOW", OverlapSkip: "SKIP", OverlapOneWaiting: "ONE_WAITING",
		Fired: "FIRED", Missed: "MISSED", Skipped: "SKIPPED", Backfilled: "BACKFILLED", FiringResult(9): "9",
	} {
		if got.String() != want {
			t.Errorf("%d is %q, want %q", got, got, want)
		}
	}
	for name, words := range map[string]map[int32]string{
		"DST": belfryv1.DST_name, "CatchUp": belfryv1.CatchUp_name, "Overlap": belfryv1.Overlap_name,
		"FiringResult": belfryv1.FiringResult_name,
	} {
		if n := map[string]int{"FiringResult": 5}[name]; len(words) != max(n, 4) {
			t.Errorf("%s has other choices now: %v", name, words)
		}
	}
	d := Definition{Spec: specOf(&belfryv1.ScheduleSpec{}), Policy: policyOf(nil), Job: jobOf(nil)}
	if diff := cmp.Diff(Definition{}, d); diff != "" {
		t.Errorf("what is not set (-want +got):\n%s", diff)
	}
	if wire := (&Spec{Cron: "@daily", DST: -4}); wire.DST.String() != "-4" {
		t.Errorf("%v", wire)
	}
	spec, err := (&Spec{Every: time.Second, DST: -4}).wire()
	if err != nil || spec.GetDst() != -4 || spec.GetEvery().AsDuration() != time.Second ||
		!proto.Equal(spec.GetPhase(), (*durationpb.Duration)(nil)) {
		t.Errorf("%v, %v", spec, err)
	}
}
