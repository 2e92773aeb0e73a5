package main

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"
)

// TestConclude: whatever came in the way of a command, what it printed ends with a verdict and the
// status is 0 or 1.
func TestConclude(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
		last string
	}{
		{nil, 0, ""},
		{flag.ErrHelp, 0, ""},
		{errors.Join(errInvalid, errors.New("more")), 1, ""},
		{errors.New("no room\nat all"), 1, "verdict: invalid: it could not be carried out: no room\n"},
	} {
		var out, problems bytes.Buffer
		if got := conclude(c.err, &out, &problems); got != c.want || out.String() != c.last ||
			(problems.Len() > 0) != (c.last != "") {
			t.Errorf("%v: status %d, output %q, problems %q", c.err, got, &out, &problems)
		}
	}
}

// TestNoCommand: what is no command, or no flag of one, is an error that says so, and nothing is
// printed before it.
func TestNoCommand(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "no command is given"},
		{[]string{"walk"}, `there is no command "walk"`},
		{[]string{"run", "--no-such-setting"}, "-no-such-setting"},
		{[]string{"run", "--nodes", "many"}, "-nodes"},
		{[]string{"prove", "--beside", "some"}, "-beside"},
	} {
		var out bytes.Buffer
		err := command(t.Context(), c.args, &out)
		if err == nil || errors.Is(err, flag.ErrHelp) || !strings.Contains(err.Error(), c.want) || out.Len() > 0 {
			t.Errorf("%q: %v, output %q", c.args, err, &out)
		}
	}
	var out bytes.Buffer
	if err := command(t.Context(), []string{"help"}, &out); err != nil || out.String() != usage {
		t.Errorf("help: %v, %q", err, &out)
	}
}
