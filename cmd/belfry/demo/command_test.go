package demo

import (
	"context"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	"github.com/belfrydb/belfry/cmd/belfry/local"
)

// TestDemoTitleFits beside the name and the clock on a terminal of 80 columns.
func TestDemoTitleFits(t *testing.T) {
	const room = 80 - len(" BELFRY  ") - len("35.0 s") - 2
	if title := demoTitle("http://127.0.0.1:65535/ui/"); utf8.RuneCountInString(title) > room {
		t.Errorf("%q is cut: it has %d columns of %d", title, utf8.RuneCountInString(title), room)
	}
}

// TestDemoDashboard: the dashboard of the demo shows its jobs, also while the node that leads them is
// stopped.
func TestDemoDashboard(t *testing.T) {
	host := local.Host{Version: "v0.0.0-test", Fatal: func(err error) { t.Error(err) }}
	err := host.WithTrio(t.Context(), func(int, int) {}, func(trio *local.Trio) error {
		queues, err := client.New(trio.Urls())
		if err != nil {
			return err
		}
		defer func() { _ = queues.Close() }()
		if _, err := queues.Put(t.Context(), storyQueue, nil, client.In(time.Hour)); err != nil {
			return err
		}
		address := trio.Dashboard(storyQueue)
		shows := func(text string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"queues", nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			page, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(page), text) {
				t.Errorf("%s: %d, %v, want %q: %s", address, res.StatusCode, err, text, page)
			}
		}
		shows(">" + storyQueue + "</a>")
		if _, err := trio.StopLeader(t.Context(), storyQueue); err != nil {
			return err
		}
		shows(">" + storyQueue + "</a>")
		return nil
	})
	if err != nil {
		t.Error(err)
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
