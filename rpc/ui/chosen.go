package ui

import (
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/belfrydb/belfry/rpc/ui/many"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/outcome"
	"github.com/belfrydb/belfry/rpc/ui/selection"
)

// chosenFormMax bounds the form of chosen jobs: 500 ids of 256 bytes and keys of 128, each of which has
// nine characters there.
const chosenFormMax = 2 << 20

// choose shows what can be done to the jobs that a person has chosen. It changes nothing.
func (p *Pages) choose(v *visit) (string, error) {
	c, err := p.showChosen(v)
	v.answer = &c
	return "", err
}

// chosen are the jobs of a form: those of its boxes, or of its hidden field.
func (v *visit) chosen() (of selection.Selection, jobs []selection.Job, err error) {
	if of, err = selection.Read(v.param, v.clock.Zone); err != nil {
		return of, nil, err
	}
	text := v.param("jobs")
	if text == "" {
		text = strings.Join(v.r.PostForm["job"], ",")
	}
	if jobs, err = selection.SplitJobs(text); err != nil {
		return of, nil, err
	}
	if len(jobs) == 0 || len(jobs) > chosenMax {
		return of, nil, formError("job", "choose 1 to %d jobs", chosenMax)
	}
	return of, jobs, nil
}

// chosenMax is how many jobs a person can choose: those of the longest page.
const chosenMax = 500

func (p *Pages) showChosen(v *visit) (content, error) {
	of, jobs, err := v.chosen()
	if err != nil {
		return content{}, err
	}
	hidden := append(of.Pairs(), "size", v.size(), "from", v.param("from"), "on", "chosen", "jobs",
		selection.JoinJobs(jobs))
	forms := selection.Forms{Path: "act-chosen", Hidden: hidden, State: of.State, Jobs: uint64(len(jobs)), Input: v.Field,
		RequestID: func(act selection.Act) g.Node { return v.requestIDOf(string(act)) }}
	var items g.Group
	for _, j := range jobs {
		items = append(items, h.Li(markup.IDLink(of.Queue, j.ID, j.Key)))
	}
	back := markup.Query("jobs", append(of.Pairs(), "size", v.size(), "from", v.param("from"))...)
	return content{title: "Chosen jobs of " + of.Queue, entry: "Queues", body: g.Group{
		markup.Path("Queues", "queues", of.Queue, markup.Query("queue", "queue", of.Queue), "Jobs", back),
		h.H1(g.Text(selection.Jobs(uint64(len(jobs))) + " chosen")),
		forms.Draw(),
		h.Ul(items),
	}}, nil
}

// actOnChosen acts on each of the chosen jobs. Those that have ended or changed meanwhile are left as
// they are.
func (p *Pages) actOnChosen(v *visit) (string, error) {
	of, jobs, err := v.chosen()
	if err != nil {
		return "", err
	}
	order, err := selection.ReadOrder(v.param, of.State, v.clock.Zone)
	if err != nil {
		return "", err
	}
	done, err := many.Act(v.ctx, p.queues, of.Queue, jobs, &order, v.param("requestId"))
	if err != nil {
		return "", &outcome.Partial{Done: strconv.Itoa(done) + " jobs were changed", Err: err}
	}
	return markup.Query("jobs", append(of.Pairs(), "size", v.size(), "from", v.param("from"), "done",
		"chosen-"+string(order.Act), "n", strconv.Itoa(done), "left", strconv.Itoa(len(jobs)-done))...), nil
}
