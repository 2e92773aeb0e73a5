package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
)

// Body returns what an argument stands for: itself, or standard input for "-". The bytes stay as they
// are. ctx ends the wait for a person.
func (a *App) Body(ctx context.Context, argument string) ([]byte, error) {
	if argument != "-" {
		return []byte(argument), nil
	}
	a.AnnounceTyping("the body")
	data, err := a.ReadInput(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the body from standard input: %w", err)
	}
	if len(data) == 0 {
		return nil, Usagef(
			"nothing was put, because standard input is empty; if the body is to be empty, write '' instead of -")
	}
	return data, nil
}

// AnnounceTyping tells a person that the command waits for what is typed.
func (a *App) AnnounceTyping(what string) {
	if a.InTerminal {
		fmt.Fprintf(a.Err, "belfry: reading %s from the terminal; Ctrl-D on a line of its own ends it\n", what)
	}
}

// ReadInput reads standard input to its end, or until ctx ends. A read from a terminal cannot be
// ended: it is left to the end of the process. More than 64 MiB are refused, and never cut.
func (a *App) ReadInput(ctx context.Context) ([]byte, error) {
	const bytesMax = 64 << 20 // the server's limit is lower and its to name; this only bounds what is read
	type result struct {
		data []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(a.In, bytesMax+1))
		if err == nil && len(data) > bytesMax {
			data, err = nil, Usagef("standard input has more than %d MiB", bytesMax>>20)
		}
		read <- result{data, err}
	}()
	select {
	case r := <-read:
		return r.data, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ParseHeaders reads what --header was given: each "name=value". It is nil if there are none.
func ParseHeaders(list []string) (map[string]string, error) {
	var headers map[string]string
	for _, header := range list {
		name, value, found := strings.Cut(header, "=")
		if !found || name == "" {
			return nil, Usagef("--header: want name=value, have %q", header)
		}
		if headers == nil {
			headers = make(map[string]string)
		}
		headers[name] = value
	}
	return headers, nil
}
