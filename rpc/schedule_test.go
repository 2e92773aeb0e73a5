package rpc

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// serveSchedules starts a server whose node knows schedules, and returns a client of them.
func serveSchedules(t *testing.T) (*served, belfryv1connect.ScheduleServiceClient) {
	t.Helper()
	s := serve(t, func(cfg *Config) { cfg.Node.(*backendtest.Node).Format = fsm.LatestFormat })
	return s, belfryv1connect.NewScheduleServiceClient(http.DefaultClient, s.url)
}

// nightly returns the request for a report of each night in Berlin.
func nightly() *belfryv1.PutScheduleRequest {
	return &belfryv1.PutScheduleRequest{
		Queue: "reports", Name: "nightly", Spec: &belfryv1.ScheduleSpec{
			Rule: &belfryv1.ScheduleSpec_Cron{Cron: "30 2 * * *"}, TimeZone: "Europe/Berlin",
		},
		Job: &belfryv1.PutRequest{
			Body: &belfryv1.PutRequest_Text{Text: "all"}, Headers: map[string]string{"kind": "report"},
		},
	}
}

// TestPutSchedule: a schedule is created, replaced by other content only, and found again.
func TestPutSchedule(t *testing.T) {
	s, c := serveSchedules(t)
	put := func(req *belfryv1.PutScheduleRequest, created, replaced bool, version uint64) {
		t.Helper()
		got, err := c.PutSchedule(t.Context(), req)
		if err != nil || got.GetCreated() != created || got.GetReplaced() != replaced || got.GetVersion() != version {
			t.Fatalf("%v, %v", got, err)
		}
		if len(got.GetTimes()) != 10 || !got.GetTimes()[0].GetNominal().AsTime().Equal(got.GetNext().AsTime()) ||
			!strings.Contains(got.GetTimes()[0].GetLocal(), "T02:30:00+0") || got.GetZoneData() == "" {
			t.Errorf("the next times: %v", got)
		}
	}
	put(nightly(), true, false, 1)
	put(nightly(), false, false, 1)
	changed := nightly()
	changed.Policy, changed.IfVersion = &belfryv1.SchedulePolicy{CatchUp: belfryv1.CatchUp_CATCH_UP_ALL}, 1
	changed.RequestId = "change"
	put(changed, false, true, 2)
	put(changed, false, true, 2) // the shard remembers it
	changed.RequestId = ""
	put(changed, false, false, 2) // the schedule says that it was carried out
	changed.Policy = nil
	if _, err := c.PutSchedule(t.Context(), changed); reasonOf(t, err) != belfryv1.Reason_REASON_VERSION_CHANGED {
		t.Errorf("another content for version 1: %v", err)
	}
	got, err := c.GetSchedule(t.Context(), &belfryv1.GetScheduleRequest{Queue: "reports", Name: "nightly"})
	held := got.GetSchedule()
	if err != nil || held.GetJob().GetText() != "all" || held.GetJob().GetHeaders()["kind"] != "report" ||
		held.GetSpec().GetTimeZone() != "Europe/Berlin" || held.GetPolicy().GetCatchUp() != belfryv1.CatchUp_CATCH_UP_ALL ||
		held.GetPolicy().GetWindow().AsDuration() != 24*time.Hour || held.GetNext() == nil || held.GetVersion() != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := c.GetSchedule(t.Context(), &belfryv1.GetScheduleRequest{
		Queue: "reports", Name: "none",
	}); reasonOf(t, err) != belfryv1.Reason_REASON_SCHEDULE_NOT_FOUND {
		t.Errorf("a schedule that is not there: %v", err)
	}
	if _, err := c.GetSchedule(t.Context(), &belfryv1.GetScheduleRequest{
		Queue: "none", Name: "nightly",
	}); reasonOf(t, err) != belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
		t.Errorf("a schedule of a queue that is not there: %v", err)
	}
	if log := s.log.String(); !strings.Contains(log, "/belfry.v1.ScheduleService/PutSchedule") ||
		!strings.Contains(log, "30 2 * * *") || strings.Contains(log, "kind") {
		t.Errorf("the audit log lacks the call, or has what its jobs say:\n%s", log)
	}
}

