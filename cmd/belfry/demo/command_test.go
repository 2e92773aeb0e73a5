package demo

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
)

// TestDemoTitleFits beside the name and the clock on a terminal of 80 columns.
func TestDemoTitleFits(t *testing.T) {
	const room = 80 - len(" BELFRY  ") - len("35.0 s") - 2
	if title := demoTitle(); utf8.RuneCountInString(title) > room {
		t.Errorf("%q is cut: it has %d columns of %d", title, utf8.RuneCountInString(title), room)
	}
}

// TestDemoThatIsInterruptedEarly ends the line that it has begun. Without a terminal it has said at
// once what it does.
func TestDemoThatIsInterruptedEarly(t *testing.T) {
	for terminal, want := range map[bool]string{true: "\n", false: "three nodes are becoming a cluster\n"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cli.Interruption{Signal: syscall.SIGINT})
		h := clitest.New(t, clitest.Commands(Commands), nil)
		h.System.OutTerminal = terminal
		got := h.RunContext(ctx, "demo")
		if got.Code != cli.CodeSignal+int(syscall.SIGINT) || !strings.HasSuffix(got.Out, want) || !terminal &&
			got.Out != want {
			t.Errorf("terminal %v: %+v, want the output to end with %q", terminal, got, want)
		}
	}
}
