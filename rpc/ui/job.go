package ui

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// bodyShownMax is how many bytes of a body a page shows. The download has all of them.
const bodyShownMax = 16 << 10

// readJob reads a job, or what is remembered of one that has ended. What a person typed to find one
// may have spaces around it.
func (p *Pages) readJob(v *visit) (*belfryv1.GetResponse, error) {
	id := cmp.Or(v.param("id"), strings.TrimSpace(v.param("find")))
	req := &belfryv1.GetRequest{Queue: v.param("queue"), Id: id, Ended: true}
	res, err := p.queues.Get(v.ctx, req)
	if err != nil && unavailable(err) {
		req.Stale = true
		res, err = p.queues.Get(v.ctx, req)
	}
	return res, err
}

func (p *Pages) showJob(v *visit) (content, error) {
	res, err := p.readJob(v)
	if err != nil {
		return content{}, err
	}
	job := res.Job
	body := g.Group{
		path("Queues", "queues", job.Queue, query("queue", "queue", job.Queue)),
		h.H1(h.Span(h.Class("free"), g.Text(visible(job.Id))), tag(word(job.State))),
		staleMark(res.Stale, res.AsOf.AsTime(), v.clock),
		v.jobFacts(job),
	}
	if job.EndedAt == nil {
		body = append(body, g.If(len(job.Headers) > 0, section("Headers", headersOf(job))),
			section("Body", shownBody(job)...))
	}
	if job.EndedAt == nil && !p.cfg.ReadOnly {
		body = append(body, section("Actions", jobActions(job)))
	}
	return content{title: visible(job.Id), entry: "Queues", body: body}, nil
}

func (v *visit) jobFacts(j *belfryv1.Job) g.Node {
	attempts := grouped(j.Attempt)
	switch {
	case j.GetAttemptUnknown():
		attempts = "not known"
	case j.MaxAttempts > 0:
		attempts += " of " + grouped(j.MaxAttempts)
	}
	fence := ""
	if j.Fence > 0 {
		fence = strconv.FormatUint(j.Fence, 10)
	}
	rows := []g.Node{
		v.timeFact("Due", j.DueAt), v.timeFact("First due", j.FirstDueAt), v.timeFact("Put", j.CreatedAt),
		v.timeFact("Expires", j.ExpiresAt), v.timeFact("Ended", j.EndedAt), fact("Attempts", attempts),
		v.timeFact("Held since", j.LeaseSince), v.timeFact("Held until", j.LeaseUntil), fact("Fence", fence),
	}
	if j.EndedAt == nil {
		rows = append(rows, fact("Priority", strconv.Itoa(int(j.Priority))), fact("Lease (TTR)", duration(j.Ttr)),
			fact("Retry delays", delays(j.RetryDelays)))
	}
	return facts(append(rows, fact("Last error", visible(j.LastError)))...)
}

// headersOf shows the headers of a job by name.
func headersOf(j *belfryv1.Job) g.Node {
	var rows []g.Node
	for _, name := range slices.Sorted(maps.Keys(j.Headers)) {
		rows = append(rows, factOf(visible(name), h.Span(h.Class("free"), g.Text(visible(j.Headers[name])))))
	}
	return facts(rows...)
}

func shownBody(j *belfryv1.Job) []g.Node {
	text, form, shown := readable(bodyOf(j))
	about := fmt.Sprintf("%s bytes, shown as %s", grouped(j.BodyBytes), form)
	if uint64(shown) < uint64(j.BodyBytes) {
		about += ": the first " + grouped(uint64(shown))
	}
	return []g.Node{
		h.P(g.Text(about+" · "), h.A(h.Href(query("body", "queue", j.Queue, "id", j.Id)), g.Attr("download"),
			g.Text("download as it is"))),
		h.Pre(h.TabIndex("0"), h.Dir("ltr"), g.Text(text)),
	}
}

