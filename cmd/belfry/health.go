package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/server"
)

func (a *app) healthCommand() *cobra.Command {
	var live bool
	var wait optionalDuration
	var exclude []string
	c := &cobra.Command{
		Use:   "health",
		Short: "Ask a server whether it is ready; for scripts and containers",
		Long:  "Health exits with 0 if the server is ready to serve, and with 4 if it is not or cannot be reached.",
		Args:  arguments(0, 0),
	}
	c.Flags().BoolVar(&live, "live", false, "ask only whether the process is alive")
	c.Flags().StringArrayVar(&exclude, "exclude", nil, "a `CHECK` that does not count, such as disk or shard-3; may be repeated")
	c.Flags().Var(&wait, "wait", "keep asking for so long until it is ready")
	extra := func() time.Duration { return wait.proto.AsDuration() }
	c.RunE = a.command(extra, func(ctx context.Context, conn *connection, _ []string) error {
		path := "/readyz?verbose"
		for _, check := range exclude {
			path += "&exclude=" + url.QueryEscape(check)
		}
		if live {
			path = "/livez"
		}
		deadline := a.now().Add(wait.proto.AsDuration())
		for {
			text, err := ask(ctx, conn, path)
			if err == nil {
				_, err = io.WriteString(a.out, text)
				return err
			}
			if !a.now().Before(deadline) || ctx.Err() != nil {
				return err
			}
			const pause = 50 * time.Millisecond
			select {
			case <-ctx.Done():
				return err
			case <-time.After(pause):
			}
		}
	})
	return c
}

// ask gets a health page. Any status but 200 means no.
func ask(ctx context.Context, conn *connection, path string) (string, error) {
	const pageBytesMax = 1 << 20
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, conn.url+path, nil)
	if err != nil {
		return "", usagef("--server: %s", err)
	}
	response, err := conn.http.Do(request)
	if err != nil {
		return "", fmt.Errorf("asking for %s: %w", path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, pageBytesMax))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	if !servedHere(response) {
		return "", &strangeAnswer{response.Status}
	}
	if response.StatusCode != http.StatusOK {
		return "", &codedError{codeUnavailable, fmt.Sprintf("not ready: %s\n%s", response.Status, text)}
	}
	return string(text), nil
}

// servedHere reports whether a health page may be a Belfry server's: one that is unavailable may be a proxy's before it.
func servedHere(response *http.Response) bool {
	return response.Header.Get(server.ServedBy) != "" || response.StatusCode == http.StatusServiceUnavailable
}
