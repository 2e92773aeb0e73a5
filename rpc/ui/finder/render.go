package finder

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/payload"
)

// Covered says what a search has looked at, and leads on. queue is the only queue that was searched; empty
// if it were all.
func (s *Search) Covered(found *Found, queue string) g.Node {
	where := "all queues"
	if queue != "" {
		where = "the queue " + payload.Visible(queue)
	}
	text := "Searched " + format.Grouped(found.Searched) + " jobs of " + where + ", in ids, headers, errors and bodies"
	if found.Next != nil {
		next := markup.Query("find", "job", s.Text, "queue", queue, "from", found.Next.String())
		return g.Group{h.P(h.Class("pager"), g.Textf("%s, up to the %s jobs of %s · ", text, format.Word(found.Next.State),
			found.Next.Queue), h.A(h.Rel("next"), h.Href(next), g.Text("go on")))}
	}
	return g.Group{
		h.P(h.Class("pager"), g.Text(text+": everything.")),
		g.If(len(found.Denied) > 0, h.P(h.Class("warning"), g.Text("Your token does not show the jobs of "+
			format.Plural(len(found.Denied), "queue")+", which were not searched."))),
	}
}

// Table shows the jobs that were found. If there are none in the only queue that was searched, it leads
// to the search in all.
func (f *Found) Table(clock format.Clock, text, queue string) g.Node {
	if len(f.Jobs) == 0 {
		return h.P(g.Text("No job was found. Upper and lower case must fit."), g.If(queue != "" && f.Next == nil,
			g.Group{g.Text(" "), markup.Link(markup.Query("find", "job", text), "Search all queues")}))
	}
	return markup.Grid("Jobs", markup.Headings("Id", "Queue", "State", "Due", "Last error"),
		g.Map(f.Jobs, func(j *belfryv1.Job) g.Node {
			return h.Tr(h.Th(h.Scope("row"), markup.IDLink(j.Queue, j.Id, j.Key)),
				h.Td(markup.Link(markup.Query("queue", "queue", j.Queue), j.Queue)), h.Td(g.Text(format.Word(j.State))),
				h.Td(markup.Time(clock, j.DueAt)), h.Td(h.Class("free"), g.Text(payload.Visible(j.LastError))))
		}))
}
