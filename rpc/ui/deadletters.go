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
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/payload"
)

// deadRead is how many dead jobs a page reads at most, those of all queues together.
const deadRead = 10_000

// deadGroup are dead jobs of a queue whose last errors have a fingerprint in common.
type deadGroup struct {
	queue, fingerprint, sample, id string
	jobs                           uint64
	first, last                    time.Time
}

// deadList has groups of dead jobs, the largest first.
type deadList struct {
	groups []*deadGroup
	// read of so many dead jobs were read.
	read, dead uint64
}

// deadOf reads the dead jobs of queues, those of all together at most so many, and groups them.
func (p *Pages) deadOf(ctx context.Context, queues []*belfryv1.Queue, most uint64) (*deadList, error) {
	queues = slices.DeleteFunc(slices.Clone(queues), func(q *belfryv1.Queue) bool { return q.Counts.GetDead() == 0 })
	slices.SortStableFunc(queues, func(a, b *belfryv1.Queue) int {
		return cmp.Compare(b.Counts.GetDead(), a.Counts.GetDead())
	})
	out := &deadList{}
	for _, q := range queues {
		out.dead += uint64(q.Counts.GetDead())
		if out.read == most {
			continue
		}
		n, err := p.groupDead(ctx, q.Name, most-out.read, &out.groups)
		if err != nil {
			return nil, err
		}
		out.read += n
	}
	slices.SortStableFunc(out.groups, func(a, b *deadGroup) int { return cmp.Compare(b.jobs, a.jobs) })
	return out, nil
}

