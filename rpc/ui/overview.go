package ui

import (
	"context"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/fallback"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/health"
	"github.com/belfrydb/belfry/rpc/ui/many"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/sums"
)

// queueList has every queue that a person may see.
type queueList struct {
	queues []*belfryv1.Queue
	totals sums.Totals
	// suspects need attention.
	suspects []sums.Suspect
	due      sums.Due
}

// allQueues returns all queues, as they were some seconds ago at most. Nobody may change them.
func (v *visit) allQueues() (*queueList, error) {
	return v.pages.queuesOf(v.ctx, v.token())
}

const (
	// listFresh is for how long a list of all queues is shown again without another read, and listOld
	// how old one may be that is shown while another is read.
	listFresh, listOld = time.Second, 15 * time.Second
)

// queuesAtOnce is the size of a page of the API.
const queuesAtOnce = 1000

// queuesOf is allQueues for a token.
func (p *Pages) queuesOf(ctx context.Context, token string) (*queueList, error) {
	return shared(ctx, token, p.allQueues, p.readQueues)
}

// readQueues reads all queues.
func (p *Pages) readQueues(ctx context.Context) (*queueList, error) {
	list, req := &queueList{}, &belfryv1.ListQueuesRequest{PageSize: queuesAtOnce}
	for {
		res, err := p.admin.ListQueues(ctx, req)
		if err != nil {
			return nil, err
		}
		list.due.Add(res.Due)
		for _, q := range res.Queues {
			list.totals.Add(q)
		}
		list.queues = append(list.queues, res.Queues...)
		if res.NextPageToken == "" {
			list.suspects = sums.Suspects(list.queues)
			return list, nil
		}
		req.PageToken = res.NextPageToken
	}
}

func (p *Pages) overview(v *visit) (content, error) {
	list, err := v.allQueues()
	if err != nil {
		return content{}, err
	}
	var dead *many.Dead
	if list.totals.Dead > 0 {
		if dead, err = v.topCauses(); err != nil {
			return content{}, err
		}
	}
	cluster, err := p.admin.GetCluster(v.ctx, &belfryv1.GetClusterRequest{})
	if err != nil && !forbidden(err) {
		return content{}, err
	}
	all := &list.totals
	return content{title: "Overview", entry: "Overview", live: true, body: g.Group{
		h.H1(g.Text("Overview")), fallback.MarkCatalog(cluster, v.clock),
		markup.Figures(markup.Figure{Name: "Queues", Value: format.Grouped(uint64(len(list.queues))), Target: "queues"},
			markup.Figure{Name: "Delayed", Value: format.Grouped(all.Delayed)}, markup.Figure{Name: "Ready",
				Value: format.Grouped(all.Ready)},
			markup.Figure{Name: "Reserved", Value: format.Grouped(all.Reserved)},
			markup.Figure{Name: "Dead", Value: format.Grouped(all.Dead), Target: "dead", Bad: all.Dead > 0},
			markup.Figure{Name: "Stored", Value: format.Size(all.Bytes)}),
		markup.Section("Cluster", health.Summary(cluster)),
		markup.Section("Queues to look at", suspectsTable(list.suspects)),
		g.If(all.Dead > 0, markup.Section("Dead by error", v.causesTable(dead, all.Dead))),
		h.Div(h.Class("columns"),
			markup.Section("Per second, over the last minute", markup.Facts(markup.Fact("Put", format.Rate(all.Puts)),
				markup.Fact("Handed out", format.Rate(all.Reserves)), markup.Fact("Acked", format.Rate(all.Acks)))),
			markup.Section("Falls due", list.due.Facts())),
	}}, nil
}

func suspectsTable(all []sums.Suspect) g.Node {
	if len(all) == 0 {
		return h.P(g.Text("No queue has dead jobs, or jobs that have been ready for a minute."))
	}
	return markup.Grid("Queues to look at", markup.Headings("Queue", "Why"), g.Map(all, func(s sums.Suspect) g.Node {
		return h.Tr(h.Th(h.Scope("row"), markup.Link(markup.Query("queue", "queue", s.Queue.Name), s.Queue.Name)),
			h.Td(g.Text(strings.Join(s.Because, ", "))))
	}))
}
