package ui

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/findings"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/markup"
)

// totals are sums over all queues that a person may see.
type totals struct {
	delayed, ready, reserved, dead, bytes uint64
	puts, reserves, acks                  float64
}

func (t *totals) add(q *belfryv1.Queue) {
	t.delayed += uint64(q.Counts.GetDelayed())
	t.ready += uint64(q.Counts.GetReady())
	t.reserved += uint64(q.Counts.GetReserved())
	t.dead += uint64(q.Counts.GetDead())
	t.bytes += q.Bytes
	t.puts += q.Rates.GetPutsPerSecond()
	t.reserves += q.Rates.GetReservesPerSecond()
	t.acks += q.Rates.GetAcksPerSecond()
}

// queueList has every queue that a person may see.
type queueList struct {
	queues []*belfryv1.Queue
	totals totals
	due    due
	// stale says that a shard without a leader was answered for by a replica, as of the time of the
	// oldest figures.
	stale bool
	asOf  time.Time
}

// allQueues returns all queues, as they were some seconds ago at most. Nobody may change them.
func (v *visit) allQueues() (*queueList, error) {
	return v.pages.allQueues.Get(v.ctx, v.token(), v.pages.readQueues)
}

// readQueues reads all queues. If a shard has no leader, it reads what the replicas have.
func (p *Pages) readQueues(ctx context.Context) (*queueList, error) {
	list, err := p.readQueuesFrom(ctx, &belfryv1.ListQueuesRequest{PageSize: queuesAtOnce})
	if err != nil && unavailable(err) {
		return p.readQueuesFrom(ctx, &belfryv1.ListQueuesRequest{PageSize: queuesAtOnce, Stale: true})
	}
	return list, err
}

const (
	// listFresh is for how long a list of all queues is shown again without another read, and listOld
	// how old one may be that is shown while another is read.
	listFresh, listOld = time.Second, 15 * time.Second
)

// queuesAtOnce is the size of a page of the API.
const queuesAtOnce = 1000

func (p *Pages) readQueuesFrom(ctx context.Context, req *belfryv1.ListQueuesRequest) (*queueList, error) {
	list := &queueList{}
	for {
		res, err := p.admin.ListQueues(ctx, req)
		if err != nil {
			return nil, err
		}
		list.stale = list.stale || res.Stale
		list.due.add(res.Due)
		for _, q := range res.Queues {
			list.totals.add(q)
			if at := q.AsOf.AsTime(); q.AsOf != nil && (list.asOf.IsZero() || at.Before(list.asOf)) {
				list.asOf = at
			}
		}
		list.queues = append(list.queues, res.Queues...)
		if res.NextPageToken == "" {
			return list, nil
		}
		req.PageToken = res.NextPageToken
	}
}

// due says how many jobs fall due when.
type due struct{ overdue, minute, hour, day, month, later uint64 }

func (d *due) add(h *belfryv1.DueHistogram) {
	d.overdue += uint64(h.GetOverdue())
	d.minute += uint64(h.GetNextMinute())
	d.hour += uint64(h.GetNextHour())
	d.day += uint64(h.GetNextDay())
	d.month += uint64(h.GetNextMonth())
	d.later += uint64(h.GetLater())
}

func (p *Pages) overview(v *visit) (content, error) {
	list, err := v.allQueues()
	if err != nil {
		return content{}, err
	}
	var dead *deadList
	if list.totals.dead > 0 {
		if dead, err = v.topCauses(); err != nil {
			return content{}, err
		}
	}
	cluster, err := p.admin.GetCluster(v.ctx, &belfryv1.GetClusterRequest{})
	if err != nil && !forbidden(err) {
		return content{}, err
	}
	sums := &list.totals
	return content{title: "Overview", entry: "Overview", live: true, body: g.Group{
		h.H1(g.Text("Overview")),
		list.mark(v.clock),
		markup.Figures(markup.Figure{Name: "Queues", Value: format.Grouped(uint64(len(list.queues))), Target: "queues"},
			markup.Figure{Name: "Delayed", Value: format.Grouped(sums.delayed)}, markup.Figure{Name: "Ready",
				Value: format.Grouped(sums.ready)},
			markup.Figure{Name: "Reserved", Value: format.Grouped(sums.reserved)},
			markup.Figure{Name: "Dead", Value: format.Grouped(sums.dead), Target: "dead", Bad: sums.dead > 0},
			markup.Figure{Name: "Stored", Value: format.Size(sums.bytes)}),
		h.Div(h.Class("columns"),
			markup.Section("Per second, over the last minute", markup.Facts(markup.Fact("Put", format.Rate(sums.puts)),
				markup.Fact("Handed out", format.Rate(sums.reserves)), markup.Fact("Acked", format.Rate(sums.acks)))),
			markup.Section("Falls due", list.due.facts())),
		markup.Section("Cluster", clusterSummary(cluster)...),
		markup.Section("Queues to look at", suspectsTable(suspects(list.queues))),
		g.If(sums.dead > 0, markup.Section("Dead by error", v.causesTable(dead, sums.dead))),
	}}, nil
}

