package workload

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// The queues of the workload schedules: in two nobody touches a schedule, in the third they change.
const (
	schedulesSteady = "schedules/steady"
	schedulesWide   = "schedules/wide"
	schedulesMoving = "schedules/moving"
)

// steadySchedules returns puts of the schedules that nobody touches.
func steadySchedules() (puts []*belfryv1.PutScheduleRequest) {
	every := func(d, phase time.Duration) *belfryv1.ScheduleSpec {
		return &belfryv1.ScheduleSpec{Rule: &belfryv1.ScheduleSpec_Every{Every: durationpb.New(d)},
			Phase: durationpb.New(phase)}
	}
	cron := func(rule string) *belfryv1.ScheduleSpec {
		return &belfryv1.ScheduleSpec{Rule: &belfryv1.ScheduleSpec_Cron{Cron: rule}}
	}
	const all, latest = belfryv1.CatchUp_CATCH_UP_ALL, belfryv1.CatchUp_CATCH_UP_LATEST
	for _, queue := range []string{schedulesSteady, schedulesWide} {
		add := func(name string, spec *belfryv1.ScheduleSpec, catchUp belfryv1.CatchUp, overlap belfryv1.Overlap) {
			puts = append(puts, &belfryv1.PutScheduleRequest{
				Queue: queue, Name: name, Spec: spec, Policy: &belfryv1.SchedulePolicy{CatchUp: catchUp, Overlap: overlap},
				Job: &belfryv1.PutRequest{Body: &belfryv1.PutRequest_Text{Text: queue + " " + name},
					Ttr: durationpb.New(3 * time.Second)},
			})
		}
		add("second", every(time.Second, 0), all, belfryv1.Overlap_OVERLAP_ALLOW)
		add("phase", every(1500*time.Millisecond, 300*time.Millisecond), all, belfryv1.Overlap_OVERLAP_ALLOW)
		add("cron", cron("*/2 * * * * *"), all, belfryv1.Overlap_OVERLAP_ALLOW)
		add("latest", every(time.Second, 500*time.Millisecond), latest, belfryv1.Overlap_OVERLAP_ALLOW)
		add("skip", cron("*/1 * * * * *"), all, belfryv1.Overlap_OVERLAP_SKIP)
		add("waiting", every(time.Second, 0), latest, belfryv1.Overlap_OVERLAP_ONE_WAITING)
	}
	return puts
}

// schedules has schedules fire while nodes fail, and others be changed, paused, triggered and filled.
func schedules() Workload {
	queues := []string{schedulesSteady, schedulesWide, schedulesMoving}
	return Workload{
		Name: "schedules", What: "schedules of each second or two, of which some are changed, paused, triggered and filled",
		Queues: queues,
		Prepare: func(ctx context.Context, c *Client) error {
			if err := c.ensureQueue(ctx, schedulesWide, 3); err != nil {
				return err
			}
			for _, r := range steadySchedules() {
				r.RequestId = c.requestID()
				if err := c.ensureSchedule(ctx, r); err != nil {
					return err
				}
			}
			return nil
		},
		Roles: []Role{
			{"consumer", 4, func(ctx context.Context, c *Client) {
				first := c.Rand.IntN(len(queues))
				for _, j := range c.take(ctx, 8, append(queues[first:len(queues):len(queues)], queues[:first]...)...) {
					c.finishKeyed(ctx, j)
				}
			}},
			{"planner", 2, func(ctx context.Context, c *Client) {
				c.plan(ctx)
				pause(ctx, c.between(0, 500*time.Millisecond))
			}},
			{"reader", 1, func(ctx context.Context, c *Client) {
				c.getSchedule(ctx, schedulesSteady, "second")
				call(ctx, c, c.schedule(), belfryv1connect.ScheduleServiceClient.ListSchedules,
					&belfryv1.ListSchedulesRequest{Queue: queues[c.Rand.IntN(len(queues))], Stale: c.oneIn(3)})
				pause(ctx, c.between(0, time.Second))
			}},
		},
	}
}

