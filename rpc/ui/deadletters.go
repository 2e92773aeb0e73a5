package ui

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/inputs"
	"github.com/belfrydb/belfry/rpc/ui/many"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/payload"
	"github.com/belfrydb/belfry/rpc/ui/selection"
)

// deadRead is how many dead jobs a page reads at most, those of all queues together.
const deadRead = 10_000

// deadLetters shows dead jobs by queue and cause.
func (p *Pages) deadLetters(v *visit) (content, error) {
	only := v.param("queue")
	dead, err := v.deadOf(only)
	if err != nil {
		return content{}, err
	}
	body := g.Group{h.H1(g.Text("Dead letters"))}
	if only != "" {
		body = append(body, h.P(g.Text("Of the queue "+only+". "), markup.Link("dead", "All queues")))
	}
	if dead.Read < dead.All {
		body = append(body, h.P(h.Class("warning"), g.Textf("%s of %s dead jobs were read: those that were due first. "+
			"The page of the jobs of a cause counts all of them.", format.Grouped(dead.Read), format.Grouped(dead.All))))
	}
	if len(dead.Groups) == 0 {
		body = append(body, h.P(g.Text("There are no dead jobs.")))
	} else {
		body = append(body, markup.Grid("Dead letters", markup.Headings("Queue", errorHeading, "Jobs", "Action",
			"First failed", "Last failed", "More"), g.Map(dead.Groups, v.deadRow)))
	}
	return content{title: "Dead letters", entry: "Dead letters", body: body}, nil
}

const (
	// causesRead is how many dead jobs the first page reads, causesShown how many causes it shows.
	causesRead, causesShown = 1000, 5
	// causesFresh is for how long causes are shown again without another read, and causesOld how old
	// they may be while others are read.
	causesFresh, causesOld = 10 * time.Second, time.Minute
)

// topCauses returns the causes of dead jobs, as they were some seconds ago; nil if the person's token
// does not show jobs.
func (v *visit) topCauses() (*many.Dead, error) {
	list, err := v.deadOfAll(v.pages.deadCauses, causesRead)
	if err != nil && forbidden(err) {
		return nil, nil //nolint:nilnil // nothing may be known
	}
	return list, err
}

// deadOfAll returns the dead jobs of all queues, at most so many, as they were some seconds ago.
func (v *visit) deadOfAll(from reads[*many.Dead], most uint64) (*many.Dead, error) {
	return shared(v.ctx, v.token(), from, func(ctx context.Context) (*many.Dead, error) {
		queues, err := v.pages.queuesOf(ctx, v.token())
		if err != nil {
			return nil, err
		}
		return many.ReadDead(ctx, v.pages.queues, queues.queues, most)
	})
}

// deadOf returns the dead jobs of a queue, or of all if it is not named.
func (v *visit) deadOf(queue string) (*many.Dead, error) {
	if queue == "" {
		return v.deadOfAll(v.pages.deadJobs, deadRead)
	}
	all, err := v.allQueues()
	if err != nil {
		return nil, err
	}
	queues := slices.DeleteFunc(slices.Clone(all.queues), func(q *belfryv1.Queue) bool { return q.Name != queue })
	return many.ReadDead(v.ctx, v.pages.queues, queues, deadRead)
}

// causesTable shows the causes that most jobs died of.
func (v *visit) causesTable(list *many.Dead, dead uint64) g.Node {
	switch {
	case list == nil:
		return h.P(g.Text("Your token does not show jobs."))
	case len(list.Groups) == 0:
		return h.P(markup.Link("dead", "Dead letters"))
	}
	of := "All dead letters"
	if list.Read < dead {
		of = "Of " + format.Grouped(list.Read) + " jobs; all " + format.Grouped(dead)
	}
	return g.Group{
		markup.Grid("Dead by error", markup.Headings(errorHeading, "Queue", "Jobs", "Last failed"),
			g.Map(list.Groups[:min(len(list.Groups), causesShown)], func(d *many.DeadGroup) g.Node {
				return h.Tr(h.Td(h.Class("free"), errorText(d)),
					h.Td(markup.Link(markup.Query("dead", "queue", d.Queue), d.Queue)), markup.Number(format.Grouped(d.Jobs)),
					h.Td(v.when(timestamppb.New(d.Last))))
			})),
		h.P(markup.Link("dead", of)),
	}
}

// errorHeading is the head of a column of errorText.
const errorHeading = "Error, with # for what differs"

// errorText shows what the errors of a group have in common, and one of them if others differ.
func errorText(d *many.DeadGroup) g.Node {
	sample := cmp.Or(payload.Visible(d.Sample), "no error text")
	if d.Jobs == 1 || d.Cause == d.Sample || d.Sample == "" {
		return g.Text(sample)
	}
	return g.Group{g.Text(payload.Visible(d.Cause)), h.Br(), h.Span(h.Class("help"), g.Text("such as "+sample))}
}

func (v *visit) deadRow(d *many.DeadGroup) g.Node {
	of := d.Selection()
	act := g.Text("")
	if !v.pages.cfg.ReadOnly {
		hidden := append(of.Pairs(), "on", "dead", "act", string(selection.Redrive),
			"max", strconv.FormatUint(d.Jobs, 10))
		act = markup.Acting("act-all", hidden, inputs.NewRequestID(),
			markup.Button("Make "+format.Grouped(d.Jobs)+" ready again"))
	}
	return h.Tr(
		h.Th(h.Scope("row"), markup.Link(markup.Query("dead", "queue", d.Queue), d.Queue)),
		h.Td(h.Class("free"), errorText(d), g.Text(" · "), markup.IDLink(d.Queue, d.ID, d.Key)),
		markup.Number(format.Grouped(d.Jobs)), h.Td(act), h.Td(v.when(timestamppb.New(d.First))),
		h.Td(v.when(timestamppb.New(d.Last))),
		h.Td(markup.Link(markup.Query("jobs", of.Pairs()...), "jobs, rate, cancel, download")))
}
