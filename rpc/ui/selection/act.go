package selection

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/markup"
)

// Act is what a person can do to jobs. Its value is that of the field `act`.
type Act string

// The acts.
const (
	RunNow     Act = "run-now"
	Reschedule Act = "reschedule"
	Redrive    Act = "redrive"
	Cancel     Act = "cancel"
)

// perSecondMax bounds the rate of a task, as the API does.
const perSecondMax = 1_000_000

// Acts are the acts on jobs of a state.
func Acts(state belfryv1.JobState) []Act {
	switch state {
	case belfryv1.JobState_JOB_STATE_DELAYED:
		return []Act{RunNow, Reschedule, Cancel}
	case belfryv1.JobState_JOB_STATE_READY:
		return []Act{Reschedule, Cancel}
	case belfryv1.JobState_JOB_STATE_DEAD:
		return []Act{Redrive, Cancel}
	default:
		return []Act{Cancel}
	}
}

// Order is an act as a person asked for it.
type Order struct {
	Act Act
	// Delay or DueAt is the new due time of RunNow and Reschedule; one of them is set.
	When *belfryv1.RescheduleRequest
	// Force cancels jobs that consumers hold.
	Force bool
	// PerSecond bounds the rate of a task; 0 is no limit.
	PerSecond uint32
}

// ReadOrder reads the form of an act on jobs of a state. The error names the field. A time without an
// offset is in zone.
func ReadOrder(in form.Values, state belfryv1.JobState, zone *time.Location) (Order, error) {
	o := Order{Act: Act(in("act")), When: &belfryv1.RescheduleRequest{}}
	if !slices.Contains(Acts(state), o.Act) {
		return o, form.Errorf("act", "%q is no act on %s jobs", o.Act, format.Word(state))
	}
	switch o.Act {
	case RunNow:
		o.When.When = &belfryv1.RescheduleRequest_Delay{Delay: durationpb.New(0)}
	case Reschedule:
		delay, at, err := form.Moment("due", strings.TrimSpace(in("due")), zone)
		if err != nil {
			return o, err
		}
		if o.When.When = (&belfryv1.RescheduleRequest_DueAt{DueAt: at}); delay != nil {
			o.When.When = &belfryv1.RescheduleRequest_Delay{Delay: delay}
		}
	case Cancel:
		o.Force = state == belfryv1.JobState_JOB_STATE_RESERVED
		if in("confirm") != "yes" {
			return o, form.Errorf("confirm", "tick the box to cancel the jobs; nothing was done")
		}
	case Redrive:
	}
	if text := strings.TrimSpace(in("perSecond")); text != "" {
		n, err := form.Count("perSecond", text, perSecondMax)
		if err != nil {
			return o, err
		}
		o.PerSecond = uint32(n)
	}
	return o, nil
}

// Task returns the request for a task that does what was ordered to at most so many of the jobs.
func (o *Order) Task(s *Selection, most uint64, requestID string) *belfryv1.StartTaskRequest {
	req := s.Task(map[Act]belfryv1.TaskAct{RunNow: belfryv1.TaskAct_TASK_ACT_RESCHEDULE,
		Reschedule: belfryv1.TaskAct_TASK_ACT_RESCHEDULE, Redrive: belfryv1.TaskAct_TASK_ACT_REDRIVE,
		Cancel: belfryv1.TaskAct_TASK_ACT_CANCEL}[o.Act])
	switch when := o.When.When.(type) {
	case *belfryv1.RescheduleRequest_Delay:
		req.When = &belfryv1.StartTaskRequest_Delay{Delay: when.Delay}
	case *belfryv1.RescheduleRequest_DueAt:
		req.When = &belfryv1.StartTaskRequest_DueAt{DueAt: when.DueAt}
	}
	req.Force, req.PerSecond, req.Max, req.RequestId = o.Force, o.PerSecond, most, requestID
	return req
}

// Forms are the forms of the acts on jobs of a state.
type Forms struct {
	// Path is where they are posted, with the hidden fields, which are names and values in turn.
	Path   string
	Hidden []string
	State  belfryv1.JobState
	// Jobs is how many jobs the acts are about, as the buttons say. There are no forms if it is 0.
	Jobs uint64
	// Tasks says that an act is a task, which can have a rate.
	Tasks bool
	// Input draws an input, and RequestID the field that makes the form of an act safe to send twice.
	Input     func(label, name string, attributes ...g.Node) g.Node
	RequestID func(act Act) g.Node
}

// Draw draws the forms.
func (f *Forms) Draw() g.Node {
	if f.Jobs == 0 {
		return nil
	}
	return h.Div(h.Class("actions"), g.Map(Acts(f.State), func(act Act) g.Node {
		return markup.Acting(f.Path, append(slices.Clone(f.Hidden), "act", string(act)), f.RequestID(act), f.inputs(act))
	}))
}

// inputs are the inputs and the button of an act.
func (f *Forms) inputs(act Act) g.Node {
	jobs := Jobs(f.Jobs)
	switch act {
	case RunNow:
		return markup.Button("Run " + jobs + " now")
	case Reschedule:
		return g.Group{f.Input("Due at or in", "due", h.Required(), markup.Width("20"),
			h.Placeholder("2026-01-31 15:04 or 2h")), markup.Button("Reschedule " + jobs)}
	case Redrive:
		return g.Group{g.If(f.Tasks, f.Input("At most a second", "perSecond", markup.Width("9"),
			g.Attr("inputmode", "numeric"), h.Placeholder("no limit"))), markup.Button("Make " + jobs + " ready again")}
	default:
		about := " remove them for good "
		if f.State == belfryv1.JobState_JOB_STATE_RESERVED {
			about = " remove them for good, although consumers hold them "
		}
		return g.Group{h.Label(h.Input(h.ID("confirm"), h.Type("checkbox"), h.Name("confirm"), h.Value("yes"), h.Required()),
			g.Text(about)), markup.DangerButton("Cancel " + jobs)}
	}
}

// Jobs writes a number of jobs.
func Jobs(n uint64) string {
	if n == 1 {
		return "1 job"
	}
	return format.Grouped(n) + " jobs"
}

// Job names a job of a queue. In a queue with several partitions an id is unique per key only.
type Job struct{ ID, Key string }

// String writes a job as a text that a browser does not change: without NULs and line ends.
func (j Job) String() string {
	if j.Key == "" {
		return url.QueryEscape(j.ID)
	}
	return url.QueryEscape(j.ID) + ";" + url.QueryEscape(j.Key)
}

// JoinJobs writes jobs as one text.
func JoinJobs(jobs []Job) string {
	var all []string
	for _, j := range jobs {
		all = append(all, j.String())
	}
	return strings.Join(all, ",")
}

// SplitJobs reads what JoinJobs wrote. It leaves out jobs that are there twice.
func SplitJobs(text string) ([]Job, error) {
	var jobs []Job
	for part := range strings.SplitSeq(text, ",") {
		id, key, _ := strings.Cut(part, ";")
		var j Job
		var bad [2]error
		j.ID, bad[0] = url.QueryUnescape(id)
		j.Key, bad[1] = url.QueryUnescape(key)
		if err := errors.Join(bad[:]...); err != nil {
			return nil, form.Errorf("job", "%q is no id of a job: %s", part, err)
		}
		if part != "" && !slices.Contains(jobs, j) {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}
