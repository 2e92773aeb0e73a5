package queues

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
)

// TestPurgeRefusesNoState: the server takes no states for those of the default, and a script whose
// variable is not set must not remove jobs.
func TestPurgeRefusesNoState(t *testing.T) {
	for _, line := range [][]string{
		{"queue", "purge", "q", "--state", "", "--yes"},
		{"queue", "purge", "q", "--state", "dead,", "--yes"},
		{"keys", "purge", "q", "k", "--state", "", "--yes"},
		{"keys", "purge", "q", "k", "--state", ",dead", "--yes"},
		{"keys", "purge", "q", "k", "--state", "ended", "--yes"},
	} {
		h := clitest.New(t, clitest.Commands(Commands), clitest.Refuse(connect.CodeInternal, "INTERNAL", "unexpected"))
		h.Run(line...).Holds(t, cli.CodeUsage, "--state: have ", "want one of delayed, ready, reserved, dead")
		if len(h.Requests) > 0 {
			t.Errorf("%q: sent %v", line, h.Requests)
		}
	}
}
