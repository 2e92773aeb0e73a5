package clitest

import (
	"context"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// fakeSchedules is the ScheduleService of a harness.
type fakeSchedules struct {
	belfryv1connect.UnimplementedScheduleServiceHandler

	h *Harness
}

// PutSchedule implements belfryv1connect.ScheduleServiceHandler.
func (f *fakeSchedules) PutSchedule(_ context.Context,
	r *belfryv1.PutScheduleRequest) (*belfryv1.PutScheduleResponse, error) {
	return handle[*belfryv1.PutScheduleResponse](f.h, r)
}

// GetSchedule implements belfryv1connect.ScheduleServiceHandler.
func (f *fakeSchedules) GetSchedule(_ context.Context,
	r *belfryv1.GetScheduleRequest) (*belfryv1.GetScheduleResponse, error) {
	return handle[*belfryv1.GetScheduleResponse](f.h, r)
}

// ListSchedules implements belfryv1connect.ScheduleServiceHandler.
func (f *fakeSchedules) ListSchedules(_ context.Context,
	r *belfryv1.ListSchedulesRequest) (*belfryv1.ListSchedulesResponse, error) {
	return handle[*belfryv1.ListSchedulesResponse](f.h, r)
}

// DeleteSchedule implements belfryv1connect.ScheduleServiceHandler.
func (f *fakeSchedules) DeleteSchedule(_ context.Context,
	r *belfryv1.DeleteScheduleRequest) (*belfryv1.DeleteScheduleResponse, error) {
	return handle[*belfryv1.DeleteScheduleResponse](f.h, r)
}

// PauseSchedules implements belfryv1connect.ScheduleServiceHandler.
func (f *fakeSchedules) PauseSchedules(_ context.Context,
	r *belfryv1.PauseSchedulesRequest) (*belfryv1.PauseSchedulesResponse, error) {
	return handle[*belfryv1.PauseSchedulesResponse](f.h, r)
}

// ResumeSchedules implements belfryv1connect.ScheduleServiceHandler.
func (f *fakeSchedules) ResumeSchedules(_ context.Context,
	r *belfryv1.ResumeSchedulesRequest) (*belfryv1.ResumeSchedulesResponse, error) {
	return handle[*belfryv1.ResumeSchedulesResponse](f.h, r)
}

// TriggerSchedule implements belfryv1connect.ScheduleServiceHandler.
func (f *fakeSchedules) TriggerSchedule(_ context.Context,
	r *belfryv1.TriggerScheduleRequest) (*belfryv1.TriggerScheduleResponse, error) {
	return handle[*belfryv1.TriggerScheduleResponse](f.h, r)
}

// BackfillSchedule implements belfryv1connect.ScheduleServiceHandler.
func (f *fakeSchedules) BackfillSchedule(_ context.Context,
	r *belfryv1.BackfillScheduleRequest) (*belfryv1.BackfillScheduleResponse, error) {
	return handle[*belfryv1.BackfillScheduleResponse](f.h, r)
}

// PreviewSchedule implements belfryv1connect.ScheduleServiceHandler.
func (f *fakeSchedules) PreviewSchedule(_ context.Context,
	r *belfryv1.PreviewScheduleRequest) (*belfryv1.PreviewScheduleResponse, error) {
	return handle[*belfryv1.PreviewScheduleResponse](f.h, r)
}