// TestPutScheduleAgain: a repeat with its request id gets the first answer and changes nothing, also if it
// finds another first firing, and somebody else has changed or deleted the schedule since.
func TestPutScheduleAgain(t *testing.T) {
	_, c := serveSchedules(t)
	first := nightly()
	first.RequestId, first.Spec.Rule = "first", &belfryv1.ScheduleSpec_Every{Every: durationpb.New(time.Second)}
	put := func(req *belfryv1.PutScheduleRequest, created bool, version uint64) {
		t.Helper()
		got, err := c.PutSchedule(t.Context(), req)
		if err != nil || got.GetCreated() != created || got.GetVersion() != version {
			t.Fatalf("%v, %v; want version %d", got, err, version)
		}
	}
	put(first, true, 1)
	put(nightly(), false, 2)
	again := func() {
		t.Helper()
		put(first, true, 1)
		first.Spec.Start = timestamppb.New(time.Now().Add(time.Hour)) // another content
		if _, err := c.PutSchedule(t.Context(), first); reasonOf(t, err) != belfryv1.Reason_REASON_INVALID {
			t.Errorf("another content under the request id: %v", err)
		}
		first.Spec.Start = nil
	}
	again()
	got, err := c.GetSchedule(t.Context(), &belfryv1.GetScheduleRequest{Queue: "reports", Name: "nightly"})
	if err != nil || got.GetSchedule().GetVersion() != 2 || got.GetSchedule().GetSpec().GetCron() == "" {
		t.Errorf("after the repeat: %v, %v", got, err)
	}
	if _, err := c.DeleteSchedule(t.Context(), &belfryv1.DeleteScheduleRequest{
		Queue: "reports", Name: "nightly",
	}); err != nil {
		t.Fatal(err)
	}
	again()
}

// TestScheduleMadeAgain: a schedule that was deleted and made again is not taken for the one that a caller
// has read, also by a put of the content that it has.
func TestScheduleMadeAgain(t *testing.T) {
	_, c := serveSchedules(t)
	put := func(text string, ifVersion uint64) (uint64, error) {
		req := nightly()
		req.Job.Body, req.IfVersion = &belfryv1.PutRequest_Text{Text: text}, ifVersion
		got, err := c.PutSchedule(t.Context(), req)
		return got.GetVersion(), err
	}
	var read []uint64
	for _, text := range []string{"first", "second"} {
		version, err := put(text, 0)
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, version)
	}
	remove := &belfryv1.DeleteScheduleRequest{Queue: "reports", Name: "nightly"}
	if _, err := c.DeleteSchedule(t.Context(), remove); err != nil {
		t.Fatal(err)
	}
	version, err := put("third", 0)
	if err != nil || version <= read[1] {
		t.Fatalf("the new schedule has version %d after %v: %v", version, read, err)
	}
	for _, old := range read {
		for _, text := range []string{"third", "fourth"} {
			if _, err := put(text, old); reasonOf(t, err) != belfryv1.Reason_REASON_VERSION_CHANGED {
				t.Errorf("a put of %s for version %d: %v", text, old, err)
			}
		}
		remove.IfVersion = old
		if _, err := c.DeleteSchedule(t.Context(), remove); reasonOf(t, err) != belfryv1.Reason_REASON_VERSION_CHANGED {
			t.Errorf("a delete of version %d: %v", old, err)
		}
	}
	if again, err := put("fourth", version); err != nil || again != version+1 {
		t.Errorf("version %d, %v", again, err)
	}
}

