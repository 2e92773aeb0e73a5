package ui

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/many"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/outcome"
	"github.com/belfrydb/belfry/rpc/ui/payload"
	"github.com/belfrydb/belfry/rpc/ui/selection"
)

// heldRead is how many held jobs the page of the consumers reads at most.
const heldRead = 10_000

// consumers returns who holds jobs, as it was some seconds ago.
func (v *visit) consumers() (*many.Held, error) {
	return shared(v.ctx, v.token(), v.pages.holders, func(ctx context.Context) (*many.Held, error) {
		queues, err := v.pages.queuesOf(ctx, v.token())
		if err != nil {
			return nil, err
		}
		return many.ReadHeld(ctx, v.pages.queues, queues.queues, heldRead)
	})
}

const (
	// holdersFresh is for how long the consumers are shown again without another read, and holdersOld how
	// old they may be while others are read.
	holdersFresh, holdersOld = 4 * time.Second, time.Minute
	// queuesShown is how many queues of a consumer are named.
	queuesShown = 5
)

// listConsumers shows who holds jobs.
func (p *Pages) listConsumers(v *visit) (content, error) {
	list, err := v.consumers()
	if err != nil {
		return content{}, err
	}
	part := markup.PagerOf(v.param("page"), len(list.Consumers))
	body := g.Group{h.H1(g.Text("Consumers"))}
	if list.Read < list.All {
		body = append(body, h.P(h.Class("warning"), g.Textf("%s of %s held jobs were read, so there may be more consumers.",
			format.Grouped(list.Read), format.Grouped(list.All))))
	}
	if len(list.Consumers) == 0 {
		body = append(body, h.P(g.Text("No consumer holds a job.")))
	} else {
		headings := []string{"Name", "Address", "Jobs held", "Oldest since", "Oldest job", "Queues"}
		if !p.cfg.ReadOnly {
			headings = append(headings, "Action")
		}
		body = append(body, markup.Grid("Consumers", markup.Headings(headings...),
			g.Map(list.Consumers[part.From:part.To], v.consumerRow)), part.Links("consumers"))
	}
	return content{title: "Consumers", entry: "Consumers", live: true, body: body}, nil
}

func (v *visit) consumerRow(c *many.Consumer) g.Node {
	name, address := "", c.Client
	if at := strings.LastIndexByte(c.Client, '@'); at >= 0 {
		name, address = c.Client[:at], c.Client[at+1:]
	}
	var queues g.Group
	for i, queue := range slices.Sorted(maps.Keys(c.Queues)) {
		if i == queuesShown {
			queues = append(queues, g.Text(" and "+format.Plural(len(c.Queues)-i, "other")))
			break
		}
		queues = append(queues, g.If(i > 0, g.Text(", ")),
			markup.Link(markup.Query("jobs", "queue", queue, "state", "reserved"), queue))
	}
	// The id lets a refresh of the page keep what is ticked in the row.
	return h.Tr(h.ID(selection.HolderID(c.Client)), h.Th(h.Scope("row"), h.Class("free"),
		g.Text(cmp.Or(payload.Visible(name), "–"))),
		h.Td(h.Class("free"), g.Text(cmp.Or(payload.Visible(address), "not known"))), markup.Number(format.Grouped(c.Jobs)),
		h.Td(v.when(many.Since(c.Oldest))), h.Td(markup.IDLink(c.Oldest.Queue, c.Oldest.Id, c.Oldest.Key)),
		h.Td(queues),
		g.If(!v.pages.cfg.ReadOnly, h.Td(v.releaseForm(c))))
}

// releaseForm gives back what a consumer holds, once it is confirmed that the consumer is gone.
func (v *visit) releaseForm(c *many.Consumer) g.Node {
	o := selection.Holder{Client: c.Client, Jobs: c.Jobs, Latest: c.Latest}
	if v.Problem != nil && v.param("client") == c.Client {
		o.Box = g.Group{h.ID("confirm"), v.Invalid("confirm")}
	}
	return o.Draw()
}

// releaseLeases gives back the jobs that a consumer held when its page was shown.
func (p *Pages) releaseLeases(v *visit) (string, error) {
	of, most, err := selection.ReadRelease(v.param, heldRead)
	if err != nil {
		return "", err
	}
	list, err := v.consumers()
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(list.Consumers, func(c *many.Consumer) bool { return c.Client == of.Client })
	if i < 0 {
		return "", fmt.Errorf("%w: %s holds no jobs any more; nothing was done", outcome.ErrAbsent,
			payload.Visible(of.Client))
	}
	queues := slices.Sorted(maps.Keys(list.Consumers[i].Queues))
	done, err := many.Release(v.ctx, p.admin, of, queues, most)
	if err != nil {
		return "", &outcome.Partial{Done: selection.Jobs(done) + " released", Err: err}
	}
	return markup.Query("consumers", "done", "release-leases", "n", strconv.FormatUint(done, 10)), nil
}
