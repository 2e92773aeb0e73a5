package schedules

import (
	"context"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/payload"
)

const (
	// askedAtOnce is how many queues are asked at one time, each for a page of partOfQueue schedules.
	askedAtOnce, partOfQueue = 16, 25
	// lookMax is how long a page asks queues, and those of one time more.
	lookMax = 50 * time.Millisecond
)

// place is where the page of all queues goes on: with a queue, behind the page that gave the token.
type place struct{ queue, token string }

// String writes a place for a query; nothing for the beginning.
func (p place) String() string { return strings.TrimSpace(p.queue + " " + p.token) }

// readPlace reads what String wrote. What is none is the beginning.
func readPlace(text string) place {
	queue, token, _ := strings.Cut(text, " ")
	return place{queue, token}
}

// found are the schedules of some queues.
type found struct {
	schedules []*belfryv1.Schedule
	// looked is how many queues are done, those before the place it began at too; denied how many the
	// token does not show.
	looked, denied int
	// next is where to go on; nil if all queues were looked at.
	next *place
}

// ListAll shows the schedules of queues, which are in the order of their names. No call has those of
// several queues, so a page asks queues until it is full, or for lookMax.
func (v *Visit) ListAll(ctx context.Context, queues []*belfryv1.Queue) (markup.Page, error) {
	has := strings.TrimSpace(v.In("filter"))
	var names []string
	for _, q := range queues {
		if strings.Contains(strings.ToLower(q.Name), strings.ToLower(has)) {
			names = append(names, q.Name)
		}
	}
	out, err := v.look(ctx, names, readPlace(v.In("from")))
	if err != nil {
		return markup.Page{}, explained(err)
	}
	table := h.P(g.Text("No schedule was found. "), h.Code(g.Text("belfry schedule put")), g.Text(" makes one."))
	if len(out.schedules) > 0 {
		table = v.table(out.schedules, ofQueue())
	}
	of := format.Plural(len(names), "queue")
	if has != "" {
		of += " with “" + payload.Visible(has) + "” in the name"
	}
	pager := h.P(h.Class("pager"), g.Text("All "+of+" were looked at."))
	if out.next != nil {
		next := markup.Query("schedules", "filter", has, "from", out.next.String())
		pager = h.P(h.Class("pager"), g.Textf("Looked at %d of %s · ", out.looked, of),
			h.A(h.Rel("next"), h.Href(next), g.Text("go on")))
	}
	return markup.Page{Title: "Schedules", Body: g.Group{
		h.H1(g.Text("Schedules")),
		markup.Filter("schedules", nil, markup.Field("Queue has", "filter", h.Value(has), h.Type("search"),
			h.MaxLength("256")), markup.Button("Filter")),
		table, pager,
		g.If(out.denied > 0, h.P(h.Class("warning"), g.Text("Your token does not show the schedules of "+
			format.Plural(out.denied, "queue")+", which were left out."))),
	}}, nil
}

// look asks queues from a place on.
func (v *Visit) look(ctx context.Context, names []string, from place) (*found, error) {
	out, began := &found{}, time.Now()
	for len(names) > 0 && names[0] < from.queue {
		names, out.looked = names[1:], out.looked+1
	}
	for len(names) > 0 {
		if len(out.schedules) >= rows || out.looked > 0 && time.Since(began) > lookMax {
			out.next = &place{queue: names[0]}
			return out, nil
		}
		some := names[:min(len(names), askedAtOnce)]
		for i, a := range v.ask(ctx, some, from) {
			switch code := connect.CodeOf(a.err); {
			case a.err != nil && code == connect.CodePermissionDenied:
				out.denied++
			case a.err != nil:
				return nil, a.err
			}
			out.schedules = append(out.schedules, a.page.GetSchedules()...)
			if token := a.page.GetNextPageToken(); token != "" {
				out.next = &place{some[i], token}
				return out, nil
			}
			out.looked++
		}
		names = names[len(some):]
	}
	return out, nil
}

// answer is what a queue answered.
type answer struct {
	page *belfryv1.ListSchedulesResponse
	err  error
}

// ask asks queues at one time. The answers are in their order.
func (v *Visit) ask(ctx context.Context, queues []string, from place) []answer {
	answers := make([]answer, len(queues))
	var calls sync.WaitGroup
	for i, queue := range queues {
		req := &belfryv1.ListSchedulesRequest{Queue: queue, PageSize: partOfQueue}
		if queue == from.queue {
			req.PageToken = from.token
		}
		calls.Go(func() { answers[i].page, answers[i].err = v.API.ListSchedules(ctx, req) })
	}
	calls.Wait()
	return answers
}