// TestScheduleProblems: what is wrong is refused by its field, and all problems are named at once.
func TestScheduleProblems(t *testing.T) {
	s, c := serveSchedules(t)
	for name, tc := range map[string]struct {
		change func(*belfryv1.PutScheduleRequest)
		want   []string
	}{
		"no name":       {func(r *belfryv1.PutScheduleRequest) { r.Name = "" }, []string{"name: "}},
		"a long name":   {func(r *belfryv1.PutScheduleRequest) { r.Name = strings.Repeat("a", 129) }, []string{"name: "}},
		"an odd name":   {func(r *belfryv1.PutScheduleRequest) { r.Name = "a@b" }, []string{"name: only letters"}},
		"a dotted name": {func(r *belfryv1.PutScheduleRequest) { r.Name = "a/../b" }, []string{"name: a part"}},
		"no spec":       {func(r *belfryv1.PutScheduleRequest) { r.Spec = nil }, []string{"spec: required"}},
		"no rule":       {func(r *belfryv1.PutScheduleRequest) { r.Spec.Rule = nil }, []string{"spec.cron: "}},
		"much at once": {func(r *belfryv1.PutScheduleRequest) {
			r.Spec = &belfryv1.ScheduleSpec{
				Rule: &belfryv1.ScheduleSpec_Cron{Cron: "61 2 * * *"}, TimeZone: "Europe/Berlyn", Exclude: []string{"x"},
			}
			r.Policy = &belfryv1.SchedulePolicy{Window: durationpb.New(time.Millisecond)}
			r.Job.Ttr = durationpb.New(-time.Second)
		}, []string{"spec.cron: ", "spec.timeZone: ", "spec.exclude[0]: ", "policy.window: ", "job.ttr: "}},
		"an unknown dst": {func(r *belfryv1.PutScheduleRequest) { r.Spec.Dst = 9 }, []string{"spec.dst: "}},
		"a fast rate": {func(r *belfryv1.PutScheduleRequest) {
			r.Spec.Rule = &belfryv1.ScheduleSpec_Every{Every: durationpb.New(time.Millisecond)}
		}, []string{"spec.every: "}},
		"an id":        {func(r *belfryv1.PutScheduleRequest) { r.Job.Id = "x" }, []string{"job.id: "}},
		"a queue":      {func(r *belfryv1.PutScheduleRequest) { r.Job.Queue = "x" }, []string{"job.queue: "}},
		"a request id": {func(r *belfryv1.PutScheduleRequest) { r.Job.RequestId = "x" }, []string{"job.requestId: "}},
		"a delay": {func(r *belfryv1.PutScheduleRequest) {
			r.Job.When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Second)}
		}, []string{"job.delay: "}},
		"a header of its own": {func(r *belfryv1.PutScheduleRequest) {
			r.Job.Headers["belfry-nominal"] = "x"
		}, []string{"job.headers: ", "belfry-nominal"}},
	} {
		req := nightly()
		tc.change(req)
		_, err := c.PutSchedule(t.Context(), req)
		if err == nil {
			t.Errorf("%s is taken", name)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
		if _, found := c.PreviewSchedule(t.Context(), previewOf(req)); found == nil || found.Error() != err.Error() {
			t.Errorf("%s: a preview finds %v, a put %v", name, found, err)
		}
	}
	got := s.send(http.MethodPost, "/v1/put", `{"queue":"q","id":"cron:a@b"}`, "Content-Type", "application/json")
	if got.status != http.StatusBadRequest || !strings.Contains(got.body, "cron:") {
		t.Errorf("an id of a schedule's job: %d %s", got.status, got.body)
	}
	q, _ := s.bothClients()
	batch, err := q.PutBatch(t.Context(), &belfryv1.PutBatchRequest{
		Jobs: []*belfryv1.PutRequest{{Queue: "q", Id: "cron:a@b"}},
	})
	if err != nil || batch.GetResults()[0].GetError() == nil {
		t.Errorf("in a batch: %v, %v", batch, err)
	}
}

