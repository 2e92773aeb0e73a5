package consume

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"
)

// TestResults: the outermost error that asks for something decides, also beneath others.
func TestResults(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		want   Result
		text   string
		cause  error // nil if there is none to find
		failed bool
	}{
		"success":        {nil, Result{Kind: ResultDone}, "", nil, false},
		"plain":          {io.EOF, Result{Kind: ResultRetry}, "EOF", io.EOF, true},
		"retry after":    {RetryAfter(time.Hour, io.EOF), Result{ResultRetryAfter, time.Hour}, "EOF", io.EOF, true},
		"retry for none": {RetryAfter(0, nil), Result{Kind: ResultRetryAfter}, "to be tried again", nil, true},
		"dead":           {Dead(io.EOF), Result{Kind: ResultDead}, "EOF", io.EOF, true},
		"dead for none":  {Dead(nil), Result{Kind: ResultDead}, "dead", nil, true},
		"snooze":         {Snooze(time.Minute), Result{ResultSnooze, time.Minute}, "back after 1m0s", nil, false},
		"wrapped":        {fmt.Errorf("a: %w", Dead(io.EOF)), Result{Kind: ResultDead}, "a: EOF", io.EOF, true},
		"joined":         {errors.Join(io.EOF, Dead(nil)), Result{Kind: ResultDead}, "EOF\ndead", io.EOF, true},
		"in each other":  {Dead(Snooze(time.Minute)), Result{Kind: ResultDead}, "back after 1m0s", nil, true},
		"a panic":        {&AttemptError{io.EOF}, Result{Kind: ResultRetry}, "EOF", io.EOF, true},
	} {
		if got := ResultOf(c.err); got != c.want {
			t.Errorf("%s asks for %+v, want %+v", name, got, c.want)
		}
		if failed := FailureOf(c.err); (failed != nil) != c.failed || failed != nil && !errors.Is(failed, c.err) {
			t.Errorf("%s is the failure %v", name, failed)
		}
		if c.err != nil && c.err.Error() != c.text {
			t.Errorf("%s has the text %q, want %q", name, c.err, c.text)
		}
		if c.cause != nil && !errors.Is(c.err, c.cause) {
			t.Errorf("%s does not wrap %v", name, c.cause)
		}
	}
}
