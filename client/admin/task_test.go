package admin

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/client/internal/failure"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// StartTask implements the service; a task does nothing.
func (s *server) StartTask(_ context.Context, req *belfryv1.StartTaskRequest) (*belfryv1.StartTaskResponse, error) {
	return answer(s, req, &belfryv1.StartTaskResponse{Task: &belfryv1.Task{
		Id: "t1", Queue: req.GetQueue(), Act: req.GetAct(),
	}})
}

// GetTask implements the service: each look finds one more job done, and the third the end.
func (s *server) GetTask(_ context.Context, req *belfryv1.GetTaskRequest) (*belfryv1.GetTaskResponse, error) {
	if err := s.refused(req); err != nil {
		return nil, err
	}
	task := &belfryv1.Task{Id: req.GetId(), Changed: s.looks}
	if s.looks++; s.looks > 2 {
		task.EndedAt = timestamppb.Now()
	}
	return &belfryv1.GetTaskResponse{Task: task}, nil
}

// ListTasks implements the service.
func (s *server) ListTasks(_ context.Context, req *belfryv1.ListTasksRequest) (*belfryv1.ListTasksResponse, error) {
	return answer(s, req, &belfryv1.ListTasksResponse{
		Tasks: []*belfryv1.Task{{Id: "t2", Queue: req.GetQueue()}, {Id: "t1"}},
	})
}

// StopTask implements the service.
func (s *server) StopTask(_ context.Context, req *belfryv1.StopTaskRequest) (*belfryv1.StopTaskResponse, error) {
	return answer(s, req, &belfryv1.StopTaskResponse{Task: &belfryv1.Task{Id: req.GetId(), Stopping: true}})
}

func TestStartTaskAsksForWhatItIsTold(t *testing.T) {
	at := time.Date(2030, 1, 31, 9, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name string
		task TaskRequest
		want *belfryv1.StartTaskRequest
	}{
		{"redrive", TaskRequest{
			Act: "REDRIVE", Queue: "q", Max: 7, PerSecond: 5,
			Jobs: Selection{State: "DEAD", DueAfter: at, DueBefore: at.Add(1), Text: "t", IDPrefix: "i", Cause: "c"},
		}, &belfryv1.StartTaskRequest{
			Queue: "q", Act: belfryv1.TaskAct_TASK_ACT_REDRIVE, State: belfryv1.JobState_JOB_STATE_DEAD, Max: 7, PerSecond: 5,
			DueAfter: timestamppb.New(at), DueBefore: timestamppb.New(at.Add(1)), Text: "t", IdPrefix: "i", Cause: "c",
		}},
		{"reschedule to a time", TaskRequest{Act: "RESCHEDULE", DueAt: at}, &belfryv1.StartTaskRequest{
			Act: belfryv1.TaskAct_TASK_ACT_RESCHEDULE, State: belfryv1.JobState_JOB_STATE_DELAYED,
			When: &belfryv1.StartTaskRequest_DueAt{DueAt: timestamppb.New(at)},
		}},
		{"reschedule to now", TaskRequest{Act: "RESCHEDULE"}, &belfryv1.StartTaskRequest{
			Act: belfryv1.TaskAct_TASK_ACT_RESCHEDULE, State: belfryv1.JobState_JOB_STATE_DELAYED,
			When: &belfryv1.StartTaskRequest_Delay{Delay: &durationpb.Duration{}},
		}},
		{"cancel by force", TaskRequest{Act: "CANCEL", Jobs: Selection{State: "RESERVED"}, Force: true},
			&belfryv1.StartTaskRequest{
				Act: belfryv1.TaskAct_TASK_ACT_CANCEL, State: belfryv1.JobState_JOB_STATE_RESERVED, Force: true,
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := &server{}
			task, err := fake.client().StartTask(t.Context(), tt.task)
			if err != nil || task.ID != "t1" || task.Act != tt.task.Act {
				t.Errorf("%+v, %v", task, err)
			}
			if len(fake.requests) != 1 {
				t.Fatalf("%d requests", len(fake.requests))
			}
			got, _ := fake.requests[0].(*belfryv1.StartTaskRequest)
			if got.GetRequestId() == "" {
				t.Error("a repeat would begin a second task")
			}
			if diff := cmp.Diff(tt.want, got, protocmp.Transform(),
				protocmp.IgnoreFields(tt.want, "request_id")); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStartTaskRefusesWhatMakesNoSense(t *testing.T) {
	admin := (&server{}).client()
	for _, r := range []TaskRequest{
		{}, {Act: "REMOVE"}, {Act: "COUNT", Jobs: Selection{State: "DAED"}}, {Act: "COUNT", Max: -1},
		{Act: "COUNT", PerSecond: -1}, {Act: "COUNT", PerSecond: 1e6 + 1},
	} {
		if _, err := admin.StartTask(t.Context(), r); !isInvalid(err) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestTasksAreReadAndStopped(t *testing.T) {
	admin := (&server{}).client()
	if tasks, err := admin.Tasks(t.Context(), "q"); err != nil || len(tasks) != 2 || tasks[0].ID != "t2" ||
		tasks[0].Queue != "q" {
		t.Errorf("%+v, %v", tasks, err)
	}
	if task, err := admin.Task(t.Context(), "t1"); err != nil || task.ID != "t1" {
		t.Errorf("%+v, %v", task, err)
	}
	if task, err := admin.StopTask(t.Context(), "t1"); err != nil || !task.Stopping {
		t.Errorf("%+v, %v", task, err)
	}
}

// TestWaitTask waits for the end, also past a node that has not heard of the task yet. A task that no
// node knows is an error.
func TestWaitTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		fake := &server{refuse: func() error {
			if looks++; looks < 3 {
				return failure.Invalidf("there is no such task")
			}
			return nil
		}}
		admin := fake.client()
		if task, err := admin.WaitTask(t.Context(), "t1"); err != nil || task.EndedAt.IsZero() || task.Changed != 2 {
			t.Errorf("%+v, %v", task, err)
		}
		fake.refuse = func() error { return failure.Invalidf("there is no such task") }
		if _, err := admin.WaitTask(t.Context(), "t1"); !isInvalid(err) {
			t.Errorf("a task that is not: %v", err)
		}
		fake.refuse = func() error { return &failure.Error{Reason: failure.QueueNotFound} }
		start := time.Now()
		if _, err := admin.WaitTask(t.Context(), "t1"); err == nil || isInvalid(err) || time.Since(start) > 0 {
			t.Errorf("another refusal ends the wait: %v after %v", err, time.Since(start))
		}
		fake.refuse = func() error { return nil }
		fake.looks = 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := admin.WaitTask(ctx, "t1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait that ended: %v", err)
		}
	})
}
