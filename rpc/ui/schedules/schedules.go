// Package schedules has the pages about schedules, and the acts on them.
package schedules

import (
	"cmp"
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/inputs"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/outcome"
	"github.com/belfrydb/belfry/rpc/ui/payload"
	"github.com/belfrydb/belfry/rpc/wire"
)

// Visit is one request for a page about schedules, or for an act on them. All fields but the last two
// are required.
type Visit struct {
	*inputs.Forms
	// API makes the calls.
	API belfryv1connect.ScheduleServiceClient
	// In has the values of the query and of the form.
	In    form.Values
	Clock format.Clock
	// ReadOnly leaves out all actions.
	ReadOnly bool
	// HidesBodies hides the headers and bodies of jobs until the person asks for them.
	HidesBodies bool
}

const (
	// rows is how many schedules of a queue a page has.
	rows = 50
	// needed is the format that the cluster must write.
	needed = 4
)

// explained returns the error of a call about schedules.
func explained(err error) error { return outcome.Upgrading(err, "Schedules", needed) }

// List shows the schedules of a queue.
func (v *Visit) List(ctx context.Context) (markup.Page, error) {
	queue, prefix, from := v.In("queue"), strings.TrimSpace(v.In("prefix")), v.In("from")
	req := &belfryv1.ListSchedulesRequest{Queue: queue, Prefix: prefix, PageSize: rows, PageToken: from}
	res, err := v.API.ListSchedules(ctx, req)
	if err != nil {
		return markup.Page{}, explained(err)
	}
	page := markup.Page{Title: "Schedules of " + queue, Live: from == "", Body: g.Group{
		markup.Path("Queues", "queues", queue, markup.Query("queue", "queue", queue)),
		h.H1(g.Text("Schedules")),
		markup.Filter("schedules", []string{"queue", queue}, markup.Field("Name begins with", "prefix", h.Value(prefix),
			h.Type("search"), h.MaxLength("128")), markup.Button("Filter")),
	}}
	switch all := res.Schedules; {
	case len(all) > 0:
		page.Body = append(page.Body, v.table(all), v.pager(queue, prefix, from, res.NextPageToken),
			g.If(!v.ReadOnly, markup.Section("Actions on "+shown(all), v.switches(queue, all))))
	case prefix != "":
		page.Body = append(page.Body, h.P(g.Text("No schedule of this queue has a name that begins with “"+
			payload.Visible(prefix)+"”.")))
	default:
		page.Body = append(page.Body, h.P(g.Text("The queue has no schedule. "), h.Code(g.Text("belfry schedule put")),
			g.Text(" makes one.")))
	}
	return page, nil
}

// pager leads to the first schedules and to those that follow.
func (v *Visit) pager(queue, prefix, from, next string) g.Node {
	return g.If(from != "" || next != "", h.P(h.Class("pager"),
		g.If(from != "", markup.Link(markup.Query("schedules", "queue", queue, "prefix", prefix), "the first")),
		g.If(next != "", g.Group{g.Text(" "), h.A(h.Rel("next"), h.Href(markup.Query("schedules", "queue", queue,
			"prefix", prefix, "from", next)), g.Text("The next schedules"))})))
}

// shown says how many schedules a page has.
func shown(all []*belfryv1.Schedule) string {
	if len(all) == 1 {
		return "the schedule that is shown"
	}
	return "the " + format.Plural(len(all), "schedule") + " that are shown"
}

// switches pause and resume the schedules that a page has.
func (v *Visit) switches(queue string, all []*belfryv1.Schedule) g.Node {
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	hidden := []string{"queue", queue, "names", strings.Join(names, ","), "prefix", v.In("prefix"), "from", v.In("from")}
	return h.Div(h.Class("actions"),
		markup.Acting("pause-schedules", hidden, v.note("note"), v.RequestID(), markup.Button("Pause "+shown(all))),
		markup.Acting("resume-schedules", hidden, v.RequestID(), markup.Button("Resume "+shown(all))))
}

// note asks why.
func (v *Visit) note(name string) g.Node {
	return v.Field("Note", name, h.MaxLength("256"), markup.Width("24"), h.Placeholder("why, for others"))
}

// table shows schedules, with more columns behind their names.
func (v *Visit) table(all []*belfryv1.Schedule, more ...column) g.Node {
	columns := []string{"Name"}
	for _, c := range more {
		columns = append(columns, c.heading)
	}
	columns = append(columns, "Rule", "Next firing, local", "Next firing, UTC", "Last firing", "Missed")
	return markup.Grid("Schedules", markup.Headings(columns...), g.Map(all, func(s *belfryv1.Schedule) g.Node {
		paused := g.Group{markup.Tag("paused"), g.If(s.Note != "", g.Group{h.Br(), h.Span(h.Class("help free"),
			g.Text(payload.Visible(s.Note)))})}
		return h.Tr(
			h.Th(h.Scope("row"), markup.Link(pageOf(s), s.Name), g.If(s.Paused, paused)),
			g.Map(more, func(c column) g.Node { return h.Td(c.cell(s)) }),
			h.Td(h.Class("free"), ruleText(s.Spec)), h.Td(local(s)),
			h.Td(v.utc(s.Next, v.never(s))), h.Td(v.last(s)), missed(s.Counts.GetMissed()))
	}))
}

