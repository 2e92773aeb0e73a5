package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/spf13/cobra"
)

func (a verbs) healthCommand() *cobra.Command {
	var live bool
	var wait cli.OptionalDuration
	var exclude []string
	c := &cobra.Command{
		Use:   "health",
		Short: "Ask a server whether it is ready; for scripts and containers",
		Long: `
Health exits with 0 if the server is ready to serve, and with 4 if it is not or cannot be reached.
With -o json it prints also of a server that is not ready what each check says: state is OK,
WARNING, FAILED or EXCLUDED, and problem why. A warning does not count: other nodes could do no
better, or this one still sends its callers on.`,
		Args: cli.Arguments(0, 0),
	}
	c.Flags().BoolVar(&live, flag.Live, false, "ask only whether the process is alive")
	c.Flags().StringArrayVar(&exclude, flag.Exclude, nil,
		"a `CHECK` that does not count, such as disk or shard-3; may be repeated")
	c.Flags().Var(&wait, flag.Wait, "keep asking for so long until it is ready")
	extra := func() time.Duration { return wait.Proto.AsDuration() }
	c.RunE = a.Command(extra, func(ctx context.Context, conn *cli.Connection, _ []string) error {
		path := "/readyz?verbose"
		for _, check := range exclude {
			path += "&exclude=" + url.QueryEscape(check)
		}
		if live {
			path = "/livez"
		}
		deadline := a.Now().Add(wait.Proto.AsDuration())
		for {
			text, err := ask(ctx, conn, path)
			if err == nil {
				return a.showHealth(live, text)
			}
			if _, misspelt := errors.AsType[*cli.UsageError](err); misspelt || !a.Now().Before(deadline) || ctx.Err() != nil {
				return a.showUnready(err)
			}
			const pause = 50 * time.Millisecond
			select {
			case <-ctx.Done():
				return a.showUnready(err)
			case <-time.After(pause):
			}
		}
	})
	return a.ClientFlags(c)
}

// readiness is /readyz?verbose as JSON.
type readiness struct {
	Ready  bool         `json:"ready"`
	Checks []readyCheck `json:"checks"`
}

// readyCheck is a line of it.
type readyCheck struct {
	Name    string `json:"name"`
	State   string `json:"state"`   // OK, WARNING, FAILED or EXCLUDED
	Problem string `json:"problem"` // why it failed or warns
}

// readReadiness takes the page apart; its last line says what is known already.
func readReadiness(ready bool, page string) *readiness {
	out := &readiness{Ready: ready, Checks: []readyCheck{}}
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		name, problem, _ := strings.Cut(line[min(len("[+]"), len(line)):], " failed: ")
		suspect, warning, _ := strings.Cut(name, " warning: ")
		switch {
		case strings.HasPrefix(line, "[+]"):
			out.Checks = append(out.Checks, readyCheck{Name: strings.TrimSuffix(name, " ok"), State: "OK"})
		case strings.HasPrefix(line, "[-]"):
			out.Checks = append(out.Checks, readyCheck{name, "FAILED", problem})
		case strings.HasPrefix(line, "[!]"):
			out.Checks = append(out.Checks, readyCheck{suspect, "WARNING", warning})
		case strings.HasPrefix(line, "[ ]"):
			out.Checks = append(out.Checks, readyCheck{Name: strings.TrimSuffix(name, " excluded"), State: "EXCLUDED"})
		}
	}
	return out
}

// showHealth shows the page of a server that is alive or ready.
func (a verbs) showHealth(live bool, page string) error {
	var value any = readReadiness(true, page)
	if live {
		value = struct {
			Live bool `json:"live"`
		}{true}
	}
	return a.ShowValue(value, func(w io.Writer) { fmt.Fprint(w, page) })
}

// unready is the answer of a server that is not ready.
type unready struct{ status, page string }

func (e *unready) Error() string { return fmt.Sprintf("not ready: %s\n%s", e.status, e.page) }

// showUnready returns the error with which health ends, and shows the page as JSON if that is
// wanted; else it is in the error.
func (a verbs) showUnready(err error) error {
	not, ok := errors.AsType[*unready](err)
	switch {
	case !ok:
		return err
	case a.Output != "json":
		return cli.ExitWith(cli.CodeUnavailable, not.Error())
	}
	said := a.ShowValue(readReadiness(false, not.page), nil)
	return errors.Join(cli.ExitWith(cli.CodeUnavailable, "not ready: "+not.status), said)
}

// ask gets a health page. 503 is *unready, and a query that is refused a *usageError.
func ask(ctx context.Context, conn *cli.Connection, path string) (string, error) {
	const pageBytesMax = 1 << 20
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, conn.URL+path, nil)
	if err != nil {
		return "", cli.Usagef("--server: %s", err)
	}
	response, err := conn.HTTP.Do(request)
	if err != nil {
		return "", fmt.Errorf("asking for %s: %w", path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, pageBytesMax))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	if !cli.ServedHere(response) {
		return "", &cli.ForeignResponse{Status: response.Status}
	}
	switch response.StatusCode {
	case http.StatusOK:
		return string(text), nil
	case http.StatusBadRequest:
		var fault struct{ Message string }
		if json.Unmarshal(text, &fault) == nil && fault.Message != "" {
			return "", cli.Usagef("--%s", fault.Message) // its field is named as the flag is
		}
	}
	return "", &unready{response.Status, string(text)}
}
