package schedules

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/outcome"
	"github.com/belfrydb/belfry/rpc/ui/payload"
	"github.com/belfrydb/belfry/rpc/wire"
)

// read reads a schedule. A token that shows no jobs gets it without key, headers and body; then
// denied is true.
func (v *Visit) read(ctx context.Context) (s *belfryv1.Schedule, denied bool, err error) {
	queue, name := v.In("queue"), v.In("name")
	res, err := v.API.GetSchedule(ctx, &belfryv1.GetScheduleRequest{Queue: queue, Name: name})
	if connect.CodeOf(err) != connect.CodePermissionDenied {
		return res.GetSchedule(), false, explained(err)
	}
	// Of all names that begin with this one, it comes first.
	list, listErr := v.API.ListSchedules(ctx, &belfryv1.ListSchedulesRequest{Queue: queue, Prefix: name, PageSize: 1})
	if all := list.GetSchedules(); listErr == nil && len(all) == 1 && all[0].Name == name {
		return all[0], true, nil
	}
	return nil, false, err
}

// Show shows a schedule.
func (v *Visit) Show(ctx context.Context) (markup.Page, error) {
	s, denied, err := v.read(ctx)
	if err != nil {
		return markup.Page{}, err
	}
	counts := s.Counts
	body := g.Group{
		v.path(s), h.H1(g.Text(s.Name), g.If(s.Paused, markup.Tag("paused"))),
		v.pausedText(s),
		markup.Figures(markup.Figure{Name: "Fired", Value: format.Grouped(counts.GetFired())},
			markup.Figure{Name: "Missed", Value: format.Grouped(counts.GetMissed()), Bad: counts.GetMissed() > 0,
				Note: "too late, or a later one was put in their place"},
			markup.Figure{Name: "Skipped", Value: format.Grouped(counts.GetSkipped()),
				Note: "an earlier job had not ended"},
			markup.Figure{Name: "By hand", Value: format.Grouped(counts.GetBackfilled()), Note: "triggers and backfills"}),
		markup.Section("Next firings", v.nextFirings(ctx, s)),
		markup.Section("Last firings", v.lastFirings(s)),
		h.Div(h.Class("columns"), markup.Section("Rule", v.ruleFacts(s)), markup.Section("Policy", v.policyFacts(s))),
		markup.Section("Its jobs", v.jobFacts(s, denied)),
	}
	if !v.ReadOnly {
		body = append(body, markup.Section("Actions", v.actions(s)))
	}
	return markup.Page{Title: s.Name, Live: true, Body: body}, nil
}

// path shows what a page about a schedule is a part of.
func (v *Visit) path(s *belfryv1.Schedule, more ...string) g.Node {
	return markup.Path(append([]string{"Queues", "queues", s.Queue, markup.Query("queue", "queue", s.Queue),
		"Schedules", markup.Query("schedules", "queue", s.Queue)}, more...)...)
}

// pausedText says that a schedule is paused, and why; or why it was resumed.
func (v *Visit) pausedText(s *belfryv1.Schedule) g.Node {
	note := payload.Visible(s.Note)
	switch {
	case s.Paused:
		return h.P(h.Class("warning"), g.Text("It is paused"), g.If(note != "", g.Text(": "+note)),
			g.Text(". It puts no job until it is resumed, unless it is triggered."))
	case note != "":
		return h.P(h.Class("free"), g.Text("Last note: "+note))
	default:
		return nil
	}
}

