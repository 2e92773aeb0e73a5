package ui

import (
	"slices"
	"strings"

	"connectrpc.com/connect"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/finder"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/payload"
)

// findBox is the form at the head of every page. The queue of the page is in it.
func (v *visit) findBox() g.Node {
	input := func(label, name, value, example string, more ...g.Node) g.Node {
		id := "find-" + name
		return g.Group{h.Label(h.Class("unseen"), h.For(id), g.Text(label)), h.Input(h.ID(id), h.Name(name),
			h.Type("search"), h.Value(value), h.Placeholder(example), h.MaxLength("256"), g.Group(more))}
	}
	return h.Form(h.Method("get"), h.Action("find"), h.Role("search"), h.Class("find"),
		input("Find a job by its id or a text", "job", payload.Visible(v.param("job")), "Find a job: id or text",
			h.Required()),
		input("in the queue", "queue", payload.Visible(v.param("queue")), "in any queue"),
		markup.Button("Find"))
}

// find opens the job with an id in a queue. Otherwise it searches the queue, or all queues, for as
// long as a search may take.
func (p *Pages) find(v *visit) (content, error) {
	text, queue := strings.TrimSpace(v.param("job")), strings.TrimSpace(v.param("queue"))
	if text == "" {
		return content{}, formError("find-job", "an id or a text is required")
	}
	search := finder.Search{Jobs: p.queues, Text: text, Place: finder.ReadPlace(v.param("from")), Now: p.cfg.Now}
	if queue == "" {
		all, err := v.allQueues()
		if err != nil {
			return content{}, err
		}
		search.Queues = all.queues
	} else {
		_, err := p.queues.Get(v.ctx, &belfryv1.GetRequest{Queue: queue, Id: text, Ended: true})
		if err == nil {
			return content{target: markup.Query("job", "queue", queue, "id", text)}, nil
		}
		if code := connect.CodeOf(err); code != connect.CodeNotFound && code != connect.CodeUnavailable {
			return content{}, err
		}
		res, err := p.admin.GetQueue(v.ctx, &belfryv1.GetQueueRequest{Queue: queue, Stale: true})
		if err != nil {
			return content{}, err
		}
		search.Queues = []*belfryv1.Queue{res.Queue}
	}
	found, err := search.Do(v.ctx)
	if err != nil {
		return content{}, err
	}
	if job := theOnly(found, text); job != nil && search.Place == (finder.Place{}) {
		return content{target: markup.Query("job", "queue", job.Queue, "id", job.Id)}, nil
	}
	return content{title: "Find a job", body: g.Group{
		h.H1(g.Text("Jobs with “" + payload.Visible(text) + "”")),
		v.searchedAll(found, &search, queue),
		v.foundTable(found.Jobs),
	}}, nil
}

// theOnly returns the job with an id, if everything was searched and no other queue has one.
func theOnly(found *finder.Found, id string) *belfryv1.Job {
	has := func(j *belfryv1.Job) bool { return j.Id == id }
	i := slices.IndexFunc(found.Jobs, has)
	if found.Next != nil || i < 0 || slices.ContainsFunc(found.Jobs[i+1:], has) {
		return nil
	}
	return found.Jobs[i]
}

// searchedAll says what a search has looked at, and leads on.
func (v *visit) searchedAll(found *finder.Found, search *finder.Search, queue string) g.Node {
	where := "all queues"
	if queue != "" {
		where = "the queue " + payload.Visible(queue)
	}
	text := "Searched " + format.Grouped(found.Searched) + " jobs of " + where + ", in ids, headers, errors and bodies"
	if found.Next != nil {
		next := markup.Query("find", "job", search.Text, "queue", queue, "from", found.Next.String())
		return g.Group{h.P(h.Class("pager"), g.Textf("%s, up to the %s jobs of %s · ", text, format.Word(found.Next.State),
			found.Next.Queue), h.A(h.Rel("next"), h.Href(next), g.Text("go on")))}
	}
	return g.Group{
		h.P(h.Class("pager"), g.Text(text+": everything.")),
		g.If(len(found.Denied) > 0, h.P(h.Class("warning"), g.Text("Your token does not show the jobs of "+
			format.Plural(len(found.Denied), "queue")+", which were not searched."))),
	}
}

func (v *visit) foundTable(jobs []*belfryv1.Job) g.Node {
	if len(jobs) == 0 {
		return h.P(g.Text("No job was found. Upper and lower case must fit."))
	}
	return markup.Grid("Jobs", markup.Headings("Id", "Queue", "State", "Due", "Last error"),
		g.Map(jobs, func(j *belfryv1.Job) g.Node {
			return h.Tr(h.Th(h.Scope("row"), markup.IDLink(j.Queue, j.Id)),
				h.Td(markup.Link(markup.Query("queue", "queue", j.Queue), j.Queue)), h.Td(g.Text(format.Word(j.State))),
				h.Td(v.when(j.DueAt)), h.Td(h.Class("free"), g.Text(payload.Visible(j.LastError))))
		}))
}
