package ui

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/chart"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/selection"
	"github.com/belfrydb/belfry/rpc/ui/sums"
)

func (p *Pages) showQueue(v *visit) (content, error) {
	name := v.param("queue")
	res, err := p.admin.GetQueue(v.ctx, &belfryv1.GetQueueRequest{Queue: name, Minutes: true})
	upgrading := connect.CodeOf(err) == connect.CodeUnimplemented // a node that leads does not know of minutes yet
	if upgrading {
		res, err = p.admin.GetQueue(v.ctx, &belfryv1.GetQueueRequest{Queue: name})
	}
	if err != nil {
		return content{}, err
	}
	q := res.Queue
	state := func(name string, n uint32) markup.Figure {
		return markup.Figure{Name: name, Value: format.Grouped(n), Target: markup.Query("jobs", "queue", q.Name, "state",
			strings.ToLower(name))}
	}
	body := g.Group{
		markup.Path("Queues", "queues"),
		h.H1(g.Text(q.Name), g.If(q.Settings.GetPaused(), markup.Tag(v.paused(q.Settings)))),
		markup.Figures(state("Delayed", q.Counts.GetDelayed()), state("Ready", q.Counts.GetReady()),
			state("Reserved", q.Counts.GetReserved()), markup.Figure{Name: "Dead", Value: format.Grouped(q.Counts.GetDead()),
				Target: markup.Query("dead", "queue", q.Name), Bad: q.Counts.GetDead() > 0},
			markup.Figure{Name: "Oldest ready", Value: cmp.Or(format.Duration(q.OldestReadyAge), "–")},
			markup.Figure{Name: "Waiting consumers", Value: cmp.Or(sums.Waiting(q), "–")},
			markup.Figure{Name: "Stored", Value: format.Size(q.Bytes)}),
		h.P(markup.Link(markup.Query("schedules", "queue", q.Name), "Schedules"), g.Text(" · "),
			markup.Link(markup.Query("keys", "queue", q.Name), "Keys")),
		markup.Section("When jobs fall due", g.Map(dueCharts(q), func(c chart.Bars) g.Node { return c.Draw(v.clock) }),
			g.If(q.Due.GetLater() > 0, h.P(g.Text(format.Grouped(q.Due.GetLater())+" fall due later.")))),
		markup.Section("The last hour", g.If(upgrading, h.P(g.Text("It is shown once all nodes run a version that "+
			"knows it."))), g.If(!upgrading, g.Map(chart.LastHour(v.clock, res.Minutes, res.MinutesSince.AsTime()),
			func(c chart.Lines) g.Node { return c.Draw(v.clock) }))),
		h.Div(h.Class("columns"), markup.Section("The last minute", sums.LastMinuteFacts(q)),
			markup.Section("Since the queue was made", sums.TotalFacts(q.Totals)),
			markup.Section("Settings", p.settingsTable(q), p.settingsLink(q.Name))),
	}
	if !p.cfg.ReadOnly {
		body = append(body, markup.Section("Actions", v.queueActions(q)),
			markup.Section("Remove jobs, or the queue", v.queueRemovals(q)))
	}
	return content{title: q.Name, entry: "Queues", body: body, live: true}, nil
}

// paused says until when a queue is paused.
func (v *visit) paused(s *belfryv1.QueueSettings) string {
	if s.PausedUntil == nil {
		return "paused"
	}
	return "paused until " + v.clock.Text(s.PausedUntil)
}

// settingsLink leads to the form for the settings, where there are actions.
func (p *Pages) settingsLink(name string) g.Node {
	return g.If(!p.cfg.ReadOnly, h.P(markup.Link(markup.Query("queue-settings", "queue", name), "Change settings")))
}

// delays writes what follows failed attempts.
func delays(all []*durationpb.Duration) string {
	var texts []string
	for _, d := range all {
		texts = append(texts, format.Duration(d))
	}
	return cmp.Or(strings.Join(texts, ", "), "at once")
}

func (v *visit) queueActions(q *belfryv1.Queue) g.Node {
	hidden := []string{"queue", q.Name}
	pause := markup.Acting("resume", hidden, markup.Button("Resume"))
	if !q.Settings.GetPaused() {
		pause = markup.Acting("pause", hidden,
			v.Field("Pause for or until", "for", markup.Width("20"), h.Placeholder("no end"), h.Aria("describedby",
				"for-help")),
			markup.Button("Pause"),
			h.Span(h.ID("for-help"), h.Class("help"), g.Text("such as 30m, 2h or 2026-01-31 15:04, in "+
				v.clock.Zone.String()+"; empty: until it is resumed")))
	}
	return h.Div(h.Class("actions"),
		h.P(h.A(h.Class("button"), h.Href(markup.Query("put", "queue", q.Name)), g.Text("Put a job"))), pause)
}