// column is a column of a table of schedules.
type column struct {
	heading string
	cell    func(*belfryv1.Schedule) g.Node
}

// ofQueue is a column with the queues of schedules.
func ofQueue() column {
	return column{"Queue", func(s *belfryv1.Schedule) g.Node {
		return markup.Link(markup.Query("schedules", "queue", s.Queue), s.Queue)
	}}
}

// pageOf returns the page of a schedule.
func pageOf(s *belfryv1.Schedule) string {
	return markup.Query("schedule", "queue", s.Queue, "name", s.Name)
}

// missed is a cell with how many firings were missed.
func missed(n uint64) g.Node {
	if n == 0 {
		return markup.Number("0")
	}
	return h.Td(h.Class("number"), markup.Bad(format.Grouped(n)))
}

// ruleText writes when a schedule fires.
func ruleText(s *belfryv1.ScheduleSpec) g.Node {
	if every := s.GetEvery(); every != nil {
		text := "every " + wire.FormatDuration(every.AsDuration())
		if s.Phase != nil {
			text += ", " + wire.FormatDuration(s.Phase.AsDuration()) + " later"
		}
		return g.Text(text)
	}
	return g.Group{h.Code(g.Text(payload.Visible(s.GetCron()))), g.Text(" in " + zoneName(s.GetTimeZone()))}
}

// zoneName names a time zone; the default is not set.
func zoneName(name string) string { return cmp.Or(payload.Visible(name), "UTC") }

// never says why a schedule has no next firing.
func (v *Visit) never(s *belfryv1.Schedule) string {
	switch most, end := s.Policy.GetMaxFires(), s.Spec.GetEnd(); {
	case most > 0 && s.Counts.GetFired() >= most:
		return "none: it has put as many jobs as it may"
	case end != nil && !end.AsTime().After(v.Clock.Now):
		return "none: its end is over"
	default:
		return "none: its rule has no more"
	}
}

// utc shows a time in UTC, or else a text.
func (v *Visit) utc(t *timestamppb.Timestamp, instead string) g.Node {
	if t == nil {
		return g.Text(instead)
	}
	return markup.Time(format.Clock{Now: v.Clock.Now, Zone: time.UTC}, t)
}

// last shows the last firing of a schedule.
func (v *Visit) last(s *belfryv1.Schedule) g.Node {
	if len(s.Recent) == 0 {
		return g.Text("none yet")
	}
	f := s.Recent[len(s.Recent)-1]
	return g.Group{result(f), g.Text(" "), v.firing(s, f)}
}

// result says what came of a firing, or of several that were missed in a row.
func result(f *belfryv1.Firing) g.Node {
	text := format.Word(f.Result)
	if f.Count > 1 {
		text += " × " + format.Grouped(f.Count)
	}
	if f.Result == belfryv1.FiringResult_FIRING_RESULT_MISSED {
		return markup.Bad(text)
	}
	return g.Text(text)
}

// firing shows the nominal time of a firing. If its job was put, it leads there.
func (v *Visit) firing(s *belfryv1.Schedule, f *belfryv1.Firing) g.Node {
	at := markup.Time(v.Clock, f.Nominal)
	switch f.Result {
	case belfryv1.FiringResult_FIRING_RESULT_FIRED, belfryv1.FiringResult_FIRING_RESULT_BACKFILLED:
		id := wire.ScheduleJobID(s.Name, f.Nominal)
		return h.A(h.Href(markup.Query("job", "queue", s.Queue, "id", id, "key", s.Job.GetKey())), at)
	default:
		return at
	}
}

// Fact leads from a job to the schedule that it belongs to by its id; nothing if it belongs to none.
func Fact(j *belfryv1.Job) g.Node {
	name, ok := wire.ScheduleOf(j.Id)
	if !ok {
		return nil
	}
	return markup.FactOf("Schedule", markup.Link(pageOf(&belfryv1.Schedule{Queue: j.Queue, Name: name}),
		payload.Visible(name)))
}

// local shows the next firing of a schedule on its own clock, by the time-zone data of the server.
func local(s *belfryv1.Schedule) g.Node {
	switch {
	case s.Next == nil:
		return g.Text("–")
	case s.NextLocal == "":
		return g.Text("this node does not know the zone")
	default:
		return g.Text(strings.Replace(s.NextLocal, "T", " ", 1))
	}
}
