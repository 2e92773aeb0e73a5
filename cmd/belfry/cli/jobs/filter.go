package jobs

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// filter selects jobs of a queue. The commands that list jobs and those that act on them have the
// same flags for it, so that a list shows what an act would be about.
type filter struct {
	state                 string
	after, before         cli.MomentValue
	text, idPrefix, cause wanted
	key                   wanted // of a list only
}

// add adds the flags, but for that of the state.
func (f *filter) add(flags *pflag.FlagSet) {
	flags.Var(&f.text, flag.Match, "only jobs with this text in the id, a header, the last error or the body")
	flags.Var(&f.idPrefix, flag.IDPrefix, "only jobs whose id begins with this")
	flags.Var(&f.cause, flag.Cause, "only jobs whose last error has this cause, as 'belfry get' shows it")
	flags.Var(&f.after, flag.DueAfter, "only jobs due at or after this time (RFC 3339)")
	flags.Var(&f.before, flag.DueBefore, "only jobs due before this time (RFC 3339)")
	cli.SetsField(flags, flag.Match, "text")
}

// filterFlags are the names of the flags that add adds.
func filterFlags() []string {
	return []string{flag.Match, flag.IDPrefix, flag.Cause, flag.DueAfter, flag.DueBefore}
}

// addState adds the flag of the state; the first word is the default.
func (f *filter) addState(flags *pflag.FlagSet, words ...string) {
	last := len(words) - 1
	flags.VarP(cli.Choice(&f.state, words...), flag.State, "s",
		"which jobs: "+strings.Join(words[:last], ", ")+" or "+words[last])
}

// searches reports whether jobs are looked for by their content.
func (f *filter) searches() bool {
	return f.text != "" || f.idPrefix != "" || f.cause != "" || f.key != ""
}

// list returns the request for a list.
func (f *filter) list(queue string) *belfryv1.ListRequest {
	return &belfryv1.ListRequest{
		Queue: queue, State: cli.StateOf(f.state), DueAfter: f.after.Proto, DueBefore: f.before.Proto,
		Text: string(f.text), IdPrefix: string(f.idPrefix), Cause: string(f.cause), Key: string(f.key),
	}
}

// task returns the request for a task.
func (f *filter) task(queue string, act belfryv1.TaskAct) *belfryv1.StartTaskRequest {
	return &belfryv1.StartTaskRequest{
		Queue: queue, State: cli.StateOf(f.state), DueAfter: f.after.Proto, DueBefore: f.before.Proto,
		Text: string(f.text), IdPrefix: string(f.idPrefix), Cause: string(f.cause), Act: act,
	}
}

// wanted is a flag that takes a text that is not empty: an empty one, as from a variable of a script
// that is not set, would select all jobs.
type wanted string

func (f *wanted) String() string { return string(*f) }

// Type names the value in the help.
func (f *wanted) Type() string { return "text" }

// Set reads a value.
func (f *wanted) Set(text string) error {
	if text == "" {
		return errors.New("want a text that is not empty")
	}
	*f = wanted(text)
	return nil
}

// filterColumns bounds a text of a filter that is shown.
const filterColumns = 60

// filtered is a message that says which jobs it is about.
type filtered interface {
	GetText() string
	GetIdPrefix() string
	GetCause() string
	GetDueAfter() *timestamppb.Timestamp
	GetDueBefore() *timestamppb.Timestamp
}

// filterText writes a filter in words, such as `with "smtp 421"`; "" if there is none.
func filterText(f filtered) string {
	var parts []string
	for _, part := range []struct{ about, text string }{
		{"with", f.GetText()}, {"id begins with", f.GetIdPrefix()}, {"cause", f.GetCause()},
	} {
		if part.text != "" {
			parts = append(parts, part.about+` "`+render.Preview([]byte(part.text), filterColumns)+`"`)
		}
	}
	for _, part := range []struct {
		about string
		at    *timestamppb.Timestamp
	}{{"due from", f.GetDueAfter()}, {"due before", f.GetDueBefore()}} {
		if part.at != nil {
			parts = append(parts, part.about+" "+part.at.AsTime().Format(time.RFC3339Nano))
		}
	}
	return strings.Join(parts, ", ")
}
