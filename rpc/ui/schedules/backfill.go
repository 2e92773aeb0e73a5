package schedules

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/outcome"
)

// previewMax is how many nominal times a call previews at most.
const previewMax = 100

// previewShown is how many of the first and of the last nominal times of a backfill a page shows.
const previewShown = 10

// preview are the nominal times that a backfill deals with.
type preview struct {
	first, last []*belfryv1.ScheduleTime
	n           uint32
	// rest is the first one that is left out because of the most; nil if there is none.
	rest *belfryv1.ScheduleTime
}

// ShowBackfill asks for the span of a backfill, and shows what it would put.
func (v *Visit) ShowBackfill(ctx context.Context) (markup.Page, error) {
	s, _, err := v.read(ctx)
	if err != nil {
		return markup.Page{}, err
	}
	page := markup.Page{Title: "Backfill of " + s.Name, Body: g.Group{
		v.path(s, s.Name, pageOf(s)), h.H1(g.Text("Backfill")),
		h.P(g.Text("A backfill puts the jobs of the nominal times in a span that is over, whatever the policy says, also " +
			"while the schedule is paused. They are due at once. Here you see what it would put.")),
	}}
	want, err := v.readSpan()
	asked := v.In("from") != "" || v.In("to") != ""
	if err != nil && asked && v.Problem == nil {
		v.Problem, v.Posted = outcome.Of(err), nil
		page.Body = append(page.Body, v.Warning())
	}
	page.Body = append(page.Body, v.spanForm(s))
	if err != nil {
		return page, nil //nolint:nilerr // the page says it
	}
	seen, err := v.preview(ctx, s, want)
	if err != nil {
		return markup.Page{}, explained(err)
	}
	page.Body = append(page.Body, v.previewed(s, want, seen))
	return page, nil
}

// spanForm asks for a span.
func (v *Visit) spanForm(s *belfryv1.Schedule) g.Node {
	in := func(label, name, width, example string) g.Node {
		return markup.Field(label, name, h.Value(v.In(name)), v.Invalid(name), markup.Width(width), h.Placeholder(example))
	}
	yesterday := v.Clock.Now.In(v.Clock.Zone).AddDate(0, 0, -1)
	return markup.Filter("backfill", []string{"queue", s.Queue, "name", s.Name},
		in("From", "from", "24", yesterday.Format("2006-01-02 15:04")),
		in("to before", "to", "24", v.Clock.Now.In(v.Clock.Zone).Format("2006-01-02 15:04")),
		in("At most", "max", "7", strconv.Itoa(backfillDefault)),
		markup.Button("Show what it would put"),
		h.Span(h.Class("help"), g.Text("in "+v.Clock.Zone.String()+", or with an offset; at most 10000 jobs")))
}

// preview finds the nominal times of a span.
func (v *Visit) preview(ctx context.Context, s *belfryv1.Schedule, of span) (*preview, error) {
	out, after := &preview{}, of.from.AsTime().Add(-1)
	for {
		res, err := v.API.PreviewSchedule(ctx, &belfryv1.PreviewScheduleRequest{Spec: s.Spec, Name: s.Name,
			After: timestamppb.New(after), Count: previewMax})
		if err != nil {
			return nil, err
		}
		for _, t := range res.Times {
			switch {
			case !t.Nominal.AsTime().Before(of.to.AsTime()):
				return out, nil
			case out.n == of.most:
				out.rest = t
				return out, nil
			case out.n < previewShown:
				out.first = append(out.first, t)
			default:
				out.last = append(out.last[max(0, len(out.last)-previewShown+1):], t)
			}
			out.n++
		}
		if len(res.Times) < previewMax {
			return out, nil
		}
		after = res.Times[len(res.Times)-1].Nominal.AsTime()
	}
}

// previewed shows what a backfill would put, and has the form that does it.
func (v *Visit) previewed(s *belfryv1.Schedule, of span, seen *preview) g.Node {
	if seen.n == 0 {
		return h.P(g.Text("The schedule has no nominal time in this span, so there is nothing to put."))
	}
	jobs := format.Grouped(seen.n) + " jobs"
	if seen.n == 1 {
		jobs = "1 job"
	}
	nodes := g.Group{v.times(s, "Nominal times", seen.first)}
	if between := int(seen.n) - len(seen.first) - len(seen.last); between > 0 {
		nodes = append(nodes, h.P(g.Text("and "+format.Grouped(uint64(between))+" more, up to")))
	}
	if len(seen.last) > 0 {
		nodes = append(nodes, v.times(s, "The last nominal times", seen.last))
	}
	if seen.rest != nil {
		nodes = append(nodes, h.P(h.Class("warning"), g.Text("The span has more than "+format.Grouped(of.most)+
			" nominal times. Those from "+v.Clock.Text(seen.rest.Nominal)+" on are left out.")))
	}
	hidden := []string{"queue", s.Queue, "name", s.Name, "from", exact(of.from), "to", exact(of.to),
		"max", strconv.FormatUint(uint64(of.most), 10), "version", strconv.FormatUint(s.Version, 10)}
	nodes = append(nodes,
		h.P(g.Text("A job of one of these times that is there, or ended lately, is not put again.")),
		h.Div(h.Class("actions"), g.If(!v.ReadOnly,
			markup.Acting("backfill-schedule", hidden, v.RequestID(), markup.Button("Put "+jobs)))))
	return markup.Section("It would put "+jobs, nodes)
}

// exact writes a time for a query.
func exact(t *timestamppb.Timestamp) string { return t.AsTime().Format(time.RFC3339Nano) }

// Backfill puts the jobs of a span that was previewed. If the schedule has changed since, it puts
// none: the person saw other times.
func (v *Visit) Backfill(ctx context.Context) (string, error) {
	of, err := v.readSpan()
	if err != nil {
		return "", err
	}
	s, _, err := v.read(ctx)
	if err != nil {
		return "", err
	}
	if strconv.FormatUint(s.Version, 10) != v.In("version") {
		return "", form.Errorf("", "the schedule has changed since the page was shown; nothing was put")
	}
	res, err := v.API.BackfillSchedule(ctx, &belfryv1.BackfillScheduleRequest{Queue: s.Queue, Name: s.Name,
		From: of.from, To: of.to, Max: of.most, RequestId: v.In("requestId")})
	if err != nil {
		return "", explained(err)
	}
	counts := []string{"n", strconv.FormatUint(uint64(res.Put), 10), "existing",
		strconv.FormatUint(uint64(res.Existing), 10)}
	if res.Rest == nil {
		return v.after("backfill-schedule", counts...), nil
	}
	done := "backfill-rest"
	if res.QueueFull {
		done = "backfill-full"
	}
	return markup.Query("backfill", append(counts, "queue", s.Queue, "name", s.Name, "from", exact(res.Rest),
		"to", exact(of.to), "max", strconv.FormatUint(uint64(of.most), 10), "done", done)...), nil
}
