package ui

import (
	"slices"
	"strings"

	"connectrpc.com/connect"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/finder"
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
		input("Find a job by its id or a text", "job", v.param("job"), "Find a job: id or text",
			h.Required()),
		input("in the queue", "queue", v.param("queue"), "in any queue"),
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
		got, err := p.queues.Get(v.ctx, &belfryv1.GetRequest{Queue: queue, Id: text, Ended: true})
		if err == nil {
			return content{target: markup.Query("job", "queue", queue, "id", text, "key", got.Job.Key)}, nil
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
		return content{target: markup.Query("job", "queue", job.Queue, "id", job.Id, "key", job.Key)}, nil
	}
	var instead g.Node
	word := finder.Word(text)
	if len(found.Jobs) == 0 && found.Next == nil && search.Place == (finder.Place{}) && word != "" {
		instead = h.P(h.Class("warning"), g.Text("Nothing was found for “"+payload.Visible(text)+
			"”. This is the search for “"+payload.Visible(word)+"”."))
		search.Text, search.Place = word, finder.Place{}
		if found, err = search.Do(v.ctx); err != nil {
			return content{}, err
		}
	}
	return content{title: "Find a job", body: g.Group{
		h.H1(g.Text("Jobs with “" + payload.Visible(text) + "”")), instead,
		search.Covered(found, queue), found.Table(v.clock, search.Text, queue),
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
