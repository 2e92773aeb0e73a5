package ui

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/payload"
)

// sizes are the numbers of jobs on a page that a person can choose.
func sizes() []string { return []string{"25", "100", "500"} }

func (p *Pages) listJobs(v *visit) (content, error) {
	queue, state, length := v.param("queue"), cmp.Or(v.param("state"), "delayed"), sizes()[0]
	if slices.Contains(sizes(), v.param("size")) {
		length = v.param("size")
	}
	rows, _ := strconv.Atoi(length)
	req := &belfryv1.ListRequest{Queue: queue, PageSize: int32(rows), PageToken: v.param("from")}
	var err error
	if req.State, err = stateOf(state); err != nil {
		return content{}, err
	}
	if req.DueAfter, err = v.timeOf("after"); err != nil {
		return content{}, err
	}
	if req.DueBefore, err = v.timeOf("before"); err != nil {
		return content{}, err
	}
	res, err := p.queues.List(v.ctx, req)
	if err != nil && unavailable(err) {
		req.Stale = true
		res, err = p.queues.List(v.ctx, req)
	}
	if err != nil {
		return content{}, err
	}
	tabs, err := p.stateTabs(v, queue, state)
	if err != nil {
		return content{}, err
	}
	var lengths []markup.Option
	for _, n := range sizes() {
		lengths = append(lengths, markup.Option{Value: n, Text: n})
	}
	next := markup.Query("jobs", "queue", queue, "state", state, "after", v.param("after"), "before", v.param("before"),
		"size", length, "from", res.NextPageToken)
	return content{title: "Jobs of " + queue, entry: "Queues", body: g.Group{
		markup.Path("Queues", "queues", queue, markup.Query("queue", "queue", queue)),
		h.H1(g.Text("Jobs")),
		staleMark(res.Stale, res.AsOf.AsTime(), v.clock),
		tabs,
		markup.Filter("jobs", []string{"queue", queue, "state", state},
			markup.Field("Due from", "after", h.Value(v.param("after")), markup.Width("22"),
				h.Placeholder("2026-01-31 15:04")),
			markup.Field("to before", "before", h.Value(v.param("before")), markup.Width("22"),
				h.Placeholder("2026-01-31 16:04")),
			markup.Choice("Rows", "size", length, lengths...), markup.Button("Show")),
		v.jobsTable(res.Jobs, queue, state),
		g.If(res.NextPageToken != "",
			h.P(h.Class("pager"), h.A(h.Rel("next"), h.Href(next), g.Text("The next "+length)))),
	}}, nil
}

// stateTabs shows the states of jobs with their numbers, which may be a little old.
func (p *Pages) stateTabs(v *visit, queue, chosen string) (g.Node, error) {
	res, err := p.admin.GetQueue(v.ctx, &belfryv1.GetQueueRequest{Queue: queue, Stale: true})
	if err != nil {
		return nil, err
	}
	counts := res.Queue.Counts
	tab := func(state string, n uint32) g.Node {
		return h.Li(h.A(h.Href(markup.Query("jobs", "queue", queue, "state", state)),
			g.If(state == chosen, h.Aria("current", "page")), g.Text(state+" "), h.Span(h.Class("count"),
				g.Text(format.Grouped(n)))))
	}
	return h.Ul(h.Class("tabs"), tab("delayed", counts.GetDelayed()), tab("ready", counts.GetReady()),
		tab("reserved", counts.GetReserved()), tab("dead", counts.GetDead())), nil
}

func (v *visit) jobsTable(jobs []*belfryv1.Job, queue, state string) g.Node {
	if len(jobs) == 0 {
		return h.P(g.Textf("No job of this selection is %s.", state))
	}
	return markup.Grid("Jobs", markup.Headings("Id", "Due", "Attempts", "Priority", "Body", "Last error"),
		g.Map(jobs, func(j *belfryv1.Job) g.Node {
			return h.Tr(h.Th(h.Scope("row"), markup.IDLink(queue, j.Id)), h.Td(v.when(j.DueAt)),
				markup.Number(format.Grouped(j.Attempt)), markup.Number(strconv.Itoa(int(j.Priority))),
				markup.Number(format.Size(uint64(j.BodyBytes))),
				h.Td(h.Class("free"), g.Text(payload.Visible(j.LastError))))
		}))
}

// stateOf reads the name of a state that a job can be in; nothing is JOB_STATE_UNSPECIFIED.
func stateOf(name string) (belfryv1.JobState, error) {
	known := []belfryv1.JobState{belfryv1.JobState_JOB_STATE_UNSPECIFIED, belfryv1.JobState_JOB_STATE_DELAYED,
		belfryv1.JobState_JOB_STATE_READY, belfryv1.JobState_JOB_STATE_RESERVED, belfryv1.JobState_JOB_STATE_DEAD}
	i := slices.IndexFunc(known, func(s belfryv1.JobState) bool { return format.Word(s) == name })
	switch {
	case name == "":
		return belfryv1.JobState_JOB_STATE_UNSPECIFIED, nil
	case i <= 0:
		return 0, formError("state", "%q is none of delayed, ready, reserved, dead", name)
	default:
		return known[i], nil
	}
}

// timeOf reads a time of the query or a form; nil if there is none. A time without an offset is in
// the zone of the page.
func (v *visit) timeOf(name string) (*timestamppb.Timestamp, error) {
	text := strings.TrimSpace(v.param(name))
	if text == "" {
		return nil, nil
	}
	return form.Time(name, text, v.clock.Zone)
}
