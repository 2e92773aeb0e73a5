package ui

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/keys"
	"github.com/belfrydb/belfry/rpc/ui/many"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/payload"
	"github.com/belfrydb/belfry/rpc/ui/schedules"
)

// readJob reads a job, or what is remembered of one that has ended.
func (p *Pages) readJob(v *visit) (*belfryv1.GetResponse, error) {
	return p.queues.Get(v.ctx, &belfryv1.GetRequest{Queue: v.param("queue"), Id: v.param("id"),
		Key: v.param("key"), Ended: true})
}

func (p *Pages) showJob(v *visit) (content, error) {
	res, err := p.readJob(v)
	if err != nil {
		return content{}, err
	}
	job := res.Job
	body := g.Group{
		markup.Path("Queues", "queues", job.Queue, markup.Query("queue", "queue", job.Queue)),
		h.H1(h.Span(h.Class("free"), g.Text(payload.Visible(job.Id))), markup.Tag(format.Word(job.State))),
		v.whyReady(job), v.jobFacts(job),
		g.If(len(job.Attempts) > 0, markup.Section("Last failed attempts", v.attemptsTable(job))),
	}
	switch {
	case job.EndedAt != nil:
	case v.look.HidesBodies && v.param("bodies") != "shown":
		body = append(body, markup.Section("Headers and body", h.P(g.Text(format.Plural(len(job.Headers), "header")+" and "+
			format.Grouped(job.BodyBytes)+" bytes are hidden. "), markup.Link(v.jobPage(job, "bodies", "shown"),
			"Show them"))))
	default:
		body = append(body, g.If(len(job.Headers) > 0, markup.Section("Headers", headersOf(job))),
			markup.Section("Body", v.shownBody(job)...))
	}
	if job.EndedAt == nil && !p.cfg.ReadOnly {
		body = append(body, markup.Section("Actions", v.jobActions(job)))
	}
	commands, err := v.commands(job)
	if err != nil {
		return content{}, err
	}
	body = append(body, markup.Section("By curl", markup.Copied("curl", commands)))
	return content{title: payload.Visible(job.Id), entry: "Queues", body: body}, nil
}

// whyReady says why nobody takes a ready job; nothing if that is not known.
func (v *visit) whyReady(j *belfryv1.Job) g.Node {
	if j.State != belfryv1.JobState_JOB_STATE_READY {
		return nil
	}
	res, err := v.pages.admin.GetQueue(v.ctx, &belfryv1.GetQueueRequest{Queue: j.Queue})
	switch q := res.GetQueue(); {
	case err != nil: // the page is about the job
		return nil
	case q.Settings.GetPaused():
		return h.P(h.Class("warning"), g.Text("The queue is "+v.paused(q.Settings)+", so nobody gets the job."))
	case j.Key != "":
		return h.P(g.Text("If its key keeps it waiting, the page of the key says why: "), keys.Link(j.Queue, j.Key))
	case q.WaitingConsumers != nil && *q.WaitingConsumers == 0:
		return h.P(h.Class("warning"), g.Text("No consumer waits for jobs of this queue now. The next one that asks "+
			"gets it."))
	}
	return nil
}

func (v *visit) jobFacts(j *belfryv1.Job) g.Node {
	attempts := format.Grouped(j.Attempt)
	switch {
	case j.GetAttemptUnknown():
		attempts = "not known"
	case j.MaxAttempts > 0:
		attempts += " of " + format.Grouped(j.MaxAttempts)
	}
	fence := ""
	if j.Fence > 0 {
		fence = strconv.FormatUint(j.Fence, 10)
	}
	rows := []g.Node{
		v.timeFact("Due", j.DueAt), v.timeFact("First due", j.FirstDueAt), v.timeFact("Put", j.CreatedAt),
		v.timeFact("Expires", j.ExpiresAt), v.timeFact("Ended", j.EndedAt), keys.Fact(j), schedules.Fact(j),
		markup.Fact("Version", versionText(j)), markup.Fact("Attempts", attempts),
		markup.Fact("Held by", payload.Visible(j.Client)), v.timeFact("Held since", j.ReservedAt),
		v.timeFact("Lease since", j.LeaseSince), v.timeFact("Held until", j.LeaseUntil), markup.Fact("Fence", fence),
	}
	if j.EndedAt == nil {
		rows = append(rows, markup.Fact("Priority", strconv.FormatInt(j.Priority, 10)), markup.Fact("Lease (TTR)",
			format.Duration(j.Ttr)),
			markup.Fact("Retry delays", delays(j.RetryDelays)))
	}
	return markup.Facts(append(rows, markup.Fact("Last error", payload.Visible(j.LastError)),
		v.causeFact(j))...)
}