// deadLetters shows dead jobs by queue and cause.
func (p *Pages) deadLetters(v *visit) (content, error) {
	all, err := v.allQueues()
	if err != nil {
		return content{}, err
	}
	queues, only := all.queues, v.param("queue")
	if only != "" {
		queues = slices.DeleteFunc(slices.Clone(queues), func(q *belfryv1.Queue) bool { return q.Name != only })
	}
	dead, err := p.deadOf(v.ctx, queues, deadRead)
	if err != nil {
		return content{}, err
	}
	body := g.Group{h.H1(g.Text("Dead letters")), all.mark(v.clock)}
	if only != "" {
		body = append(body, h.P(g.Text("Of the queue "+only+". "), markup.Link("dead", "All queues")))
	}
	if dead.read < dead.dead {
		body = append(body, h.P(h.Class("warning"), g.Textf("%s of %s dead jobs were read: those that were due first.",
			format.Grouped(dead.read), format.Grouped(dead.dead))))
	}
	if len(dead.groups) == 0 {
		body = append(body, h.P(g.Text("There are no dead jobs.")))
	} else {
		body = append(body, markup.Grid("Dead letters", markup.Headings("Queue", "Error", "Jobs", "First due", "Last due",
			"Action"),
			g.Map(dead.groups, v.deadRow)))
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
func (v *visit) topCauses() (*deadList, error) {
	list, err := v.pages.deadCauses.Get(v.ctx, v.token(), func(ctx context.Context) (*deadList, error) {
		queues, err := v.pages.readQueues(ctx)
		if err != nil {
			return nil, err
		}
		return v.pages.deadOf(ctx, queues.queues, causesRead)
	})
	if err != nil && forbidden(err) {
		return nil, nil //nolint:nilnil // nothing may be known
	}
	return list, err
}

// causesTable shows the causes that most jobs died of.
func (v *visit) causesTable(list *deadList, dead uint64) g.Node {
	switch {
	case list == nil:
		return h.P(g.Text("Your token does not show jobs."))
	case len(list.groups) == 0:
		return h.P(markup.Link("dead", "Dead letters"))
	}
	of := "All dead letters"
	if list.read < dead {
		of = "Of " + format.Grouped(list.read) + " jobs; all " + format.Grouped(dead)
	}
	return g.Group{
		markup.Grid("Dead by error", markup.Headings("Error", "Queue", "Jobs", "Last due"),
			g.Map(list.groups[:min(len(list.groups), causesShown)], func(d *deadGroup) g.Node {
				return h.Tr(h.Td(h.Class("free"), g.Text(cmp.Or(payload.Visible(d.sample), "no error text"))),
					h.Td(markup.Link(markup.Query("dead", "queue", d.queue), d.queue)), markup.Number(format.Grouped(d.jobs)),
					h.Td(v.when(timestamppb.New(d.last))))
			})),
		h.P(markup.Link("dead", of)),
	}
}

// groupDead adds the dead jobs of a queue to groups, at most so many, and returns how many it read.
func (p *Pages) groupDead(ctx context.Context, queue string, most uint64, groups *[]*deadGroup) (read uint64,
	err error) {
	known := map[string]*deadGroup{}
	err = p.eachDead(ctx, queue, most, func(j *belfryv1.Job) {
		read++
		cause, due := j.Cause, j.DueAt.AsTime()
		group := known[cause]
		if group == nil {
			group = &deadGroup{queue: queue, fingerprint: cause, sample: j.LastError, id: j.Id, first: due, last: due}
			known[cause] = group
			*groups = append(*groups, group)
		}
		group.jobs++
		if due.Before(group.first) {
			group.first = due
		}
		if due.After(group.last) {
			group.last = due
		}
	})
	return read, err
}

// eachDead passes the dead jobs of a queue to see, at most so many.
func (p *Pages) eachDead(ctx context.Context, queue string, most uint64, see func(*belfryv1.Job)) error {
	req := &belfryv1.ListRequest{Queue: queue, State: belfryv1.JobState_JOB_STATE_DEAD, PageSize: queuesAtOnce}
	for read := uint64(0); read < most; {
		res, err := p.queues.List(ctx, req)
		if err != nil && unavailable(err) && read == 0 { // later a replica could show jobs a second time
			req.Stale = true
			res, err = p.queues.List(ctx, req)
		}
		if err != nil {
			return err
		}
		for _, j := range res.Jobs[:min(uint64(len(res.Jobs)), most-read)] {
			see(j)
			read++
		}
		if req.PageToken = res.NextPageToken; req.PageToken == "" {
			return nil
		}
	}
	return nil
}

func (v *visit) deadRow(d *deadGroup) g.Node {
	act := g.Text("")
	if !v.pages.cfg.ReadOnly {
		hidden := []string{"queue", d.queue, "error", d.fingerprint, "jobs", strconv.FormatUint(d.jobs, 10)}
		act = markup.Acting("redrive-group", hidden, markup.Button("Make "+format.Grouped(d.jobs)+" ready again"))
	}
	return h.Tr(
		h.Th(h.Scope("row"), markup.Link(markup.Query("dead", "queue", d.queue), d.queue)),
		h.Td(h.Class("free"), g.Text(cmp.Or(payload.Visible(d.sample), "no error text")), g.Text(" · "),
			markup.IDLink(d.queue, d.id)),
		markup.Number(format.Grouped(d.jobs)), h.Td(v.when(timestamppb.New(d.first))),
		h.Td(v.when(timestamppb.New(d.last))), h.Td(act))
}

// redriveAtOnce is how many jobs one call of the API redrives.
const redriveAtOnce = 1000

// redriveGroup makes the dead jobs of a queue ready that have the fingerprint of the form: the first
// by due time, at most as many as the button said.
func (p *Pages) redriveGroup(v *visit) (string, error) {
	queue, cause := v.param("queue"), v.param("error")
	most, err := strconv.ParseUint(v.param("jobs"), 10, 64)
	if err != nil {
		return "", formError("jobs", "%q is no number of jobs", v.param("jobs"))
	}
	var ids []string
	err = p.eachDead(v.ctx, queue, deadRead, func(j *belfryv1.Job) {
		if uint64(len(ids)) < most && j.Cause == cause {
			ids = append(ids, j.Id)
		}
	})
	if err != nil {
		return "", err
	}
	moved := uint64(0)
	for part := range slices.Chunk(ids, redriveAtOnce) {
		res, err := p.queues.Redrive(v.ctx, &belfryv1.RedriveRequest{Queue: queue, Ids: part})
		if err != nil {
			return "", &partialError{done: format.Grouped(moved) + " jobs were made ready", err: err}
		}
		moved += uint64(res.Moved)
	}
	return markup.Query("dead", "done", "redrive-group", "n", strconv.FormatUint(moved, 10)), nil
}

// partialError says how much of an action was done before it failed.
type partialError struct {
	done string
	err  error
}

func (e *partialError) Error() string { return e.done + "; then: " + e.err.Error() }

func (e *partialError) Unwrap() error { return e.err }
