package schedules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// change is a schedule that differs from what a file says.
type change struct {
	Queue string `json:"queue"`
	Name  string `json:"name"`
	// Fields are the fields that differ, of a schedule that is there and in the file.
	Fields []difference `json:"fields,omitempty"`

	entry   *entry                            // what the file says; nil if the schedule is to be deleted
	held    *belfryv1.Schedule                // what the server has; nil if the schedule is to be created
	preview *belfryv1.PreviewScheduleResponse // when it will fire; nil for a deletion
}

// plan is what an apply does.
type plan struct {
	Created   []*change `json:"created"`
	Changed   []*change `json:"changed"`
	Deleted   []*change `json:"deleted"`
	Unchanged int       `json:"unchanged"`
	Failed    []failed  `json:"failed,omitempty"`
}

// failed is a schedule that was not changed.
type failed struct {
	Queue string `json:"queue"`
	Name  string `json:"name"`
	Error string `json:"error"`
}

// empty reports whether there is nothing to do.
func (p *plan) empty() bool { return len(p.Created)+len(p.Changed)+len(p.Deleted) == 0 }

// all returns the changes in the order in which they are made.
func (p *plan) all() []*change { return slices.Concat(p.Created, p.Changed, p.Deleted) }

// content returns what the file says of a schedule.
func (e *entry) content() content { return content{e.spec, e.policy, e.job} }

// readAtOnce is how many schedules are read at one time.
const readAtOnce = 16

// planner finds out what differs.
type planner struct {
	*cli.App
	conn *cli.Connection
}

