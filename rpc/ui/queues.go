package ui

import (
	"cmp"
	"slices"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/sums"
)

// queueColumn is a column of the table of queues.
type queueColumn struct {
	// key names the column in the query, and heading on the page.
	key, heading string
	// weight orders the queues, the largest first; nil orders by name.
	weight func(*belfryv1.Queue) float64
}

// queueColumns are the columns in their order.
func queueColumns() []queueColumn {
	count := func(of func(*belfryv1.JobCounts) uint32) func(*belfryv1.Queue) float64 {
		return func(q *belfryv1.Queue) float64 { return float64(of(q.Counts)) }
	}
	return []queueColumn{
		{key: "name", heading: "Queue"},
		{"ready", "Ready", count((*belfryv1.JobCounts).GetReady)},
		{"oldest", "Oldest ready", func(q *belfryv1.Queue) float64 { return q.OldestReadyAge.AsDuration().Seconds() }},
		{"waiting", "Waiting consumers", func(q *belfryv1.Queue) float64 { return float64(q.GetWaitingConsumers()) }},
		{"dead", "Dead", count((*belfryv1.JobCounts).GetDead)},
		{"delayed", "Delayed", count((*belfryv1.JobCounts).GetDelayed)},
		{"hour", "Next hour", func(q *belfryv1.Queue) float64 { return float64(q.Due.GetNextHour()) }},
		{"reserved", "Reserved", count((*belfryv1.JobCounts).GetReserved)},
		{"puts", "Puts/s", func(q *belfryv1.Queue) float64 { return q.Rates.GetPutsPerSecond() }},
		{"acks", "Acks/s", func(q *belfryv1.Queue) float64 { return q.Rates.GetAcksPerSecond() }},
		{"late", "Lateness p99", func(q *belfryv1.Queue) float64 { return q.Lateness.GetP99().AsDuration().Seconds() }},
		{"stored", "Stored", func(q *belfryv1.Queue) float64 { return float64(q.Bytes) }},
		{"paused", "Paused", func(q *belfryv1.Queue) float64 {
			if q.Settings.GetPaused() {
				return 1
			}
			return 0
		}},
	}
}

func (p *Pages) listQueues(v *visit) (content, error) {
	all, err := v.allQueues()
	if err != nil {
		return content{}, err
	}
	has, sort := strings.TrimSpace(v.param("filter")), "name"
	rows := &queueList{queues: all.queues, totals: all.totals}
	if has != "" {
		rows = all.named(has)
	}
	for _, column := range queueColumns() {
		if column.key == v.param("sort") && column.weight != nil {
			sort = column.key
			rows.queues = slices.SortedStableFunc(slices.Values(rows.queues), func(a, b *belfryv1.Queue) int {
				return cmp.Compare(column.weight(b), column.weight(a))
			})
		}
	}
	part := markup.PagerOf(v.param("page"), len(rows.queues))
	return content{title: "Queues", entry: "Queues", live: true, body: g.Group{
		h.H1(g.Text("Queues"), g.If(!p.cfg.ReadOnly, h.A(h.Class("button"), h.Href("new-queue"), g.Text("New queue")))),
		markup.Filter("queues", []string{"sort", sort},
			markup.Field("Name has", "filter", h.Value(has), h.Type("search"), h.MaxLength("256")), markup.Button("Filter")),
		v.queuesTable(rows, part, has, sort),
		part.Links("queues", "filter", has, "sort", sort),
	}}, nil
}

// named returns the queues that have a text in their names, in whichever case.
func (l *queueList) named(has string) *queueList {
	some := &queueList{}
	for _, q := range l.queues {
		if strings.Contains(strings.ToLower(q.Name), strings.ToLower(has)) {
			some.queues = append(some.queues, q)
			some.totals.Add(q)
		}
	}
	return some
}

// queuesTable shows a part of the queues, and sums of all of them.
func (v *visit) queuesTable(list *queueList, part markup.Pager, has, sort string) g.Node {
	queues, all := list.queues, &list.totals
	switch {
	case len(queues) == 0 && has != "":
		return h.P(g.Textf("No queue has “%s” in its name.", has))
	case len(queues) == 0:
		return h.P(g.Text("There is no queue yet. The first put makes one."))
	}
	var headings []g.Node
	for _, column := range queueColumns() {
		order := "descending"
		if column.weight == nil {
			order = "ascending"
		}
		headings = append(headings, h.Th(h.Scope("col"), g.If(column.key == sort, h.Aria("sort", order)),
			markup.Link(markup.Query("queues", "filter", has, "sort", column.key), column.heading)))
	}
	return h.Div(h.Class("numbers"), markup.Grid("Queues", headings, g.Map(queues[part.From:part.To], v.queueRow),
		h.TFoot(h.Tr(
			h.Th(h.Scope("row"), g.Text(format.Grouped(uint64(len(queues)))+" in all")),
			markup.Number(format.Grouped(all.Ready)), h.Td(), h.Td(), markup.Number(format.Grouped(all.Dead)),
			markup.Number(format.Grouped(all.Delayed)), h.Td(), markup.Number(format.Grouped(all.Reserved)),
			markup.Number(format.Rate(all.Puts)), markup.Number(format.Rate(all.Acks)), h.Td(),
			markup.Number(format.Size(all.Bytes)), h.Td()))))
}

func (v *visit) queueRow(q *belfryv1.Queue) g.Node {
	paused := g.Text("")
	if q.Settings.GetPaused() {
		paused = h.Span(h.Class("tag"), h.Title(v.paused(q.Settings)), g.Text("paused"))
	}
	return h.Tr(
		h.Th(h.Scope("row"), markup.Link(markup.Query("queue", "queue", q.Name), q.Name)),
		markup.Number(format.Grouped(q.Counts.GetReady())), markup.Number(format.Duration(q.OldestReadyAge)),
		markup.Number(sums.Waiting(q)),
		h.Td(g.If(q.Counts.GetDead() > 0, h.Class("bad")), g.Text(format.Grouped(q.Counts.GetDead()))),
		markup.Number(format.Grouped(q.Counts.GetDelayed())),
		markup.Number(format.Grouped(q.Due.GetNextHour())), markup.Number(format.Grouped(q.Counts.GetReserved())),
		markup.Number(format.Rate(q.Rates.GetPutsPerSecond())), markup.Number(format.Rate(q.Rates.GetAcksPerSecond())),
		markup.Number(format.Duration(q.Lateness.GetP99())), markup.Number(format.Size(q.Bytes)), h.Td(paused))
}
