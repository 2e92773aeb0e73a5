package ui

import (
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/inputs"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/payload"
	"github.com/belfrydb/belfry/rpc/ui/selection"
)

// listTasks shows the tasks that run, and the last ones that ended.
func (p *Pages) listTasks(v *visit) (content, error) {
	queue := v.param("queue")
	res, err := p.admin.ListTasks(v.ctx, &belfryv1.ListTasksRequest{Queue: queue})
	if err != nil {
		return content{}, err
	}
	part := markup.PagerOf(v.param("page"), len(res.Tasks))
	body := g.Group{h.H1(g.Text("Tasks")), v.catalogAge()}
	if queue != "" {
		body = append(body, h.P(g.Text("Of the queue "+payload.Visible(queue)+". "), markup.Link("tasks", "All queues")))
	}
	if len(res.Tasks) == 0 {
		body = append(body, h.P(g.Text("There are no tasks. A task acts on all jobs of a queue that match; the page of "+
			"the jobs begins one.")))
	} else {
		body = append(body, markup.Grid("Tasks", markup.Headings("Task", "Jobs", "Started", "Matched", "Changed", "Skipped",
			"State"), g.Map(res.Tasks[part.From:part.To], v.taskRow)), part.Links("tasks", "queue", queue))
	}
	return content{title: "Tasks", entry: "Tasks", live: true, body: body}, nil
}

// textMax is how many characters of a selection a row shows.
const textMax = 120

func (v *visit) taskRow(t *belfryv1.Task) g.Node {
	of := selection.OfTask(t)
	words := []rune(of.Words(v.clock))
	if len(words) > textMax {
		words = append(words[:textMax], '…')
	}
	return h.Tr(h.Th(h.Scope("row"), markup.Link(markup.Query("task", "id", t.Id), selection.What(t, v.clock))),
		h.Td(h.Class("free"), g.Text(string(words))), h.Td(v.when(t.StartedAt)), markup.Number(format.Grouped(t.Matched)),
		markup.Number(format.Grouped(t.Changed)), markup.Number(format.Grouped(t.Skipped)),
		h.Td(g.If(t.Trouble != "", h.Class("bad")), g.Text(selection.Status(t))))
}

// showTask shows how far a task has come. One that has counted offers what can be done to the jobs.
func (p *Pages) showTask(v *visit) (content, error) {
	res, err := p.admin.GetTask(v.ctx, &belfryv1.GetTaskRequest{Id: v.param("id")})
	if err != nil {
		return content{}, err
	}
	t := res.Task
	of := selection.OfTask(t)
	body := g.Group{
		markup.Path("Tasks", "tasks", t.Queue, markup.Query("queue", "queue", t.Queue)),
		h.H1(g.Text(selection.What(t, v.clock)), markup.Tag(selection.Status(t))), v.catalogAge(),
		h.P(h.Class("free"), markup.Link(markup.Query("jobs", of.Pairs()...), of.Words(v.clock))),
	}
	if t.EndedAt == nil {
		body = append(body, selection.Progress(t, p.jobsIn(v, &of)))
	}
	body = append(body, v.taskFacts(t))
	acts := !p.cfg.ReadOnly
	switch {
	case acts && t.EndedAt == nil && !t.Stopping:
		body = append(body, h.Div(h.Class("actions"), markup.Acting("stop-task", []string{"id", t.Id},
			markup.DangerButton("Stop"))))
	case acts && selection.Counts(t) && t.Matched > 0:
		body = append(body, markup.Section("All "+selection.Jobs(t.Matched)+" that matched",
			v.forms(&of, t.Matched, append(of.Pairs(), "on", "task", "id", t.Id)...)))
	}
	return content{title: selection.What(t, v.clock) + " in " + t.Queue, entry: "Tasks", live: true,
		soon: t.EndedAt == nil, body: body}, nil
}