// nextFirings shows when a schedule fires next, as its own clock, UTC, and the clock of the page have it.
func (v *Visit) nextFirings(ctx context.Context, s *belfryv1.Schedule) g.Node {
	if s.Next == nil {
		return h.P(g.Text("There is " + v.never(s) + "."))
	}
	res, err := v.API.PreviewSchedule(ctx, &belfryv1.PreviewScheduleRequest{Spec: s.Spec, Name: s.Name})
	if err != nil {
		return h.P(h.Class("warning"), g.Text("This node cannot say when: "+outcome.Of(err).Text))
	}
	if len(res.Times) == 0 {
		return h.P(g.Text("The firing of "), v.utc(s.Next, ""), g.Text(" is still to be dealt with. After it there is "+
			v.never(s)+"."))
	}
	late := v.Clock.Now.After(s.Next.AsTime())
	return g.Group{
		g.If(late, h.P(g.Text("The firing that comes next was due at "), v.utc(s.Next, ""), g.Text("."))),
		v.times(s, "Next firings", res.Times),
		markup.List("help", res.Warnings),
	}
}

// times shows nominal times of a schedule: on its own clock, in UTC, and in the zone of the page.
func (v *Visit) times(s *belfryv1.Schedule, name string, all []*belfryv1.ScheduleTime) g.Node {
	const utc = "UTC"
	zone, own := zoneName(s.Spec.GetTimeZone()), v.Clock.Zone.String()
	others, jitter := own != utc && own != zone, s.Spec.GetJitter() != nil
	columns := []string{"Local, " + zone, utc}
	if others {
		columns = append(columns, own)
	}
	if jitter {
		columns = append(columns, "Its job is due")
	}
	return markup.Grid(name, markup.Headings(columns...), g.Map(all, func(t *belfryv1.ScheduleTime) g.Node {
		return h.Tr(h.Th(h.Scope("row"), g.Text(strings.Replace(t.Local, "T", " ", 1))), h.Td(v.utc(t.Nominal, "")),
			g.If(others, h.Td(markup.Time(v.Clock, t.Nominal))),
			g.If(jitter, h.Td(markup.Time(v.Clock, t.DueAt))))
	}))
}

// lastFirings shows the last firings, the newest first.
func (v *Visit) lastFirings(s *belfryv1.Schedule) g.Node {
	if len(s.Recent) == 0 {
		return h.P(g.Text("It has not fired yet."))
	}
	newest := slices.Clone(s.Recent)
	slices.Reverse(newest)
	return markup.Grid("Last firings", markup.Headings("Nominal time", "Result", "Dealt with"),
		g.Map(newest, func(f *belfryv1.Firing) g.Node {
			return h.Tr(h.Th(h.Scope("row"), v.firing(s, f)), h.Td(result(f)), h.Td(markup.Time(v.Clock, f.At)))
		}))
}

// ruleFacts shows when a schedule fires.
func (v *Visit) ruleFacts(s *belfryv1.Schedule) g.Node {
	spec := s.Spec
	dst := map[belfryv1.DST]string{
		belfryv1.DST_DST_ONCE:    "fixed times fire once",
		belfryv1.DST_DST_LITERAL: "as the expression says: not in a gap, twice in a fold",
		belfryv1.DST_DST_SKIP:    "not in a gap, and once in a fold",
	}[spec.GetDst()]
	if spec.GetEvery() != nil {
		dst = ""
	}
	var without []string
	for _, exclude := range spec.GetExclude() {
		without = append(without, payload.Visible(exclude))
	}
	return markup.Facts(markup.FactOf("Fires", ruleText(spec)), markup.Fact("When the clock changes", dst),
		markup.TimeFact(v.Clock, "From", spec.GetStart()), markup.TimeFact(v.Clock, "To", spec.GetEnd()),
		markup.Fact("Jobs are due up to", later(spec.GetJitter())), markup.Fact("Not at", strings.Join(without, " · ")),
		markup.TimeFact(v.Clock, "Created", s.CreatedAt), markup.TimeFact(v.Clock, "Changed", s.ChangedAt),
		markup.Fact("Version", strconv.FormatUint(s.Version, 10)), markup.Fact("Time-zone data", payload.Visible(s.ZoneData)))
}