// causeFact leads from a dead job to those that died of the same.
func (v *visit) causeFact(j *belfryv1.Job) g.Node {
	group := many.DeadGroup{Queue: j.Queue, Cause: j.Cause}
	of := group.Selection()
	return g.If(j.Cause != "", markup.FactOf("Cause", h.Span(h.Class("free"),
		markup.Link(markup.Query("jobs", of.Pairs()...), payload.Visible(j.Cause)))))
}

// attemptsTable shows the last failed attempts of a job, oldest first.
func (v *visit) attemptsTable(j *belfryv1.Job) g.Node {
	return markup.Grid("Last failed attempts", markup.Headings("Attempt", "Began", "Ended", "Took", "Consumer", "Error"),
		g.Map(j.Attempts, func(a *belfryv1.Attempt) g.Node {
			took := "not known"
			if a.BeganAt != nil && a.EndedAt != nil {
				took = format.Span(a.EndedAt.AsTime().Sub(a.BeganAt.AsTime()))
			}
			failure := cmp.Or(payload.Visible(a.Error), "no error text")
			if a.Lapsed {
				failure = "the lease lapsed: the consumer said nothing in time"
			}
			return h.Tr(h.Th(h.Scope("row"), g.Text(format.Grouped(a.Number))), h.Td(v.when(a.BeganAt)),
				h.Td(v.when(a.EndedAt)), markup.Number(took), h.Td(h.Class("free"),
					g.Text(cmp.Or(payload.Visible(a.Client), "not known"))), h.Td(h.Class("free"), g.Text(failure)))
		}))
}

// headersOf shows the headers of a job by name.
func headersOf(j *belfryv1.Job) g.Node {
	var rows []g.Node
	for _, name := range slices.Sorted(maps.Keys(j.Headers)) {
		rows = append(rows, h.Tr(h.Th(h.Scope("row"), h.Class("free"), g.Text(payload.Visible(name))),
			h.Td(h.Class("free"), g.Text(payload.Visible(j.Headers[name])))))
	}
	return markup.Facts(rows...)
}

// jobPage is the page of a job as it is shown now, with something else.
func (v *visit) jobPage(j *belfryv1.Job, name, value string) string {
	pairs := []string{"queue", j.Queue, "id", j.Id, "key", j.Key, "as", v.param("as"), "bodies", v.param("bodies")}
	return markup.Query("job", append(pairs, name, value)...)
}

func (v *visit) shownBody(j *belfryv1.Job) []g.Node {
	shown := payload.Show(bodyOf(j), v.param("as"))
	about := format.Grouped(j.BodyBytes) + " bytes"
	if uint64(shown.Shown) < uint64(j.BodyBytes) {
		about += ": the first " + format.Grouped(uint64(shown.Shown))
	}
	names := map[string]string{payload.JSON: "JSON", payload.Text: "text", payload.Hex: "hex"}
	return []g.Node{
		h.Ul(h.Class("tabs"), g.Map(shown.Forms, func(form string) g.Node {
			return h.Li(h.A(h.Href(v.jobPage(j, "as", form)), g.If(form == shown.Form, h.Aria("current", "page")),
				g.Text(names[form])))
		}), h.Li(h.A(h.Href(markup.Query("body", "queue", j.Queue, "id", j.Id, "key", j.Key)), g.Attr("download"),
			g.Text("download as it is")))),
		h.P(h.Class("help"), g.Text(about)),
		shown.Node,
	}
}