// jobsIn returns about how many jobs of a state a queue has; 0 if that cannot be known now.
func (p *Pages) jobsIn(v *visit, of *selection.Selection) uint64 {
	res, err := p.admin.GetQueue(v.ctx, &belfryv1.GetQueueRequest{Queue: of.Queue, Stale: true})
	if err != nil {
		return 0
	}
	return selection.CountOf(res.Queue.Counts, of.State)
}

func (v *visit) taskFacts(t *belfryv1.Task) g.Node {
	matched, changed, skipped := format.Grouped(t.Matched), format.Grouped(t.Changed), format.Grouped(t.Skipped)
	if t.Act == belfryv1.TaskAct_TASK_ACT_COUNT {
		changed, skipped = "", ""
	}
	most, rate := "all that match", ""
	if t.Max > 0 {
		most = format.Grouped(t.Max)
	}
	if t.PerSecond > 0 {
		rate = format.Grouped(t.PerSecond)
	}
	return markup.Facts(markup.Fact("Searched", format.Grouped(t.Searched)), markup.Fact("Matched", matched),
		markup.Fact("Changed", changed), markup.Fact("Skipped, because they changed meanwhile", skipped),
		markup.Fact("Trouble", payload.Visible(t.Trouble)), markup.Fact("Acts on at most", most),
		markup.Fact("Acts a second, at most", rate), markup.Fact("Started by the token", t.StartedBy),
		v.timeFact("Started", t.StartedAt), v.timeFact("Ended", t.EndedAt))
}

// requestIDOf is requestID for a form beside others: the id of a form that was refused is not theirs.
func (v *visit) requestIDOf(act string) g.Node {
	if v.param("act") != act {
		return inputs.NewRequestID()
	}
	return v.RequestID()
}

// forms are the forms for acts on all jobs of a selection, which are so many.
func (v *visit) forms(of *selection.Selection, jobs uint64, hidden ...string) g.Node {
	f := selection.Forms{Path: "act-all", Hidden: append(hidden, "max", strconv.FormatUint(jobs, 10)), State: of.State,
		Jobs: jobs, Tasks: true, Input: v.Field,
		RequestID: func(act selection.Act) g.Node { return v.requestIDOf(string(act)) }}
	return f.Draw()
}

// pageOfForm is the page that has the form of an act on many jobs.
func (p *Pages) pageOfForm(v *visit) (content, error) {
	switch v.param("on") {
	case "task":
		return p.showTask(v)
	case "dead":
		return p.deadLetters(v)
	default:
		return p.listJobs(v)
	}
}

// startCount begins a task that counts the jobs of a selection.
func (p *Pages) startCount(v *visit) (string, error) {
	of, err := selection.ReadForTask(v.param, v.clock.Zone)
	if err != nil {
		return "", err
	}
	req := of.Task(belfryv1.TaskAct_TASK_ACT_COUNT)
	req.RequestId = v.param("requestId")
	return p.startTask(v, req)
}

// actOnAll begins a task that acts on the jobs of a selection: on as many as the button said.
func (p *Pages) actOnAll(v *visit) (string, error) {
	of, err := selection.ReadForTask(v.param, v.clock.Zone)
	if err != nil {
		return "", err
	}
	order, err := selection.ReadOrder(v.param, of.State, v.clock.Zone)
	if err != nil {
		return "", err
	}
	most, err := strconv.ParseUint(v.param("max"), 10, 64)
	if err != nil || most == 0 {
		return "", formError("max", "%q is no number of jobs from 1 to 18446744073709551615", v.param("max"))
	}
	return p.startTask(v, order.Task(&of, most, v.param("requestId")))
}

func (p *Pages) startTask(v *visit, req *belfryv1.StartTaskRequest) (string, error) {
	res, err := p.admin.StartTask(v.ctx, req)
	if err != nil {
		return "", err
	}
	return markup.Query("task", "id", res.Task.Id, "done", "task"), nil
}

func (p *Pages) stopTask(v *visit) (string, error) {
	_, err := p.admin.StopTask(v.ctx, &belfryv1.StopTaskRequest{Id: v.param("id")})
	return markup.Query("task", "id", v.param("id"), "done", "stop-task"), err
}