// queueRemovals are the acts that cannot be undone.
func (v *visit) queueRemovals(q *belfryv1.Queue) g.Node {
	hidden := []string{"queue", q.Name}
	count := func(state string, n uint32) markup.Option {
		return markup.Option{Value: state, Text: fmt.Sprintf("%s (%s)", state, format.Grouped(n))}
	}
	purge := markup.Acting("purge", hidden,
		h.P(g.Text("All jobs of one state are removed for good; the queue stays.")),
		markup.Choice("Remove the jobs that are", "state", "", count("dead", q.Counts.GetDead()),
			count("delayed", q.Counts.GetDelayed()), count("ready", q.Counts.GetReady())),
		v.Confirmation("Type the name of the queue", "confirm"), markup.DangerButton("Remove"))
	remove := markup.Acting("delete-queue", hidden, v.RequestID(),
		h.P(g.Text("The queue, its settings, its schedules and its jobs in all states are removed for good.")),
		v.Confirmation("Type the name of the queue", "confirm-delete"),
		markup.DangerButton("Delete the queue and its "+format.Grouped(jobsOf(q.Counts))+" jobs"))
	return h.Div(h.Class("actions"), purge, remove)
}

// jobsOf returns how many jobs a queue has, in all states.
func jobsOf(c *belfryv1.JobCounts) uint64 {
	return uint64(c.GetDelayed()) + uint64(c.GetReady()) + uint64(c.GetReserved()) + uint64(c.GetDead())
}

// dueCharts draws when jobs fall due: the minutes of the next hour, the hours of the next day, the
// days of the next month. A bar leads to its jobs.
func dueCharts(q *belfryv1.Queue) []chart.Bars {
	link := func(width time.Duration) func(time.Time) string {
		return func(start time.Time) string {
			return markup.Query("jobs", "queue", q.Name, "state", "delayed", "after", start.UTC().Format(time.RFC3339),
				"before", start.Add(width).UTC().Format(time.RFC3339))
		}
	}
	const day = 24 * time.Hour
	return []chart.Bars{
		{Title: "The next hour, by minutes", Width: time.Minute, Slices: 60, Label: "15:04", Due: q.Due.GetMinutes(),
			Link: link(time.Minute)},
		{Title: "The next day, by hours", Width: time.Hour, Slices: 24, Label: "15:04", Due: q.Due.GetHours(),
			Link: link(time.Hour)},
		{Title: "The next month, by days of UTC", Width: day, Slices: 30, Label: "01-02", Due: q.Due.GetDays(),
			Link: link(day)},
	}
}

// pauseQueue pauses a queue: without an end, for a time or until one.
func (p *Pages) pauseQueue(v *visit) (string, error) {
	name, settings := v.param("queue"), &belfryv1.QueueSettings{Paused: proto.Bool(true)}
	if text := strings.TrimSpace(v.param("for")); text != "" {
		length, until, err := form.Moment("for", text, v.clock.Zone)
		if err != nil {
			return "", err
		}
		if length != nil {
			until = timestamppb.New(p.cfg.Now().Add(length.AsDuration()))
		}
		if !until.AsTime().After(p.cfg.Now()) {
			return "", formError("for", "%q is over already; the end of a pause must be in the future", text)
		}
		settings.PausedUntil = until
	}
	return p.updateQueue(v, name, settings, "pause")
}

func (p *Pages) resumeQueue(v *visit) (string, error) {
	return p.updateQueue(v, v.param("queue"), &belfryv1.QueueSettings{Paused: proto.Bool(false)}, "resume")
}

func (p *Pages) updateQueue(v *visit, name string, settings *belfryv1.QueueSettings, done string) (string, error) {
	res, err := p.admin.UpdateQueue(v.ctx, &belfryv1.UpdateQueueRequest{Queue: name, Settings: settings})
	if err != nil {
		return "", err
	}
	return afterChange(name, done, res.PendingShards), nil
}

// purgeQueue removes the jobs of a queue in one state or in all. The name of the queue must have
// been typed.
func (p *Pages) purgeQueue(v *visit) (string, error) {
	name := v.param("queue")
	if err := form.Confirmed(v.param, "confirm", name, "remove its jobs"); err != nil {
		return "", err
	}
	state, err := selection.State(v.param("state"))
	if err != nil {
		return "", err
	}
	var states []belfryv1.JobState
	if state != belfryv1.JobState_JOB_STATE_UNSPECIFIED {
		states = append(states, state)
	}
	res, err := p.admin.PurgeQueue(v.ctx, &belfryv1.PurgeQueueRequest{Queue: name, States: states})
	if err != nil {
		return "", err
	}
	return markup.Query("queue", "queue", name, "done", "purge", "n", strconv.FormatUint(uint64(res.Purged), 10)), nil
}
