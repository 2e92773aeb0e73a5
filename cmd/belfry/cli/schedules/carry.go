package schedules

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
)

// writeAtOnce is how many schedules are written at one time.
const writeAtOnce = 16

// parts returns the changes in parts, of which one is made after the other. The first change is alone,
// because an error that all would have shows there. Deletions come after all puts.
func (p *plan) parts() [][]*change {
	puts := slices.Concat(p.Created, p.Changed)
	first := p.all()[:1]
	if len(puts) == 0 {
		return [][]*change{first, p.Deleted[1:]}
	}
	return [][]*change{first, puts[1:], p.Deleted}
}

// result is what became of a change.
type result struct {
	said string
	err  error
}

// carrier makes the changes of a plan.
type carrier struct {
	planner planner
	done    *plan
	// first is the error of the first change that failed, in the order of the plan. stopped is set once
	// one failed for a reason that holds for all.
	first   error
	stopped bool
}

// make makes the changes of a part, several at one time. It says what became of them in their order.
func (r *carrier) make(ctx context.Context, part []*change) {
	ends := make([]chan result, 0, len(part))
	said := 0
	for _, c := range part {
		if len(ends)-said == writeAtOnce {
			r.note(ctx, part[said], <-ends[said])
			said++
		}
		if r.stopped {
			break
		}
		end := make(chan result, 1)
		ends = append(ends, end)
		go func() {
			said, err := r.planner.make(ctx, c)
			end <- result{said, err}
		}()
	}
	for ; said < len(ends); said++ {
		r.note(ctx, part[said], <-ends[said])
	}
	for _, c := range part[len(ends):] {
		r.done.fail(c, "not tried")
	}
}

// note notes and says what became of a change.
func (r *carrier) note(ctx context.Context, c *change, o result) {
	if o.err == nil {
		r.done.did(c)
		if r.planner.Output != "json" {
			fmt.Fprintln(r.planner.Out, o.said)
		}
		return
	}
	r.done.fail(c, explain(c, o.err))
	if r.first == nil {
		r.first = o.err
	}
	r.stopped = r.stopped || ends(ctx, o.err)
}

// carryOut makes the changes of a plan, and says what became of each.
func (a verbs) carryOut(ctx context.Context, planner planner, p *plan) error {
	done := &plan{Created: []*change{}, Changed: []*change{}, Deleted: []*change{}, Unchanged: p.Unchanged}
	r := &carrier{planner: planner, done: done}
	for _, part := range p.parts() {
		r.make(ctx, part)
	}
	first := r.first
	for _, failure := range done.Failed {
		fmt.Fprintf(a.Err, "belfry: %s in %s: %s\n", failure.Name, failure.Queue, failure.Error)
	}
	err := a.ShowValue(done, func(w io.Writer) {
		fmt.Fprintf(w, "%d created, %d changed, %d deleted, %d unchanged", len(done.Created), len(done.Changed),
			len(done.Deleted), done.Unchanged)
		if len(done.Failed) > 0 {
			fmt.Fprintf(w, ", %d failed", len(done.Failed))
		}
		fmt.Fprintln(w)
	})
	switch {
	case err != nil || first == nil:
		return err
	case ctx.Err() != nil:
		return first
	case done.empty():
		return cli.ExitWith(codeOf(ctx, first), "")
	default:
		return cli.ExitWith(cli.CodePartly, render.Count(len(done.Failed), "schedule")+
			" failed; apply the file again for the rest")
	}
}
