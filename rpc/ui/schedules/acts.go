package schedules

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/markup"
)

// actions are the forms of the acts on a schedule.
func (v *Visit) actions(s *belfryv1.Schedule) g.Node {
	hidden := []string{"queue", s.Queue, "name", s.Name}
	pause := markup.Acting("pause-schedule", hidden, v.RequestID(), v.note("note"), markup.Button("Pause"))
	if s.Paused {
		pause = markup.Acting("resume-schedule", hidden, v.RequestID(), v.note("note"), markup.Button("Resume"))
	}
	// The time of the job is that of the page, so that a form which is sent twice puts one job.
	trigger := markup.Acting("trigger-schedule", append(hidden, "at", v.Clock.Now.UTC().Format(milliseconds)),
		v.RequestID(), markup.Button("Put a job now"),
		h.Span(h.Class("help"), g.Text("whatever the policy says, also while it is paused")))
	remove := markup.Acting("delete-schedule", hidden, v.RequestID(),
		h.P(g.Text("The schedule, its counts and its last firings are removed for good. Jobs that it has put stay.")),
		h.Label(h.Input(h.Type("checkbox"), h.Name("cancelWaiting"), h.Value("yes")),
			g.Text(" also cancel those of its last 8 jobs that are delayed or ready ")),
		v.Confirmation("Type the name of the schedule", "confirm"), markup.DangerButton("Delete the schedule"))
	return h.Div(h.Class("actions"), pause, trigger,
		h.P(h.A(h.Class("button"), h.Href(markup.Query("backfill", "queue", s.Queue, "name", s.Name)), g.Text("Backfill…"))),
		remove)
}

// milliseconds is RFC 3339 with all that the API takes of a nominal time.
const milliseconds = "2006-01-02T15:04:05.000Z07:00"

// after returns the page of the schedule of a form, with the notice about what was done.
func (v *Visit) after(done string, more ...string) string {
	pairs := []string{"queue", v.In("queue"), "name", v.In("name"), "done", done}
	return markup.Query("schedule", append(pairs, more...)...)
}

// gone returns the page that follows if the schedule of a form was deleted since the page had it.
func (v *Visit) gone() string {
	return markup.Query("schedules", "queue", v.In("queue"), "done", "schedule-gone")
}

// Pause pauses a schedule. It returns the page that follows, as do all acts.
func (v *Visit) Pause(ctx context.Context) (string, error) {
	res, err := v.API.PauseSchedules(ctx, &belfryv1.PauseSchedulesRequest{Queue: v.In("queue"),
		Names: []string{v.In("name")}, Note: v.In("note"), RequestId: v.In("requestId")})
	switch {
	case len(res.GetMissing()) > 0:
		return v.gone(), explained(err)
	case res.GetChanged() == 0:
		return v.after("pause-schedule-again"), explained(err)
	}
	return v.after("pause-schedule"), explained(err)
}

// Resume ends the pause of a schedule.
func (v *Visit) Resume(ctx context.Context) (string, error) {
	res, err := v.API.ResumeSchedules(ctx, &belfryv1.ResumeSchedulesRequest{Queue: v.In("queue"),
		Names: []string{v.In("name")}, Note: v.In("note"), RequestId: v.In("requestId")})
	switch {
	case len(res.GetMissing()) > 0:
		return v.gone(), explained(err)
	case res.GetChanged() == 0:
		return v.after("resume-schedule-again"), explained(err)
	}
	return v.after("resume-schedule"), explained(err)
}

// switched is the answer to a call that pauses or resumes schedules.
type switched interface {
	GetChanged() uint32
	GetMissing() []string
}

// listed returns the page of the schedules that a form acted on. Its notice has how many were changed,
// and how many were deleted since the page had them.
func (v *Visit) listed(done string, res switched) string {
	return markup.Query("schedules", "queue", v.In("queue"), "prefix", v.In("prefix"), "from", v.In("from"),
		"done", done, "n", strconv.FormatUint(uint64(res.GetChanged()), 10), "missing", strconv.Itoa(len(res.GetMissing())))
}

// PauseShown pauses the schedules that a page had.
func (v *Visit) PauseShown(ctx context.Context) (string, error) {
	res, err := v.API.PauseSchedules(ctx, &belfryv1.PauseSchedulesRequest{Queue: v.In("queue"),
		Names: strings.Split(v.In("names"), ","), Note: v.In("note"), RequestId: v.In("requestId")})
	return v.listed("pause-schedules", res), explained(err)
}

// ResumeShown ends the pause of the schedules that a page had.
func (v *Visit) ResumeShown(ctx context.Context) (string, error) {
	res, err := v.API.ResumeSchedules(ctx, &belfryv1.ResumeSchedulesRequest{Queue: v.In("queue"),
		Names: strings.Split(v.In("names"), ","), RequestId: v.In("requestId")})
	return v.listed("resume-schedules", res), explained(err)
}

// Trigger puts a job of a schedule. Its nominal time is that at which the page with the form was shown.
func (v *Visit) Trigger(ctx context.Context) (string, error) {
	at, err := form.Time("at", v.In("at"), time.UTC)
	if err != nil {
		return "", err
	}
	res, err := v.API.TriggerSchedule(ctx, &belfryv1.TriggerScheduleRequest{Queue: v.In("queue"), Name: v.In("name"),
		At: at, RequestId: v.In("requestId")})
	if !res.GetCreated() {
		return v.after("trigger-schedule-again"), explained(err)
	}
	return v.after("trigger-schedule"), explained(err)
}

// Delete removes a schedule. Its name must have been typed.
func (v *Visit) Delete(ctx context.Context) (string, error) {
	name := v.In("name")
	if err := form.Confirmed(v.In, "confirm", name, "delete the schedule"); err != nil {
		return "", err
	}
	res, err := v.API.DeleteSchedule(ctx, &belfryv1.DeleteScheduleRequest{Queue: v.In("queue"), Name: name,
		CancelWaiting: v.In("cancelWaiting") == "yes", RequestId: v.In("requestId")})
	return markup.Query("schedules", "queue", v.In("queue"), "done", "delete-schedule", "n",
		strconv.FormatUint(uint64(res.GetCancelled()), 10)), explained(err)
}

// span is what a backfill is asked for.
type span struct {
	from, to *timestamppb.Timestamp
	most     uint32
}

// backfillMax and backfillDefault are how many nominal times a backfill deals with, as in the API.
const backfillMax, backfillDefault = 10_000, 1000

// readSpan reads a span. Times without an offset are in the zone of the page.
func (v *Visit) readSpan() (out span, err error) {
	if out.from, err = form.Time("from", strings.TrimSpace(v.In("from")), v.Clock.Zone); err != nil {
		return out, err
	}
	if out.to, err = form.Time("to", strings.TrimSpace(v.In("to")), v.Clock.Zone); err != nil {
		return out, err
	}
	out.most = backfillDefault
	if text := strings.TrimSpace(v.In("max")); text != "" {
		n, err := form.Number("max", text, 1, backfillMax)
		if err != nil {
			return out, err
		}
		out.most = uint32(n) //nolint:gosec // at most backfillMax
	}
	switch from, to := out.from.AsTime(), out.to.AsTime(); {
	case !from.After(time.Unix(0, 1)):
		return out, form.Errorf("from", "must be after 1970-01-01T00:00:00Z")
	case !to.After(from):
		return out, form.Errorf("to", "must be after the first time")
	case to.After(v.Clock.Now):
		return out, form.Errorf("to", "at most the present: later firings are still to come")
	}
	return out, nil
}