func jobActions(j *belfryv1.Job) g.Node {
	hidden := []string{"queue", j.Queue, "id", j.Id}
	held := j.State == belfryv1.JobState_JOB_STATE_RESERVED
	var forms g.Group
	switch {
	case held:
	case j.State == belfryv1.JobState_JOB_STATE_DEAD:
		forms = append(forms, action("redrive", hidden, button("Make ready again")))
	default:
		forms = append(forms, action("run-now", hidden, button("Run now")), action("reschedule", hidden,
			field("Due at or in", "due", h.Required(), width("20"), h.Placeholder("2026-01-31 15:04 or 2h")),
			button("Reschedule")))
	}
	forms = append(forms, action("cancel", append(hidden, "state", word(j.State)),
		g.If(held, h.Label(h.Input(h.Type("checkbox"), h.Name("force"), h.Value("yes"), h.Required()),
			g.Text(" although a consumer holds it "))),
		dangerButton("Cancel the job")))
	return h.Div(h.Class("actions"), forms)
}

// bodyOf returns the bytes of a body.
func bodyOf(job *belfryv1.Job) []byte {
	if text, ok := job.Body.(*belfryv1.Job_Text); ok {
		return []byte(text.Text)
	}
	return job.GetData()
}

// readable returns what a page shows of a body: JSON with indents, but else as it is, so that no
// number changes; text; or a dump of other bytes. shown is how many of its bytes that is.
func readable(body []byte) (text, form string, shown int) {
	part := body[:min(len(body), bodyShownMax)]
	var indented bytes.Buffer
	switch {
	case len(part) == len(body) && (bytes.HasPrefix(body, []byte("{")) || bytes.HasPrefix(body, []byte("["))) &&
		utf8.Valid(body) && json.Indent(&indented, body, "", "  ") == nil && indented.Len() <= 4*bodyShownMax:
		return visible(indented.String()), "JSON", len(body)
	case utf8.Valid(trimmed(part)) && !bytes.ContainsRune(part, 0):
		part = trimmed(part)
		return visible(string(part)), "text", len(part)
	default:
		part = part[:min(len(part), bodyShownMax/4)]
		return hex.Dump(part), "hex", len(part)
	}
}

// trimmed leaves out a character that was cut at the end.
func trimmed(part []byte) []byte {
	for n := 0; n < utf8.UTFMax && n < len(part); n++ {
		if r, size := utf8.DecodeLastRune(part[:len(part)-n]); r != utf8.RuneError || size > 1 {
			return part[:len(part)-n]
		}
	}
	return part
}

// visible writes characters that would change how the text around them looks, such as those that
// turn its direction, by their numbers.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return r
		}
		return '�'
	}, text)
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
	return query("job", "queue", v.param("queue"), "id", v.param("id"), "done", done)
}

func (p *Pages) runNow(v *visit) (string, error) {
	_, err := p.queues.Reschedule(v.ctx, &belfryv1.RescheduleRequest{Queue: v.param("queue"), Id: v.param("id"),
		When: &belfryv1.RescheduleRequest_Delay{Delay: durationpb.New(0)}})
	return v.jobAfter("run-now"), err
}

// rescheduleJob gives a job the due time, or the delay, that the form has.
func (p *Pages) rescheduleJob(v *visit) (string, error) {
	req := &belfryv1.RescheduleRequest{Queue: v.param("queue"), Id: v.param("id")}
	if delay, err := time.ParseDuration(strings.TrimSpace(v.param("due"))); err == nil {
		req.When = &belfryv1.RescheduleRequest_Delay{Delay: durationpb.New(delay)}
	} else {
		at, err := v.timeOf("due")
		if err != nil {
			return "", err
		}
		if at == nil {
			return "", formError("due", "give a time such as 2026-01-31 15:04, or a delay such as 90s or 2h")
		}
		req.When = &belfryv1.RescheduleRequest_DueAt{DueAt: at}
	}
	_, err := p.queues.Reschedule(v.ctx, req)
	return v.jobAfter("reschedule"), err
}

// cancelJob removes a job. One that a consumer holds is removed only if the form says so.
func (p *Pages) cancelJob(v *visit) (string, error) {
	_, err := p.queues.Cancel(v.ctx, &belfryv1.CancelRequest{Queue: v.param("queue"), Id: v.param("id"),
		Force: v.param("force") == "yes"})
	return query("jobs", "queue", v.param("queue"), "state", v.param("state"), "done", "cancel"), err
}

func (p *Pages) redriveJob(v *visit) (string, error) {
	_, err := p.queues.Redrive(v.ctx, &belfryv1.RedriveRequest{Queue: v.param("queue"), Ids: []string{v.param("id")}})
	return v.jobAfter("redrive"), err
}