// TestRunSchedule: a trigger and a backfill put jobs, and none twice.
func TestRunSchedule(t *testing.T) {
	s, c := serveSchedules(t)
	if _, err := c.PutSchedule(t.Context(), nightly()); err != nil {
		t.Fatal(err)
	}
	at := timestamppb.New(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	for _, created := range []bool{true, false} {
		got, err := c.TriggerSchedule(t.Context(), &belfryv1.TriggerScheduleRequest{
			Queue: "reports", Name: "nightly", At: at,
		})
		if err != nil || got.GetCreated() != created || got.GetId() != "cron:nightly@2026-03-01T12:00:00Z" {
			t.Errorf("trigger: %v, %v", got, err)
		}
	}
	for _, bad := range []*belfryv1.TriggerScheduleRequest{
		{Queue: "reports", Name: "nightly", RequestId: "x"},
		{Queue: "reports", Name: "nightly", At: timestamppb.New(time.Now().Add(time.Hour))},
		{Queue: "reports", Name: "nightly", At: timestamppb.New(time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC))},
	} {
		if _, err := c.TriggerSchedule(t.Context(), bad); reasonOf(t, err) != belfryv1.Reason_REASON_INVALID {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := c.BackfillSchedule(t.Context(), &belfryv1.BackfillScheduleRequest{
		Queue: "reports", Name: "nightly", From: &timestamppb.Timestamp{Seconds: -1}, To: at,
	}); err == nil || !strings.Contains(err.Error(), "from: 1969-12-31T23:59:59Z is out of range: after 1970") {
		t.Errorf("a backfill from 1969: %v", err)
	}
	backfill := &belfryv1.BackfillScheduleRequest{
		Queue: "reports", Name: "nightly", From: timestamppb.New(time.Date(2025, 3, 28, 0, 0, 0, 0, time.UTC)),
		To: timestamppb.New(time.Date(2025, 4, 1, 0, 0, 0, 0, time.UTC)), Max: 3, RequestId: "fill",
	}
	for range 2 { // the second is remembered
		got, err := c.BackfillSchedule(t.Context(), backfill)
		if err != nil || got.GetPut() != 3 || got.GetExisting() != 0 || got.GetQueueFull() ||
			!got.GetRest().AsTime().Equal(time.Date(2025, 3, 31, 0, 30, 0, 0, time.UTC)) {
			t.Errorf("backfill: %v, %v", got, err)
		}
	}
	backfill.RequestId, backfill.Max = "", 0
	got, err := c.BackfillSchedule(t.Context(), backfill)
	if err != nil || got.GetPut() != 1 || got.GetExisting() != 3 || got.GetRest() != nil {
		t.Errorf("the rest: %v, %v", got, err)
	}
	q, _ := s.bothClients()
	nominal := map[string]bool{}
	for len(nominal) < 5 { // they are due at the next millisecond
		jobs, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{
			Queues: []string{"reports"}, MaxJobs: 10, Wait: durationpb.New(30 * time.Second),
		})
		if err != nil || len(jobs.GetJobs()) == 0 {
			t.Fatalf("%v, %v", jobs, err)
		}
		for _, job := range jobs.GetJobs() {
			nominal[job.GetHeaders()["belfry-nominal"]] = job.GetHeaders()["belfry-schedule"] == "nightly"
		}
	}
	// On 2025-03-30 the clock of Berlin goes from 02:00 to 03:00.
	for _, want := range []string{"2025-03-29T01:30:00Z", "2025-03-30T01:00:00Z", "2025-03-31T00:30:00Z"} {
		if !nominal[want] {
			t.Errorf("no job of %s: %v", want, nominal)
		}
	}
}

// expectSchedules lists the schedules of the queue reports by pages of two and compares their names, with
// the note of each that is paused.
func expectSchedules(t *testing.T, c belfryv1connect.ScheduleServiceClient, prefix, want string) {
	t.Helper()
	var names []string
	for token, more := "", true; more; more = token != "" {
		page, err := c.ListSchedules(t.Context(), &belfryv1.ListSchedulesRequest{
			Queue: "reports", Prefix: prefix, PageSize: 2, PageToken: token,
		})
		if err != nil || len(page.GetSchedules()) > 2 {
			t.Fatalf("%v, %v", page, err)
		}
		for _, v := range page.GetSchedules() {
			if v.GetJob().GetBody() != nil || len(v.GetJob().GetHeaders()) > 0 || v.GetJob().GetKey() != "" {
				t.Errorf("the list shows what the jobs say: %v", v)
			}
			text := v.GetName()
			if v.GetPaused() {
				text += " paused: " + v.GetNote()
			}
			names = append(names, text)
		}
		token = page.GetNextPageToken()
	}
	if text := strings.Join(names, ", "); text != want {
		t.Errorf("the schedules of %q: %s, want %s", prefix, text, want)
	}
}

// TestManySchedules: the schedules of a queue with several partitions are listed by name, paused by
// name, by prefix and all, and deleted.
func TestManySchedules(t *testing.T) {
	s, c := serveSchedules(t)
	_, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "reports", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b/3", "a/2", "b/1", "a/1", "b/2"} {
		req := nightly()
		req.Name = name
		if _, err := c.PutSchedule(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	keyed := nightly()
	keyed.Job.Key = "customer"
	if _, err := c.PutSchedule(t.Context(), keyed); err == nil || !strings.Contains(err.Error(), "job.key: ") {
		t.Errorf("a key in a queue with partitions: %v", err)
	}
	expectSchedules(t, c, "", "a/1, a/2, b/1, b/2, b/3")
	expectSchedules(t, c, "b/", "b/1, b/2, b/3")
	paused, err := c.PauseSchedules(t.Context(), &belfryv1.PauseSchedulesRequest{
		Queue: "reports", Prefix: "b/", Note: "why",
	})
	if err != nil || paused.GetChanged() != 3 || len(paused.GetMissing()) > 0 {
		t.Errorf("%v, %v", paused, err)
	}
	resumed, err := c.ResumeSchedules(t.Context(), &belfryv1.ResumeSchedulesRequest{
		Queue: "reports", Names: []string{"none", "b/1", "c/2", "b/2", "a/1", "none", "b"},
	})
	if err != nil || resumed.GetChanged() != 2 || !slices.Equal(resumed.GetMissing(), []string{"none", "c/2", "b"}) {
		t.Errorf("%v, %v", resumed, err)
	}
	if _, err := c.PauseSchedules(t.Context(), &belfryv1.PauseSchedulesRequest{
		Queue: "none", Names: []string{"b/1"},
	}); reasonOf(t, err) != belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
		t.Errorf("a queue that is not there: %v", err)
	}
	expectSchedules(t, c, "", "a/1, a/2, b/1, b/2, b/3 paused: why")
	all := &belfryv1.PauseSchedulesRequest{Queue: "reports", All: true, RequestId: "all"}
	for range 2 { // the second is remembered
		if paused, err := c.PauseSchedules(t.Context(), all); err != nil || paused.GetChanged() != 4 {
			t.Errorf("%v, %v", paused, err)
		}
	}
	for _, bad := range []*belfryv1.PauseSchedulesRequest{
		{Queue: "reports"}, {Queue: "reports", All: true, Prefix: "b"}, {Queue: "reports", Names: []string{""}},
		{Queue: "reports", All: true, Note: strings.Repeat("x", 257)},
	} {
		if _, err := c.PauseSchedules(t.Context(), bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
	if _, err := c.DeleteSchedule(t.Context(), &belfryv1.DeleteScheduleRequest{
		Queue: "reports", Name: "b/2", IfVersion: 2,
	}); reasonOf(t, err) != belfryv1.Reason_REASON_VERSION_CHANGED {
		t.Errorf("another version: %v", err)
	}
	if _, err := c.DeleteSchedule(t.Context(), &belfryv1.DeleteScheduleRequest{
		Queue: "reports", Name: "b/2",
	}); err != nil {
		t.Error(err)
	}
	expectSchedules(t, c, "b/", "b/1 paused: , b/3 paused: why")
}

// TestNextLocal: the time of the next firing is also that of a clock in its zone, by the node's own data.
func TestNextLocal(t *testing.T) {
	_, c := serveSchedules(t)
	put, err := c.PutSchedule(t.Context(), nightly())
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.ListSchedules(t.Context(), &belfryv1.ListSchedulesRequest{Queue: "reports"})
	if err != nil || len(list.GetSchedules()) != 1 ||
		list.GetSchedules()[0].GetNextLocal() != put.GetTimes()[0].GetLocal() {
		t.Errorf("%v, %v, want %v", list, err, put.GetTimes()[0])
	}
}

// TestScheduleKey: the key of a schedule's jobs is content of theirs: the list of a queue has none.
func TestScheduleKey(t *testing.T) {
	_, c := serveSchedules(t)
	req := nightly()
	req.Job.Key = "customer-1"
	if _, err := c.PutSchedule(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	expectSchedules(t, c, "", "nightly")
	got, err := c.GetSchedule(t.Context(), &belfryv1.GetScheduleRequest{Queue: "reports", Name: "nightly"})
	if err != nil || got.GetSchedule().GetJob().GetKey() != "customer-1" {
		t.Errorf("%v, %v", got, err)
	}
}

// TestPreviewSchedule: a preview knows the change of the clock, and what a rule may mean.
func TestPreviewSchedule(t *testing.T) {
	_, c := serveSchedules(t)
	got, err := c.PreviewSchedule(t.Context(), &belfryv1.PreviewScheduleRequest{
		Spec: nightly().GetSpec(), After: timestamppb.New(time.Date(2027, 3, 27, 12, 0, 0, 0, time.UTC)), Count: 2,
	})
	if err != nil || len(got.GetTimes()) != 2 || got.GetTimes()[0].GetLocal() != "2027-03-28T03:00:00+02:00 CEST" ||
		got.GetTimes()[1].GetLocal() != "2027-03-29T02:30:00+02:00 CEST" || got.GetRule() != "30 2 * * *" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := c.PreviewSchedule(t.Context(), &belfryv1.PreviewScheduleRequest{
		Spec: nightly().GetSpec(), Count: 101,
	}); err == nil || !strings.Contains(err.Error(), "count: ") {
		t.Errorf("101 times: %v", err)
	}
	if _, err := c.PreviewSchedule(t.Context(), &belfryv1.PreviewScheduleRequest{
		Spec: nightly().GetSpec(), After: &timestamppb.Timestamp{},
	}); err == nil || !strings.Contains(err.Error(), "after: 1970-01-01T00:00:00Z is out of range: ") {
		t.Errorf("after the beginning of 1970: %v", err)
	}
}

// previewOf returns a preview that is checked as a put.
func previewOf(req *belfryv1.PutScheduleRequest) *belfryv1.PreviewScheduleRequest {
	return &belfryv1.PreviewScheduleRequest{
		Queue: req.GetQueue(), Name: req.GetName(), Spec: req.GetSpec(), Policy: req.GetPolicy(), Job: req.GetJob(),
	}
}

// TestPreviewChecks: a preview checks a policy and a job, of a queue also whether it can have the key, and
// writes nothing.
func TestPreviewChecks(t *testing.T) {
	s, c := serveSchedules(t)
	_, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	good := nightly()
	good.Job.Key, good.Policy = "customer", &belfryv1.SchedulePolicy{Overlap: belfryv1.Overlap_OVERLAP_SKIP}
	if got, err := c.PreviewSchedule(t.Context(), previewOf(good)); err != nil || len(got.GetTimes()) != 10 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := c.GetSchedule(t.Context(), &belfryv1.GetScheduleRequest{
		Queue: "reports", Name: "nightly",
	}); reasonOf(t, err) != belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
		t.Errorf("the preview left %v, %v", got, err)
	}
	for name, tc := range map[string]struct {
		change func(*belfryv1.PreviewScheduleRequest)
		reason belfryv1.Reason
		want   string
	}{
		"a key in partitions": {func(r *belfryv1.PreviewScheduleRequest) { r.Queue = "wide" },
			belfryv1.Reason_REASON_INVALID, "job.key: the queue has 3 partitions"},
		"a bad queue": {func(r *belfryv1.PreviewScheduleRequest) { r.Queue = "a b" },
			belfryv1.Reason_REASON_INVALID, "queue: only letters"},
		"a long key, without a queue": {func(r *belfryv1.PreviewScheduleRequest) {
			r.Queue, r.Name, r.Job.Key = "", "", strings.Repeat("k", 129)
		}, belfryv1.Reason_REASON_TOO_LARGE, "job.key: 129 bytes"},
		"a policy, without a queue": {func(r *belfryv1.PreviewScheduleRequest) { r.Queue, r.Policy.Overlap = "", 9 },
			belfryv1.Reason_REASON_INVALID, "policy.overlap: want one of"},
	} {
		req := proto.CloneOf(previewOf(good))
		tc.change(req)
		_, err := c.PreviewSchedule(t.Context(), req)
		if reasonOf(t, err) != tc.reason || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestPreviewOfAQueueTakesAdmin: a preview that names a queue takes what PutSchedule takes, one without a
// queue any token.
func TestPreviewOfAQueueTakesAdmin(t *testing.T) {
	s, store := serveWithTokens(t)
	weak, _ := store.make(t, "put,consume,view:q", "admin:r")
	admin, _ := store.make(t, "admin:q")
	for _, tc := range []struct {
		token, queue string
		forbidden    bool
	}{{weak, "q", true}, {weak, "", false}, {admin, "q", false}, {admin, "", false}, {admin, "r", true}} {
		got := s.with(tc.token, http.MethodPost, "/v1/preview-schedule",
			`{"queue":"`+tc.queue+`","name":"n","spec":{"every":"1h"},"job":{"text":"x"}}`)
		if forbidden := got.status == http.StatusForbidden; forbidden != tc.forbidden {
			t.Errorf("queue %q: %d %s, forbidden should be %v", tc.queue, got.status, got.body, tc.forbidden)
		}
	}
}

// TestSchedulesNeedFormatFour: before, every method says in plain words that it does not work yet.
func TestSchedulesNeedFormatFour(t *testing.T) {
	s := serve(t)
	for _, m := range methodsOfContract() {
		if !strings.Contains(m.procedure, "ScheduleService") {
			continue
		}
		got := s.send(http.MethodPost, m.short, `{}`, "Content-Type", "application/json")
		if got.status != http.StatusNotImplemented || !strings.Contains(got.body, "not all nodes run a version") {
			t.Errorf("%s: %d %s", m.short, got.status, got.body)
		}
	}
}

// TestBackfillOfLargeJobs: a backfill goes on where a step of 4 MiB ended, and counts each job once.
func TestBackfillOfLargeJobs(t *testing.T) {
	_, c := serveSchedules(t)
	large := nightly()
	large.Job.Body = &belfryv1.PutRequest_Text{Text: strings.Repeat("x", 1_000_000)}
	if _, err := c.PutSchedule(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	for _, put := range []uint32{10, 0} {
		got, err := c.BackfillSchedule(t.Context(), &belfryv1.BackfillScheduleRequest{
			Queue: "reports", Name: "nightly", From: timestamppb.New(time.Date(2025, 3, 1, 0, 0, 0, 0, time.UTC)),
			To: timestamppb.New(time.Date(2025, 3, 11, 0, 0, 0, 0, time.UTC)),
		})
		if err != nil || got.GetPut() != put || got.GetExisting() != 10-put || got.GetQueueFull() || got.GetRest() != nil {
			t.Errorf("%v, %v", got, err)
		}
	}
}

// TestPauseOfLargeSchedules: a pause goes on until all are paused, and a repeat is answered alike.
func TestPauseOfLargeSchedules(t *testing.T) {
	_, c := serveSchedules(t)
	large := nightly()
	large.Job.Body = &belfryv1.PutRequest_Text{Text: strings.Repeat("x", 1_000_000)}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		large.Name = name
		if _, err := c.PutSchedule(t.Context(), large); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		got, err := c.PauseSchedules(t.Context(), &belfryv1.PauseSchedulesRequest{
			Queue: "reports", All: true, RequestId: "pause",
		})
		if err != nil || got.GetChanged() != 7 {
			t.Errorf("%v, %v", got, err)
		}
	}
	expectSchedules(t, c, "", "a paused: , b paused: , c paused: , d paused: , e paused: , f paused: , g paused: ")
}