// later writes how long after its time a job may be due.
func later(jitter *durationpb.Duration) string {
	if jitter == nil {
		return ""
	}
	return wire.FormatDuration(jitter.AsDuration()) + " later"
}

// policyFacts shows what becomes of firings that cannot happen as planned.
func (v *Visit) policyFacts(s *belfryv1.Schedule) g.Node {
	p := s.Policy
	most, onDead := "no limit", "it goes on"
	if p.GetMaxFires() > 0 {
		most = format.Grouped(p.GetMaxFires())
	}
	if p.GetPauseOnDead() {
		onDead = "it is paused"
	}
	return markup.Facts(
		markup.Fact("After an outage or a pause", map[belfryv1.CatchUp]string{
			belfryv1.CatchUp_CATCH_UP_LATEST: "the latest firing happens",
			belfryv1.CatchUp_CATCH_UP_ALL:    "all firings happen",
			belfryv1.CatchUp_CATCH_UP_NONE:   "the latest happens, at most a minute late",
		}[p.GetCatchUp()]),
		markup.Fact("Missed when later than", wire.FormatDuration(p.GetWindow().AsDuration())),
		markup.Fact("While an earlier job has not ended", map[belfryv1.Overlap]string{
			belfryv1.Overlap_OVERLAP_ALLOW:       "it fires",
			belfryv1.Overlap_OVERLAP_SKIP:        "it skips",
			belfryv1.Overlap_OVERLAP_ONE_WAITING: "it skips, unless that one is reserved",
		}[p.GetOverlap()]),
		markup.Fact("Jobs at most", most), markup.Fact("When a job of it dies", onDead))
}

// jobFacts shows what the jobs of a schedule are. denied says that the token shows no jobs.
func (v *Visit) jobFacts(s *belfryv1.Schedule, denied bool) g.Node {
	j := s.Job
	priority, attempts := "", ""
	if j.GetPriority() != 0 {
		priority = strconv.FormatInt(j.GetPriority(), 10)
	}
	if j != nil && j.MaxAttempts != nil {
		attempts = format.Grouped(*j.MaxAttempts)
	}
	var delays []string
	for _, d := range j.GetRetryDelays() {
		delays = append(delays, format.Duration(d))
	}
	facts := markup.Facts(markup.Fact("Priority", priority), markup.Fact("Lease (TTR)", format.Duration(j.GetTtr())),
		markup.Fact("Attempts", attempts), markup.Fact("Retry delays", strings.Join(delays, ", ")),
		markup.Fact("Expires after (TTL)", format.Duration(j.GetTtl())), markup.Fact("Key", payload.Visible(j.GetKey())))
	switch {
	case denied:
		return g.Group{facts, h.P(g.Text("Your token does not show keys, headers and bodies of jobs: they take consume:" +
			s.Queue + "."))}
	case v.HidesBodies && v.In("bodies") != "shown":
		return g.Group{facts, h.P(g.Text("Headers and body are hidden. "),
			markup.Link(markup.Query("schedule", "queue", s.Queue, "name", s.Name, "bodies", "shown"), "Show them"))}
	}
	var headers []g.Node
	for _, name := range slices.Sorted(maps.Keys(j.GetHeaders())) {
		headers = append(headers, h.Tr(h.Th(h.Scope("row"), h.Class("free"), g.Text(payload.Visible(name))),
			h.Td(h.Class("free"), g.Text(payload.Visible(j.GetHeaders()[name])))))
	}
	content := []byte(j.GetText())
	if data, ok := j.GetBody().(*belfryv1.ScheduleJob_Data); ok {
		content = data.Data
	}
	shown := payload.Show(content, "")
	about := format.Plural(len(content), "byte")
	if shown.Shown < len(content) {
		about += ": the first " + strconv.Itoa(shown.Shown)
	}
	return g.Group{facts, g.If(len(headers) > 0, markup.Facts(headers...)), h.P(h.Class("help"), g.Text(about)),
		shown.Node}
}
