package ui

import (
	"io"
	"net/http"
	"slices"
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/export"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/keys"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/payload"
	"github.com/belfrydb/belfry/rpc/ui/selection"
)

// sizes are the numbers of jobs on a page that a person can choose.
func sizes() []string { return []string{"25", "100", "500"} }

// size returns how many jobs the page shows.
func (v *visit) size() string {
	if size := v.param("size"); slices.Contains(sizes(), size) {
		return size
	}
	return sizes()[0]
}

// jobsPage is a page of jobs: what it is of, and what was read for it.
type jobsPage struct {
	*visit
	of   selection.Selection
	list *belfryv1.ListResponse
	// counts are those of the queue, which may be a little old.
	counts *belfryv1.JobCounts
}

func (p *Pages) listJobs(v *visit) (content, error) {
	page := jobsPage{visit: v}
	var err error
	if page.of, err = selection.Read(v.param, v.clock.Zone); err != nil {
		return content{}, err
	}
	rows, _ := strconv.Atoi(v.size())
	req := page.of.List(int32(rows), v.param("from"))
	if page.list, err = p.queues.List(v.ctx, req); err != nil {
		return content{}, err
	}
	queue, err := p.admin.GetQueue(v.ctx, &belfryv1.GetQueueRequest{Queue: page.of.Queue, Stale: true})
	if err != nil {
		return content{}, err
	}
	page.counts = queue.Queue.Counts
	return content{title: "Jobs of " + page.of.Queue, entry: "Queues", body: g.Group{
		markup.Path("Queues", "queues", page.of.Queue, markup.Query("queue", "queue", page.of.Queue)),
		h.H1(g.Text("Jobs")),
		page.stateTabs(),
		page.filter(),
		page.searched(),
		page.table(),
		page.pager(),
		page.actions(),
	}}, nil
}

// stateTabs shows the states of jobs with their numbers.
func (page *jobsPage) stateTabs() g.Node {
	return h.Ul(h.Class("tabs"), g.Map(selection.States(), func(state belfryv1.JobState) g.Node {
		name := format.Word(state)
		return h.Li(h.A(h.Href(markup.Query("jobs", "queue", page.of.Queue, "state", name)),
			g.If(state == page.of.State, h.Aria("current", "page")), g.Text(name+" "),
			h.Span(h.Class("count"), g.Text(format.Grouped(selection.CountOf(page.counts, state))))))
	}))
}

// filter is the form that selects other jobs.
func (page *jobsPage) filter() g.Node {
	var lengths []markup.Option
	for _, n := range sizes() {
		lengths = append(lengths, markup.Option{Value: n, Text: n})
	}
	input := func(label, name, characters, example string) g.Node {
		return markup.Field(label, name, h.Value(page.param(name)), markup.Width(characters), h.Placeholder(example))
	}
	return markup.Filter("jobs", []string{"queue", page.of.Queue, "state", format.Word(page.of.State)},
		input("Due from", "after", "18", "2026-01-31 15:04"), input("to before", "before", "18", "2026-01-31 16:04"),
		input("Id begins with", "idPrefix", "16", "order-47"), input("Text", "text", "16", "in id, headers, error, body"),
		input("Key", "key", "16", "customer-42"),
		g.If(page.of.State == belfryv1.JobState_JOB_STATE_DEAD || page.of.Cause != "",
			input("Cause", "cause", "24", "smtp: # refused")),
		markup.Choice("Rows", "size", page.size(), lengths...), markup.Button("Show"))
}

// again is the page with these jobs, behind the page that gave a token.
func (page *jobsPage) again(token string) string {
	return markup.Query("jobs", append(page.of.Pairs(), "size", page.size(), "from", token)...)
}

// searched says how many jobs a search has looked at.
func (page *jobsPage) searched() g.Node {
	if !page.of.Searches() {
		return nil
	}
	total := selection.CountOf(page.counts, page.of.State)
	text := "Searched " + format.Grouped(page.list.Searched) + " of " +
		format.Grouped(max(total, page.list.Searched)) + " " + format.Word(page.of.State) + " jobs"
	next := page.list.NextPageToken
	return h.P(h.Class("pager"), g.Text(text), g.If(next != "", g.Group{g.Text(" · "),
		h.A(h.Rel("next"), h.Href(page.again(next)), g.Text("go on"))}))
}

// pager leads to the jobs that follow.
func (page *jobsPage) pager() g.Node {
	next := page.list.NextPageToken
	return g.If(next != "" && !page.of.Searches(),
		h.P(h.Class("pager"), h.A(h.Rel("next"), h.Href(page.again(next)), g.Text("The next "+page.size()))))
}