// ensureSchedule puts a schedule, through whatever happens meanwhile. A new cluster may speak a format
// for a moment that has no schedules.
func (c *Client) ensureSchedule(ctx context.Context, r *belfryv1.PutScheduleRequest) error {
	var last *history.Op
	for range 40 {
		if last = c.putSchedule(ctx, r); last.OK() {
			return nil
		}
		if !pause(ctx, 500*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("the schedule %s of %s cannot be put: %s", r.GetName(), r.GetQueue(), last.Message)
}

// plan does one thing to one of a few schedules.
func (c *Client) plan(ctx context.Context) {
	name := fmt.Sprintf("m%d", c.Rand.IntN(4))
	switch c.Rand.IntN(10) {
	case 0:
		call(ctx, c, c.schedule(), belfryv1connect.ScheduleServiceClient.TriggerSchedule,
			&belfryv1.TriggerScheduleRequest{Queue: schedulesMoving, Name: name, RequestId: c.requestID()})
	case 1:
		now := time.Now()
		call(ctx, c, c.schedule(), belfryv1connect.ScheduleServiceClient.BackfillSchedule,
			&belfryv1.BackfillScheduleRequest{Queue: schedulesMoving, Name: name, RequestId: c.requestID(), Max: 20,
				From: timestamppb.New(now.Add(-10 * time.Second)), To: timestamppb.New(now.Add(-2 * time.Second))})
	case 2:
		call(ctx, c, c.schedule(), belfryv1connect.ScheduleServiceClient.DeleteSchedule,
			&belfryv1.DeleteScheduleRequest{Queue: schedulesMoving, Name: name, CancelWaiting: c.oneIn(2),
				RequestId: c.requestID()})
	case 3:
		c.pauseSchedules(ctx, schedulesMoving, name)
		pause(ctx, c.between(0, 2*time.Second))
		call(ctx, c, c.schedule(), belfryv1connect.ScheduleServiceClient.ResumeSchedules,
			&belfryv1.ResumeSchedulesRequest{Queue: schedulesMoving, Prefix: "m", RequestId: c.requestID()})
	case 4:
		c.getSchedule(ctx, schedulesMoving, name)
	default:
		r := c.newSchedule(name)
		if c.oneIn(4) {
			r.IfVersion = c.readVersion(ctx, schedulesMoving, name)
		}
		c.putSchedule(ctx, r)
	}
}

// readVersion reads the version of a schedule, and gives others the time to change or delete it. It
// returns 0, which stands for any, if it cannot be read.
func (c *Client) readVersion(ctx context.Context, queue, name string) uint64 {
	read, _ := c.getSchedule(ctx, queue, name).Response.(*belfryv1.GetScheduleResponse)
	pause(ctx, c.between(0, 300*time.Millisecond))
	return read.GetSchedule().GetVersion()
}

// newSchedule returns a put of a schedule of any kind.
func (c *Client) newSchedule(name string) *belfryv1.PutScheduleRequest {
	r := &belfryv1.PutScheduleRequest{
		Queue: schedulesMoving, Name: name, RequestId: c.maybeRequestID(),
		Spec: &belfryv1.ScheduleSpec{Rule: &belfryv1.ScheduleSpec_Every{
			Every: durationpb.New(time.Duration(1+c.Rand.IntN(3)) * time.Second)}},
		Policy: &belfryv1.SchedulePolicy{CatchUp: belfryv1.CatchUp(1 + c.Rand.IntN(3)),
			Overlap: belfryv1.Overlap(1 + c.Rand.IntN(3)), PauseOnDead: c.oneIn(4)},
		Job: &belfryv1.PutRequest{Body: &belfryv1.PutRequest_Data{Data: c.body(40)}, Ttr: durationpb.New(2 * time.Second)},
	}
	if c.oneIn(3) {
		r.Spec.Jitter = durationpb.New(500 * time.Millisecond)
	}
	if c.oneIn(4) {
		r.Policy.MaxFires = 1 + c.Rand.Uint64N(20)
	}
	return r
}

func (c *Client) putSchedule(ctx context.Context, r *belfryv1.PutScheduleRequest) *history.Op {
	_, o := call(ctx, c, c.schedule(), belfryv1connect.ScheduleServiceClient.PutSchedule, r)
	return o
}

func (c *Client) getSchedule(ctx context.Context, queue, name string) *history.Op {
	_, o := call(ctx, c, c.schedule(), belfryv1connect.ScheduleServiceClient.GetSchedule,
		&belfryv1.GetScheduleRequest{Queue: queue, Name: name})
	return o
}

// pauseSchedules pauses the schedules of a queue whose names begin with a prefix, all if it is empty.
func (c *Client) pauseSchedules(ctx context.Context, queue, prefix string) *history.Op {
	_, o := call(ctx, c, c.schedule(), belfryv1connect.ScheduleServiceClient.PauseSchedules,
		&belfryv1.PauseSchedulesRequest{Queue: queue, Prefix: prefix, All: prefix == "", RequestId: c.requestID()})
	return o
}

// SchedulesEnd pauses all schedules after the load, so that their queues can be emptied, and reads those
// that nobody touched. It returns an error if that is not done within limit.
func SchedulesEnd(ctx context.Context, target Target, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := NewClient(target, Drain, "schedules-end", 0)
	if err != nil {
		return err
	}
	defer c.Close()
	insist := func(what string, do func() *history.Op) error {
		for {
			o := do()
			if o.OK() || o.Reason == belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
				return nil
			}
			if !pause(ctx, 200*time.Millisecond) {
				return fmt.Errorf("in %v it was not done to %s: %s", limit, what, o.Message)
			}
		}
	}
	for _, queue := range []string{schedulesSteady, schedulesWide, schedulesMoving} {
		all := func() *history.Op { return c.pauseSchedules(ctx, queue, "") }
		if err := insist("pause the schedules of "+queue, all); err != nil {
			return err
		}
	}
	for _, r := range steadySchedules() {
		read := func() *history.Op { return c.getSchedule(ctx, r.GetQueue(), r.GetName()) }
		if err := insist("read "+r.GetName(), read); err != nil {
			return err
		}
	}
	return nil
}