// plan compares what files say with what the servers have. With prune, the schedules of the files'
// scopes that the files do not have are to be deleted.
func (p planner) plan(ctx context.Context, d *definitions, prune bool) (*plan, error) {
	changes := make([]*change, len(d.entries))
	wrong := make([]error, len(d.entries))
	group, all := errgroup.WithContext(ctx)
	group.SetLimit(readAtOnce)
	for i, e := range d.entries {
		group.Go(func() (err error) {
			changes[i], wrong[i], err = p.compare(all, e)
			return err
		})
	}
	empty := d.empty()
	wrongScopes := make([]error, len(empty))
	for i, s := range empty {
		group.Go(func() (err error) {
			wrongScopes[i], err = p.check(all, s)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := errors.Join(append(wrong, wrongScopes...)...); err != nil {
		return nil, cli.ExitWith(cli.CodeUsage, err.Error())
	}
	out := &plan{Created: []*change{}, Changed: []*change{}, Deleted: []*change{}} // lists in JSON, not null
	for _, c := range changes {
		switch {
		case c.held == nil:
			out.Created = append(out.Created, c)
		case len(c.Fields) > 0:
			out.Changed = append(out.Changed, c)
		default:
			out.Unchanged++
		}
	}
	if prune {
		if err := p.prune(ctx, d, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// missing reports whether an error says that a schedule is not there, or its queue.
func missing(err error) bool {
	reason := cli.ReasonOf(err)
	return reason == belfryv1.Reason_REASON_SCHEDULE_NOT_FOUND || reason == belfryv1.Reason_REASON_QUEUE_NOT_FOUND
}

// get reads a schedule; nil if it is not there.
func (p planner) get(ctx context.Context, queue, name string) (held *belfryv1.Schedule, err error) {
	err = p.Within(ctx, func(ctx context.Context) error {
		response, err := p.conn.Schedules.GetSchedule(ctx, &belfryv1.GetScheduleRequest{Queue: queue, Name: name})
		if missing(err) {
			return nil
		}
		held = response.GetSchedule()
		return err
	})
	return held, err
}

// compare compares a schedule of a file with the one that is there. wrong is what the server refuses in
// the file.
func (p planner) compare(ctx context.Context, e *entry) (c *change, wrong, err error) {
	c = &change{Queue: e.queue, Name: e.name, entry: e}
	if c.held, err = p.get(ctx, e.queue, e.name); err != nil {
		if field, text, ok := cli.WrongField(err); ok {
			return nil, fmt.Errorf("%s: %s: %s", e.place(field), field, text), nil
		}
		return nil, nil, err
	}
	if c.held != nil {
		c.Fields = differences(content{c.held.Spec, c.held.Policy, c.held.Job}, e.content())
		if len(c.Fields) == 0 {
			return c, nil, nil
		}
	}
	c.preview, err = p.preview(ctx, e)
	if field, text, ok := cli.WrongField(err); ok {
		return nil, fmt.Errorf("%s: %s: %s", e.place(field), field, text), nil
	}
	return c, nil, err
}

// preview asks when a schedule of a file will fire, and has the server check all of it. A token that may not
// change the queue may still see the difference: then the server checks what depends on no queue.
func (p planner) preview(ctx context.Context, e *entry) (response *belfryv1.PreviewScheduleResponse, err error) {
	put := e.content().put(e.queue, e.name)
	request := &belfryv1.PreviewScheduleRequest{
		Queue: put.Queue, Name: put.Name, Spec: put.Spec, Policy: put.Policy, Job: put.Job, Count: 1,
	}
	if text := e.job.GetText(); text != "" { // an error names the field that the file has
		request.Job.Body = &belfryv1.PutRequest_Text{Text: text}
	}
	err = p.Within(ctx, func(ctx context.Context) (err error) {
		response, err = p.conn.Schedules.PreviewSchedule(ctx, request)
		if cli.ReasonOf(err) == belfryv1.Reason_REASON_FORBIDDEN {
			request.Queue = ""
			response, err = p.conn.Schedules.PreviewSchedule(ctx, request)
		}
		return err
	})
	return response, err
}

// empty returns the scopes whose queues the files name without a schedule.
func (d *definitions) empty() (list []scope) {
	named := map[string]bool{}
	for _, e := range d.entries {
		named[e.queue] = true
	}
	for _, s := range d.scopes {
		if !named[s.queue] {
			list = append(list, s)
		}
	}
	return list
}

// check asks the server for a scope without schedules. wrong is what it refuses, such as the name of the
// queue.
func (p planner) check(ctx context.Context, s scope) (wrong, err error) {
	err = p.Within(ctx, func(ctx context.Context) error {
		_, err := p.conn.Schedules.ListSchedules(ctx, &belfryv1.ListSchedulesRequest{
			Queue: s.queue, Prefix: s.prefix, PageSize: 1,
		})
		return err
	})
	if field, text, ok := cli.WrongField(err); ok {
		return fmt.Errorf("%s: %s: %s", s.place, field, text), nil
	}
	return nil, err
}

// prune adds the schedules that are to be deleted.
func (p planner) prune(ctx context.Context, d *definitions, out *plan) error {
	scopes, err := d.pruned()
	if err != nil {
		return err
	}
	type name struct{ queue, name string }
	kept := map[name]bool{}
	for _, e := range d.entries {
		kept[name{e.queue, e.name}] = true
	}
	for _, s := range scopes {
		all, err := p.list(ctx, s.queue, s.prefix)
		if err != nil {
			return err
		}
		for _, held := range all {
			if key := (name{s.queue, held.Name}); !kept[key] {
				kept[key] = true // prefixes may overlap
				out.Deleted = append(out.Deleted, &change{Queue: s.queue, Name: held.Name, held: held})
			}
		}
	}
	return nil
}

// pruned returns the scopes of files, by queue. A queue must not be named both with a prefix and as a
// whole: which of its schedules are to be deleted is not clear then.
func (d *definitions) pruned() ([]scope, error) {
	scopes := slices.Clone(d.scopes)
	slices.SortStableFunc(scopes, func(a, b scope) int {
		return cmp.Or(cmp.Compare(a.queue, b.queue), cmp.Compare(a.prefix, b.prefix))
	})
	for i := 1; i < len(scopes); i++ {
		if whole, part := scopes[i-1], scopes[i]; whole.queue == part.queue && whole.prefix == "" {
			return nil, cli.ExitWith(cli.CodeUsage, fmt.Sprintf(
				"%s: queue: %s has the prefix %q here, and none at %s; with --prune it must be one of the two",
				part.place, part.queue, part.prefix, whole.place))
		}
	}
	return scopes, nil
}

// list reads the schedules of a queue whose names begin with a prefix. They have no bodies and headers.
func (p planner) list(ctx context.Context, queue, prefix string) (all []*belfryv1.Schedule, err error) {
	err = p.Within(ctx, func(ctx context.Context) error {
		response, err := list(ctx, p.conn, &belfryv1.ListSchedulesRequest{Queue: queue, Prefix: prefix}, 0)
		all = response.GetSchedules()
		return err
	})
	return all, err
}

// render shows what will be done.
func (p *plan) render(w io.Writer, now time.Time) {
	for _, c := range p.Created {
		fmt.Fprintf(w, "create %s in %s: %s%s\n", c.Name, c.Queue, ruleOf(c.entry.spec), c.next(now))
	}
	for _, c := range p.Changed {
		fmt.Fprintf(w, "change %s in %s%s\n", c.Name, c.Queue, c.next(now))
		var pairs []string
		for _, f := range c.Fields {
			pairs = append(pairs, "    "+f.Field, render.OrDash(f.Old)+" → "+render.OrDash(f.New))
		}
		render.Fields(w, pairs...)
	}
	for _, c := range p.Deleted {
		fmt.Fprintf(w, "delete %s in %s: %s\n", c.Name, c.Queue, ruleOf(c.held.Spec))
	}
	fmt.Fprintf(w, "%d to create, %d to change, %d to delete, %d unchanged\n", len(p.Created), len(p.Changed),
		len(p.Deleted), p.Unchanged)
}

// next says when a schedule will fire.
func (c *change) next(now time.Time) string {
	times := c.preview.GetTimes()
	if len(times) == 0 {
		return ", which does not fire any more"
	}
	return fmt.Sprintf(", next %s (%s)", times[0].Local, relativeTo(times[0].DueAt, now))
}