// commands are the calls about a job as commands of a shell.
func (v *visit) commands(j *belfryv1.Job) (string, error) {
	url, header := "http://"+v.r.Host, ""
	if ThroughTLS(v.r) {
		url = "https://" + v.r.Host
	}
	if v.token() != "" {
		header = "Authorization: Bearer $TOKEN"
	}
	return payload.Commands(j, url, header)
}

func (v *visit) jobActions(j *belfryv1.Job) g.Node {
	hidden := []string{"queue", j.Queue, "id", j.Id, "key", j.Key}
	held := j.State == belfryv1.JobState_JOB_STATE_RESERVED
	var forms g.Group
	switch {
	case held:
	case j.State == belfryv1.JobState_JOB_STATE_DEAD:
		forms = append(forms, markup.Acting("redrive", hidden, markup.Button("Make ready again")))
	default:
		forms = append(forms, markup.Acting("run-now", hidden, markup.Button("Run now")), markup.Acting("reschedule",
			hidden,
			v.Field("Due at or in", "due", h.Required(), markup.Width("20"), h.Placeholder("2026-01-31 15:04 or 2h")),
			markup.Button("Reschedule")))
	}
	forms = append(forms, markup.Acting("cancel", append(hidden, "state", format.Word(j.State)),
		g.If(held, h.Label(h.Input(h.Type("checkbox"), h.Name("force"), h.Value("yes"), h.Required()),
			g.Text(" although a consumer holds it "))),
		markup.DangerButton("Cancel the job")))
	return h.Div(h.Class("actions"), forms)
}

// bodyOf returns the bytes of a body.
func bodyOf(job *belfryv1.Job) []byte {
	if text, ok := job.Body.(*belfryv1.Job_Text); ok {
		return []byte(text.Text)
	}
	return job.GetData()
}

// download sends the body of a job byte for byte.
func (p *Pages) download(w http.ResponseWriter, r *http.Request) {
	v := p.visit(w, r)
	res, err := p.readJob(v)
	if err != nil {
		v.fail(err)
		return
	}
	body := bodyOf(res.Job)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="body"`)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	// What fails here is the caller's connection, which net/http closes.
	_, _ = w.Write(body)
}

// jobAfter returns the page of the job of a form, with the notice about what was done.
func (v *visit) jobAfter(done string) string {
	return markup.Query("job", "queue", v.param("queue"), "id", v.param("id"), "key", v.param("key"), "done", done)
}

func (p *Pages) runNow(v *visit) (string, error) {
	_, err := p.queues.Reschedule(v.ctx, &belfryv1.RescheduleRequest{Queue: v.param("queue"), Id: v.param("id"),
		Key: v.param("key"), When: &belfryv1.RescheduleRequest_Delay{Delay: durationpb.New(0)}})
	return v.jobAfter("run-now"), err
}

// rescheduleJob gives a job the due time, or the delay, that the form has.
func (p *Pages) rescheduleJob(v *visit) (string, error) {
	req := &belfryv1.RescheduleRequest{Queue: v.param("queue"), Id: v.param("id"), Key: v.param("key")}
	delay, at, err := form.Moment("due", strings.TrimSpace(v.param("due")), v.clock.Zone)
	switch {
	case err != nil:
		return "", err
	case delay != nil:
		req.When = &belfryv1.RescheduleRequest_Delay{Delay: delay}
	default:
		req.When = &belfryv1.RescheduleRequest_DueAt{DueAt: at}
	}
	_, err = p.queues.Reschedule(v.ctx, req)
	return v.jobAfter("reschedule"), err
}

// cancelJob removes a job. One that a consumer holds is removed only if the form says so.
func (p *Pages) cancelJob(v *visit) (string, error) {
	_, err := p.queues.Cancel(v.ctx, &belfryv1.CancelRequest{Queue: v.param("queue"), Id: v.param("id"),
		Key: v.param("key"), Force: v.param("force") == "yes"})
	return markup.Query("jobs", "queue", v.param("queue"), "state", v.param("state"), "done", "cancel"), err
}

func (p *Pages) redriveJob(v *visit) (string, error) {
	_, err := p.queues.Redrive(v.ctx, &belfryv1.RedriveRequest{Queue: v.param("queue"), Ids: []string{v.param("id")}})
	return v.jobAfter("redrive"), err
}
