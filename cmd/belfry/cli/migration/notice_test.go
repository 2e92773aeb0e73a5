package migration

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
)

// TestNoticeUntil: what fails because a person ended the command is nothing to wait for.
func TestNoticeUntil(t *testing.T) {
	t.Parallel()
	s, said := cli.NewSystem(), &bytes.Buffer{}
	s.Err, s.ErrTerminal = said, false
	ctx, end := context.WithCancel(t.Context())
	notice := newEntries(s).until(ctx)
	notice(errors.New("Redis is away"))
	end()
	notice(errors.New("no answer: stopped by signal"))
	if got := said.String(); got != "belfry: Redis is away\n" {
		t.Errorf("it said %q", got)
	}
}
