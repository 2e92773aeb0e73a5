package schedules

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// lists answers ListSchedules after a wait: a queue whose name begins with d is denied, one with f
// has two pages, and every other one has a schedule.
type lists struct {
	belfryv1connect.ScheduleServiceClient
	wait func()
	err  error
}

func (l *lists) ListSchedules(_ context.Context,
	req *belfryv1.ListSchedulesRequest) (*belfryv1.ListSchedulesResponse, error) {
	l.wait()
	switch {
	case l.err != nil:
		return nil, l.err
	case req.Queue[0] == 'd':
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("no"))
	case req.Queue[0] == 'f' && req.PageToken == "":
		return &belfryv1.ListSchedulesResponse{Schedules: []*belfryv1.Schedule{{Name: "first"}}, NextPageToken: "t"}, nil
	}
	return &belfryv1.ListSchedulesResponse{Schedules: []*belfryv1.Schedule{{Name: "of " + req.Queue}}}, nil
}

// TestLook: a page asks queues for a bounded time or until it is full, goes on where it stopped, and
// leaves out what the token does not show.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := 30 * time.Millisecond
		api := &lists{wait: func() { time.Sleep(takes) }}
		v := &Visit{API: api}
		var names []string
		for i := range 200 {
			names = append(names, fmt.Sprintf("a%03d", i))
		}
		began := time.Now()
		out, err := v.look(t.Context(), names, place{})
		if err != nil || out.looked != 2*askedAtOnce || len(out.schedules) != 2*askedAtOnce ||
			*out.next != (place{queue: "a032"}) || time.Since(began) != 2*takes {
			t.Errorf("slow queues: %+v after %v, %v", out, time.Since(began), err)
		}
		if out, err = v.look(t.Context(), names, *out.next); err != nil || out.looked != 4*askedAtOnce ||
			out.next.queue != "a064" || out.schedules[0].Name != "of a032" {
			t.Errorf("the next page: %+v, %v", out, err)
		}
		takes = 0
		if out, err = v.look(t.Context(), names, place{}); err != nil || len(out.schedules) != 4*askedAtOnce ||
			out.next.queue != "a064" {
			t.Errorf("fast queues: %+v, %v", out, err)
		}
		if out, err = v.look(t.Context(), names[190:], place{}); err != nil || out.looked != 10 || out.next != nil {
			t.Errorf("the last queues: %+v, %v", out, err)
		}
		some := []string{"a", "d1", "d2", "f", "g"}
		if out, err = v.look(t.Context(), some, place{}); err != nil || out.denied != 2 || out.looked != 3 ||
			len(out.schedules) != 2 || *out.next != (place{"f", "t"}) {
			t.Errorf("a queue with pages: %+v, %v", out, err)
		}
		if out, err = v.look(t.Context(), some, readPlace(out.next.String())); err != nil || out.looked != 5 ||
			len(out.schedules) != 2 || out.schedules[0].Name != "of f" || out.next != nil {
			t.Errorf("its second page: %+v, %v", out, err)
		}
		// The queue where it stopped is deleted: its token is not used for another.
		out, err = v.look(t.Context(), []string{"a", "f2"}, place{"f", "t"})
		if err != nil || *out.next != (place{"f2", "t"}) {
			t.Errorf("after a deletion: %+v, %v", out, err)
		}
		api.err = connect.NewError(connect.CodeUnavailable, errors.New("no leader"))
		if _, err = v.look(t.Context(), some, place{}); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("without a leader: %v", err)
		}
	})
}

// TestLocal: the local time of a firing is the server's, who alone knows the data that it fires by.
func TestLocal(t *testing.T) {
	at := timestamppb.New(time.Date(2027, 3, 28, 1, 0, 0, 0, time.UTC))
	for want, s := range map[string]*belfryv1.Schedule{
		"2027-03-28 03:00:00+02:00 CEST": {Next: at, NextLocal: "2027-03-28T03:00:00+02:00 CEST"}, "–": {},
		"this node does not know the zone": {Next: at, Spec: &belfryv1.ScheduleSpec{TimeZone: "Mars/Base"}},
	} {
		var out strings.Builder
		if err := local(s).Render(&out); err != nil || out.String() != want {
			t.Errorf("%s, %v, want %s", out.String(), err, want)
		}
	}
}