// table shows the jobs, with a box for each to choose it where there are actions.
func (page *jobsPage) table() g.Node {
	jobs := page.list.Jobs
	if len(jobs) == 0 {
		text := "No job of this selection is " + format.Word(page.of.State) + "."
		if page.list.NextPageToken != "" {
			text = "No job was found yet."
		}
		return h.P(g.Text(text))
	}
	acts := !page.pages.cfg.ReadOnly
	columns := markup.Headings("Id", "Due", "Attempts", "Priority", "Body", "Last error")
	if acts {
		columns = append([]g.Node{h.Td(h.Span(h.Class("unseen"), g.Text("Choose")))}, columns...)
	}
	table := markup.Grid("Jobs", columns, g.Map(jobs, func(j *belfryv1.Job) g.Node {
		return h.Tr(g.If(acts, h.Td(h.Input(h.Type("checkbox"), h.Name("job"),
			h.Value(selection.Job{ID: j.Id, Key: j.Key}.String()), h.Aria("label", "choose "+payload.Visible(j.Id))))),
			h.Th(h.Scope("row"), markup.IDLink(page.of.Queue, j.Id, j.Key)), h.Td(page.when(j.DueAt)),
			markup.Number(format.Grouped(j.Attempt)), markup.Number(strconv.FormatInt(j.Priority, 10)),
			markup.Number(format.Size(uint64(j.BodyBytes))), h.Td(h.Class("free"), g.Text(payload.Visible(j.LastError))))
	}))
	if !acts {
		return table
	}
	return markup.Acting("choose", page.hidden(), table,
		h.P(markup.Button("Act on the chosen jobs…"), g.Text(" "),
			h.Button(h.Type("button"), h.Class("quiet"), h.Data("checks", "job"), g.Attr("hidden"), g.Text("Choose all"))))
}

// hidden are the fields that say which page an action is on.
func (page *jobsPage) hidden() []string {
	return append(page.of.Pairs(), "size", page.size(), "from", page.param("from"), "on", "jobs")
}

// actions are those on all jobs of the selection: with their number, or else with a count first.
func (page *jobsPage) actions() g.Node {
	if page.of.Key != "" {
		return page.keyActions()
	}
	n, known := uint64(len(page.list.Jobs)), page.param("from") == "" && page.list.NextPageToken == ""
	if !known && !page.of.Narrowed() {
		n, known = selection.CountOf(page.counts, page.of.State), true
	}
	if known && n == 0 {
		return nil
	}
	download := page.download()
	switch {
	case page.pages.cfg.ReadOnly:
		return markup.Section("All that match", download)
	case known:
		return markup.Section("All "+selection.Jobs(n)+" that match", page.forms(&page.of, n, page.hidden()...), download)
	default:
		return markup.Section("All that match", h.Div(h.Class("actions"),
			markup.Acting("count", page.hidden(),
				page.requestIDOf("count"), markup.Button("Count all jobs that match"))), download)
	}
}

// download leads to the file with the jobs.
func (page *jobsPage) download() g.Node {
	return h.P(h.A(h.Href(markup.Query("export", page.of.Pairs()...)), g.Attr("download"),
		g.Text("Download as lines of JSON")))
}

// keyActions leads to the page of the key: no task acts on the jobs of one key.
func (page *jobsPage) keyActions() g.Node {
	return markup.Section("All that match", h.P(g.Text("All jobs of a key are paused or removed on the page of "),
		keys.Link(page.of.Queue, page.of.Key), g.Text(".")), page.download())
}

// exportJobs sends the jobs of a selection as lines of JSON. What fails after the first line ends the
// connection, so that a browser shows that the file is not complete.
func (p *Pages) exportJobs(w http.ResponseWriter, r *http.Request) {
	v := p.visit(w, r)
	of, err := selection.Read(v.param, v.clock.Zone)
	if err != nil {
		v.fail(err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Content-Disposition", `attachment; filename="jobs.ndjson"`)
	out := &begunWriter{Writer: w}
	if err := v.export(out, of); err != nil {
		w.Header().Del("Content-Disposition")
		v.fail(err)
	}
}

// export writes the jobs of a selection. It ends the connection if that fails after the first line.
func (v *visit) export(out *begunWriter, of selection.Selection) error {
	err := export.Write(v.ctx, out, v.pages.queues, of)
	if err != nil && out.begun {
		v.pages.cfg.Logger.WarnContext(v.ctx, "an export of jobs ended early", "queue", of.Queue, "error", err)
		panic(http.ErrAbortHandler)
	}
	return err
}

// begunWriter remembers whether something was written.
type begunWriter struct {
	io.Writer
	begun bool
}

func (w *begunWriter) Write(line []byte) (int, error) {
	w.begun = true
	return w.Writer.Write(line)
}
