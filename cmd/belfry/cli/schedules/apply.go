package schedules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// applyFlags are the options of `apply`.
type applyFlags struct {
	files              []string
	prune, dryRun, yes bool
}

func (a verbs) applyCommand() *cobra.Command {
	f := &applyFlags{}
	c := &cobra.Command{
		Use:   "apply --file FILE",
		Short: "Make schedules as files in YAML say",
		Long: `
Apply compares the schedules of files with those that are there, shows the difference, asks, and puts
those that are new or differ. Without a terminal it needs --yes. With --prune it also deletes the
schedules of the queues that the files name, or of the prefixes, that are not in the files. What the
server would refuse is named before anything is changed, for all schedules, also with --dry-run.

A schedule that was changed since apply read it is left as it is and reported. What failed is named,
and the others are done, also if the token may not change some queues. Only if no server or leader
answers, or the token is not known, the rest is not tried. To apply the file again does the rest.
Apply does not pause or resume.

A document of a file is a schedule, a mapping with queue, schedules and maybe prefix, or a list of
these. The fields have the names of the API. 'belfry schedule export' writes such files.

Exit code 15 of --dry-run says that there is a difference, and 14 that only a part was done.`,
		Example: `  belfry schedule apply -f schedules.yaml --dry-run
  belfry schedule apply -f schedules.yaml --prune --yes`,
		Args: cli.Arguments(0, 0),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringArrayVarP(&f.files, flag.File, "f", nil, "a `FILE` of schedules, - for standard input; may be repeated")
	flags.BoolVar(&f.prune, flag.Prune, false, "also delete what the files' queues have and the files have not")
	flags.BoolVar(&f.dryRun, flag.DryRun, false, "show the difference, and change nothing")
	flags.BoolVarP(&f.yes, flag.Yes, "y", false, "do not ask")
	c.RunE = func(c *cobra.Command, _ []string) error {
		d, err := a.readFiles(c.Context(), f.files)
		if err != nil {
			return err
		}
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		return a.apply(c.Context(), planner{a.App, conn}, d, f)
	}
	return a.ClientFlags(c)
}

// readFiles reads the files of schedules.
func (a verbs) readFiles(ctx context.Context, files []string) (*definitions, error) {
	if len(files) == 0 {
		return nil, cli.Usagef("--file is required")
	}
	d := &definitions{}
	for _, name := range files {
		data, err := a.readFile(ctx, name)
		if err != nil {
			return nil, cli.Usagef("--file: %s", err)
		}
		if name == "-" {
			name = "standard input"
		}
		if err := d.add(name, data); err != nil {
			return nil, cli.ExitWith(cli.CodeUsage, err.Error())
		}
	}
	if len(d.scopes) == 0 {
		return nil, cli.Usagef("--file: it names no schedule and no queue")
	}
	return d, nil
}

// readFile reads a file, or standard input for "-".
func (a verbs) readFile(ctx context.Context, name string) ([]byte, error) {
	if name == "-" {
		a.AnnounceTyping("schedules")
		return a.ReadInput(ctx)
	}
	return os.ReadFile(name) //nolint:gosec // the person names the file
}

// apply shows what differs, asks, and changes it.
func (a verbs) apply(ctx context.Context, planner planner, d *definitions, f *applyFlags) error {
	p, err := planner.plan(ctx, d, f.prune)
	if err != nil {
		return err
	}
	for _, c := range p.all() {
		for _, warning := range c.preview.GetWarnings() {
			fmt.Fprintf(a.Err, "belfry: warning: %s in %s: %s\n", c.Name, c.Queue, warning)
		}
	}
	switch {
	case p.empty():
		return a.ShowValue(p, func(w io.Writer) { fmt.Fprintf(w, "nothing to do, %d unchanged\n", p.Unchanged) })
	case f.dryRun:
		if err := a.ShowValue(p, func(w io.Writer) { p.render(w, a.Now()) }); err != nil {
			return err
		}
		return cli.ExitWith(cli.CodeDiffers, "")
	case a.Output != "json":
		if err := a.Flush(func(w io.Writer) { p.render(w, a.Now()) }); err != nil {
			return err
		}
	case !f.yes: // the output is for a program, and the question for a person
		p.render(a.Err, a.Now())
	}
	if !f.yes {
		if err := a.Confirm("nothing was changed"); err != nil {
			return err
		}
	}
	return a.carryOut(ctx, planner, p)
}

// did notes a change that was made.
func (p *plan) did(c *change) {
	switch {
	case c.entry == nil:
		p.Deleted = append(p.Deleted, c)
	case c.held == nil:
		p.Created = append(p.Created, c)
	default:
		p.Changed = append(p.Changed, c)
	}
}

// fail notes a change that was not made.
func (p *plan) fail(c *change, why string) {
	p.Failed = append(p.Failed, failed{Queue: c.Queue, Name: c.Name, Error: why})
}

// ends reports whether an error of one change would be that of all others: no server or leader
// answers, the server does not know the token, or the command is to stop. FORBIDDEN is not such an
// error, because a token may be for some queues only.
func ends(ctx context.Context, err error) bool {
	switch cli.ExitCode(ctx, err) {
	case cli.CodeUnavailable, cli.CodeUnknown:
		return true
	case cli.CodeForbidden:
		return cli.ReasonOf(err) != belfryv1.Reason_REASON_FORBIDDEN
	default:
		return ctx.Err() != nil
	}
}

// changedSince is the error of a schedule that is not as it was read.
type changedSince struct{ what string }

func (e *changedSince) Error() string {
	return e.what + " since it was read, so it was left as it is; apply the file again"
}

// codeOf returns the exit code for the error of a change.
func codeOf(ctx context.Context, err error) int {
	if _, ok := errors.AsType[*changedSince](err); ok {
		return cli.CodeConflict
	}
	return cli.ExitCode(ctx, err)
}

// explain says why a change was not made.
func explain(c *change, err error) string {
	if field, text, ok := cli.WrongField(err); ok && c.entry != nil {
		return fmt.Sprintf("%s: %s: %s", c.entry.place(field), field, text)
	}
	return cli.Explain(err)
}

// make makes a change, and says so. It is refused if the schedule is not as it was read.
func (p planner) make(ctx context.Context, c *change) (said string, err error) {
	if c.entry != nil && c.held == nil {
		// A put cannot ask for a schedule that is not there. A person may have thought about the answer
		// for long, so this looks again.
		held, err := p.get(ctx, c.Queue, c.Name)
		if err == nil && held != nil {
			err = &changedSince{"it was created"}
		}
		if err != nil {
			return "", err
		}
	}
	err = p.Within(ctx, func(ctx context.Context) (err error) {
		if c.entry == nil {
			said, err = p.remove(ctx, c)
		} else {
			said, err = p.put(ctx, c)
		}
		if cli.ReasonOf(err) == belfryv1.Reason_REASON_VERSION_CHANGED {
			return &changedSince{"it was changed"}
		}
		return err
	})
	return said, err
}

// put creates or changes a schedule.
func (p planner) put(ctx context.Context, c *change) (said string, err error) {
	request := c.entry.content().put(c.Queue, c.Name)
	request.IfVersion = c.held.GetVersion()
	response, err := p.conn.Schedules.PutSchedule(ctx, request)
	word := "changed"
	if c.held == nil {
		word = "created"
	}
	if c.held == nil && response.GetReplaced() {
		word = "replaced what was created at the same time:"
	}
	return fmt.Sprintf("%s %s in %s, version %d", word, c.Name, c.Queue, response.GetVersion()), err
}

// remove deletes a schedule. One that is gone already is what was wanted.
func (p planner) remove(ctx context.Context, c *change) (said string, err error) {
	_, err = p.conn.Schedules.DeleteSchedule(ctx, &belfryv1.DeleteScheduleRequest{
		Queue: c.Queue, Name: c.Name, IfVersion: c.held.Version,
	})
	if missing(err) {
		err = nil
	}
	return fmt.Sprintf("deleted %s in %s", c.Name, c.Queue), err
}