// facts shows how many jobs fall due when.
func (d *due) facts() g.Node {
	return markup.Facts(markup.Fact("Overdue", format.Grouped(d.overdue)), markup.Fact("In the next minute",
		format.Grouped(d.minute)),
		markup.Fact("In the next hour", format.Grouped(d.hour)), markup.Fact("In the next day", format.Grouped(d.day)),
		markup.Fact("In the next 30 days", format.Grouped(d.month)), markup.Fact("Later", format.Grouped(d.later)))
}

// clusterSummary says how the cluster is; nil stands for one that the person may not see.
func clusterSummary(c *belfryv1.GetClusterResponse) []g.Node {
	if c == nil {
		return []g.Node{h.P(g.Text("Your token does not show the state of the cluster."))}
	}
	health := g.Text(": healthy")
	if len(c.Problems) > 0 {
		health = g.Group{g.Text(": "), bad(format.Plural(len(c.Problems), "problem"))}
	}
	return []g.Node{
		h.P(markup.Link("cluster", format.Plural(len(c.Nodes), "node")+", "+format.Plural(len(c.Shards), "shard")), health),
		findingsTable(findings.Of(c)),
	}
}

// findingsTable shows what 'belfry doctor' says of the cluster; nothing if it says nothing.
func findingsTable(all []findings.Finding) g.Node {
	return g.If(len(all) > 0, markup.Grid("Findings", markup.Headings("What looks wrong", "What to do"),
		g.Map(all, func(f findings.Finding) g.Node {
			return h.Tr(h.Th(h.Scope("row"), h.Class("free"), g.Text(f.What)), h.Td(h.Class("free"), g.Text(f.Do)))
		})))
}

func suspectsTable(all []suspect) g.Node {
	if len(all) == 0 {
		return h.P(g.Text("No queue has dead jobs, or jobs that have been ready for a minute."))
	}
	return markup.Grid("Queues to look at", markup.Headings("Queue", "Why"), g.Map(all, func(s suspect) g.Node {
		return h.Tr(h.Th(h.Scope("row"), markup.Link(markup.Query("queue", "queue", s.queue.Name), s.queue.Name)),
			h.Td(g.Text(strings.Join(s.because, ", "))))
	}))
}

// A queue is suspect if its oldest ready job has waited for longer than readyWaitMax.
const readyWaitMax = time.Minute

// suspectsMax is how many queues the first page names.
const suspectsMax = 20

// suspect is a queue with what is wrong with it.
type suspect struct {
	queue   *belfryv1.Queue
	because []string
}

// suspects returns the queues that need attention.
func suspects(queues []*belfryv1.Queue) []suspect {
	var all []suspect
	for _, q := range queues {
		var because []string
		if n := q.Counts.GetDead(); n > 0 {
			because = append(because, format.Grouped(n)+" dead")
		}
		if age := q.OldestReadyAge.AsDuration(); age > readyWaitMax {
			because = append(because, "ready for "+format.Span(age))
		}
		if q.Settings.GetPaused() && q.Counts.GetReady() > 0 {
			because = append(because, "paused with "+format.Grouped(q.Counts.GetReady())+" ready")
		}
		if len(because) > 0 {
			all = append(all, suspect{q, because})
		}
	}
	slices.SortStableFunc(all, func(a, b suspect) int {
		return cmp.Or(cmp.Compare(b.queue.Counts.GetDead(), a.queue.Counts.GetDead()),
			cmp.Compare(b.queue.OldestReadyAge.AsDuration(), a.queue.OldestReadyAge.AsDuration()))
	})
	return all[:min(len(all), suspectsMax)]
}
