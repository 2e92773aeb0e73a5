package rpc

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The states and acts of the tests below.
const (
	delayed    = belfryv1.JobState_JOB_STATE_DELAYED
	ready      = belfryv1.JobState_JOB_STATE_READY
	reserved   = belfryv1.JobState_JOB_STATE_RESERVED
	dead       = belfryv1.JobState_JOB_STATE_DEAD
	count      = belfryv1.TaskAct_TASK_ACT_COUNT
	redrive    = belfryv1.TaskAct_TASK_ACT_REDRIVE
	cancel     = belfryv1.TaskAct_TASK_ACT_CANCEL
	reschedule = belfryv1.TaskAct_TASK_ACT_RESCHEDULE
)

// TestTaskCalls: a task is recorded as it was asked for, shown, and asked to end.
func TestTaskCalls(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	putMany(t, q, "q", 1)
	due := time.Now().Add(time.Hour).Truncate(time.Second)
	req := &belfryv1.StartTaskRequest{
		Queue: "q", State: delayed, DueAfter: timestamppb.New(due), DueBefore: timestamppb.New(due.Add(time.Minute)),
		IdPrefix: "order-", Text: "4711", Cause: "smtp #", Act: reschedule,
		When: &belfryv1.StartTaskRequest_DueAt{DueAt: timestamppb.New(due.Add(time.Hour))}, Max: 5, PerSecond: 6,
		RequestId: "r-1",
	}
	res, err := a.StartTask(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	got := res.Task
	if got.Queue != "q" || got.State != delayed || !got.DueAfter.AsTime().Equal(due) || got.IdPrefix != "order-" ||
		!got.DueBefore.AsTime().Equal(due.Add(time.Minute)) || got.Text != "4711" || got.Cause != "smtp #" ||
		got.Act != reschedule || !got.DueAt.AsTime().Equal(due.Add(time.Hour)) || got.Max != 5 || got.PerSecond != 6 ||
		got.StartedAt == nil || got.EndedAt != nil || got.Stopping {
		t.Errorf("the task is %v", got)
	}
	if res, err := a.GetTask(t.Context(), &belfryv1.GetTaskRequest{Id: got.Id}); err != nil || res.Task.Id != got.Id {
		t.Errorf("%v, %v", res, err)
	}
	if _, err := a.StartTask(t.Context(), &belfryv1.StartTaskRequest{Queue: "q", State: dead, Act: redrive}); err != nil {
		t.Fatal(err)
	}
	for queue, want := range map[string]int{"": 2, "q": 2, "other": 0} {
		res, err := a.ListTasks(t.Context(), &belfryv1.ListTasksRequest{Queue: queue})
		if err != nil || len(res.Tasks) != want || want > 0 && res.Tasks[1].Id != got.Id {
			t.Errorf("of %q: %v, %v", queue, res, err)
		}
	}
	for range 2 {
		if res, err := a.StopTask(t.Context(), &belfryv1.StopTaskRequest{Id: got.Id}); err != nil || !res.Task.Stopping {
			t.Errorf("%v, %v", res, err)
		}
	}
}

// TestTaskRefusals: what a task cannot be, with the field.
func TestTaskRefusals(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	putMany(t, q, "q", 1)
	now := &belfryv1.StartTaskRequest_Delay{Delay: durationpb.New(0)}
	for name, tc := range map[string]struct {
		req   *belfryv1.StartTaskRequest
		field string
	}{
		"no state":              {&belfryv1.StartTaskRequest{Act: count}, "state"},
		"no act":                {&belfryv1.StartTaskRequest{State: dead}, "act"},
		"a name of no queue":    {&belfryv1.StartTaskRequest{Queue: "a b", State: dead, Act: count}, "queue"},
		"redrive delayed":       {&belfryv1.StartTaskRequest{State: delayed, Act: redrive}, "state"},
		"cancel reserved":       {&belfryv1.StartTaskRequest{State: reserved, Act: cancel}, "state"},
		"redrive by force":      {&belfryv1.StartTaskRequest{State: dead, Act: redrive, Force: true}, "force"},
		"reschedule to nothing": {&belfryv1.StartTaskRequest{State: delayed, Act: reschedule}, "delay"},
		"reschedule ready":      {&belfryv1.StartTaskRequest{State: ready, Act: reschedule, When: now}, "state"},
		"count with a delay":    {&belfryv1.StartTaskRequest{State: delayed, Act: count, When: now}, "delay"},
		"too fast":              {&belfryv1.StartTaskRequest{State: dead, Act: redrive, PerSecond: 1_000_001}, "perSecond"},
	} {
		if tc.req.Queue == "" {
			tc.req.Queue = "q"
		}
		_, err := a.StartTask(t.Context(), tc.req)
		t.Run(name, func(t *testing.T) { checkRefusal(t, err, belfryv1.Reason_REASON_INVALID, tc.field) })
	}
	_, err := a.StartTask(t.Context(), &belfryv1.StartTaskRequest{Queue: "q", State: dead, Act: count,
		Text: strings.Repeat("t", 257)})
	checkRefusal(t, err, belfryv1.Reason_REASON_TOO_LARGE, "text")
	_, err = a.StartTask(t.Context(), &belfryv1.StartTaskRequest{Queue: "none", State: dead, Act: count})
	if err == nil || !strings.Contains(err.Error(), "queue") {
		t.Errorf("of no queue: %v", err)
	}
	_, err = a.StartTask(t.Context(), &belfryv1.StartTaskRequest{Queue: "q", State: dead, Act: count,
		RequestId: strings.Repeat("r", 65)})
	checkRefusal(t, err, belfryv1.Reason_REASON_TOO_LARGE, "requestId")
	_, err = a.GetTask(t.Context(), &belfryv1.GetTaskRequest{Id: "none"})
	checkRefusal(t, err, belfryv1.Reason_REASON_INVALID, "id")
	_, err = a.StopTask(t.Context(), &belfryv1.StopTaskRequest{Id: "none"})
	checkRefusal(t, err, belfryv1.Reason_REASON_INVALID, "id")
}

// TestTasksOfOthers: a task is shown, and asked to end, only by those who administer its queue. Others
// do not learn that there is one.
func TestTasksOfOthers(t *testing.T) {
	s, store := serveWithTokens(t)
	owner, _ := store.make(t, "put,admin:shop/*")
	other, _ := store.make(t, "put,admin:mail/*")
	s.with(owner, http.MethodPost, "/v1/put", `{"queue":"shop/q"}`)
	started := s.with(owner, http.MethodPost, "/v1/start-task", `{"queue":"shop/q","state":"DEAD","act":"COUNT"}`)
	var res struct{ Task struct{ ID string } }
	if err := json.Unmarshal([]byte(started.body), &res); err != nil || res.Task.ID == "" {
		t.Fatalf("%d %s, %v", started.status, started.body, err)
	}
	for _, call := range []string{"get-task", "stop-task"} {
		body := fmt.Sprintf(`{"id":%q}`, res.Task.ID)
		theirs := s.with(other, http.MethodPost, "/v1/"+call, body)
		none := s.with(other, http.MethodPost, "/v1/"+call, `{"id":"none"}`)
		if theirs.status != none.status || !strings.Contains(theirs.body, "there is no task") {
			t.Errorf("%s of another's: %d %s; of none: %d", call, theirs.status, theirs.body, none.status)
		}
		if own := s.with(owner, http.MethodPost, "/v1/"+call, body); own.status != http.StatusOK {
			t.Errorf("%s of one's own: %d %s", call, own.status, own.body)
		}
	}
	if got := s.with(other, http.MethodPost, "/v1/list-tasks", `{}`); strings.Contains(got.body, res.Task.ID) {
		t.Errorf("another's task is listed: %s", got.body)
	}
	got := s.with(other, http.MethodPost, "/v1/start-task", `{"queue":"shop/q","state":"DEAD","act":"COUNT"}`)
	if got.status != http.StatusForbidden {
		t.Errorf("a task on another's queue: %d %s", got.status, got.body)
	}
}
