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
)

// deadRead is how many dead jobs a page reads at most, those of all queues together.
const deadRead = 10_000

// deadGroup are dead jobs of a queue whose last errors have a fingerprint in common.
type deadGroup struct {
	queue, fingerprint, sample, id string
	jobs                           uint64
	first, last                    time.Time
}

// deadLetters shows dead jobs by queue and cause.
func (p *Pages) deadLetters(v *visit) (content, error) {
	all, err := v.allQueues()
	if err != nil {
		return content{}, err
	}
	queues := slices.DeleteFunc(slices.Clone(all.queues), func(q *belfryv1.Queue) bool { return q.Counts.GetDead() == 0 })
	slices.SortStableFunc(queues, func(a, b *belfryv1.Queue) int {
		return cmp.Compare(b.Counts.GetDead(), a.Counts.GetDead())
	})
	only := v.param("queue")
	if only != "" {
		queues = slices.DeleteFunc(queues, func(q *belfryv1.Queue) bool { return q.Name != only })
	}
	var groups []*deadGroup
	read, dead := uint64(0), uint64(0)
	for _, q := range queues {
		dead += uint64(q.Counts.GetDead())
		n, err := p.groupDead(v.ctx, q.Name, deadRead-read, &groups)
		if err != nil {
			return content{}, err
		}
		read += n
	}
	slices.SortStableFunc(groups, func(a, b *deadGroup) int { return cmp.Compare(b.jobs, a.jobs) })
	body := g.Group{h.H1(g.Text("Dead letters")), all.mark(v.clock)}
	if only != "" {
		body = append(body, h.P(g.Text("Of the queue "+only+". "), link("dead", "All queues")))
	}
	if read < dead {
		body = append(body, h.P(h.Class("warning"), g.Textf("%s of %s dead jobs were read: those that were due first.",
			grouped(read), grouped(dead))))
	}
	if len(groups) == 0 {
		body = append(body, h.P(g.Text("There are no dead jobs.")))
	} else {
		body = append(body, grid("Dead letters", headings("Queue", "Error", "Jobs", "First due", "Last due", "Action"),
			g.Map(groups, v.deadRow)))
	}
	return content{title: "Dead letters", entry: "Dead letters", body: body}, nil
}

// groupDead adds the dead jobs of a queue to groups, at most so many, and returns how many it read.
func (p *Pages) groupDead(ctx context.Context, queue string, most uint64, groups *[]*deadGroup) (read uint64,
	err error) {
	known := map[string]*deadGroup{}
	err = p.eachDead(ctx, queue, most, func(j *belfryv1.Job) {
		read++
		cause, due := fingerprint(j.LastError), j.DueAt.AsTime()
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
		act = action("redrive-group", hidden, button("Make "+grouped(d.jobs)+" ready again"))
	}
	return h.Tr(
		h.Th(h.Scope("row"), link(query("dead", "queue", d.queue), d.queue)),
		h.Td(h.Class("free"), g.Text(cmp.Or(visible(d.sample), "no error text")), g.Text(" · "),
			idLink(d.queue, d.id)),
		number(grouped(d.jobs)), h.Td(v.when(timestamppb.New(d.first))), h.Td(v.when(timestamppb.New(d.last))), h.Td(act))
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
		if uint64(len(ids)) < most && fingerprint(j.LastError) == cause {
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
			return "", &partialError{done: grouped(moved) + " jobs were made ready", err: err}
		}
		moved += uint64(res.Moved)
	}
	return query("dead", "done", "redrive-group", "n", strconv.FormatUint(moved, 10)), nil
}

// partialError says how much of an action was done before it failed.
type partialError struct {
	done string
	err  error
}

func (e *partialError) Error() string { return e.done + "; then: " + e.err.Error() }

func (e *partialError) Unwrap() error { return e.err }
