package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
)

// debugListener runs one until the test ends.
func debugListener(t *testing.T) (address string) {
	t.Helper()
	pages := debugHandler(slog.New(slog.DiscardHandler), &slog.LevelVar{}, func(w io.Writer) {
		fmt.Fprintln(w, "as configured")
	})
	address, stop, err := startDebug(t.Context(), "127.0.0.1:0", slog.New(slog.DiscardHandler), pages)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return address
}

// fetch gets a page for a Host.
func fetch(t *testing.T, address, path, host string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		request.Host = host
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func TestDebugListener(t *testing.T) {
	address := debugListener(t)
	for _, test := range []struct {
		path, host string
		status     int
		has        string
	}{
		{"/debug/pprof/", "", 200, "goroutine"},
		{"/debug/pprof/goroutine?debug=1", "", 200, "debugHandler"},
		{"/debug/pprof/heap?debug=1", "localhost:1", 200, "heap profile"},
		{"/debug/pprof/cmdline", "", 404, ""},
		{"/debug/vars", "[::1]", 200, `"memstats":{`},
		{"/debug/vars", "rebound.example:6060", 403, ""},
		{"/debug/config", "", 200, "as configured"},
		{"/debug/config", "rebound.example:6060", 403, ""},
		{"/debug/log-level", "", 200, "info\n"},
		{"/version", "", 200, `"go":"go1.`},
		{"/", "", 404, ""},
	} {
		status, text := fetch(t, address, test.path, test.host)
		if status != test.status || !strings.Contains(text, test.has) || strings.Contains(text, "cmdline\":") {
			t.Errorf("%s for %q: %d, %.200s", test.path, test.host, status, text)
		}
		if test.path == "/debug/vars" && status == 200 && !json.Valid([]byte(text)) {
			t.Errorf("the variables are no JSON: %s", text)
		}
	}
}

// TestLogLevelIsTurned: the level changes in a log that is there, each change is in the audit, and
// what is no level changes nothing.
func TestLogLevelIsTurned(t *testing.T) {
	t.Parallel()
	said := &bytes.Buffer{}
	s := cli.NewSystem()
	s.Err, s.ErrTerminal = said, false
	a := verbs{&cli.App{System: s}}
	level := levelOf("warn")
	log := a.logger(logAuto, level)
	pages := debugHandler(a.logger(logAuto, slog.LevelInfo), level, nil)
	for _, test := range []struct {
		body   string
		status int
		answer string
	}{
		{"debug\n", 200, "debug\n"},
		{"DEBUG", 400, `have "DEBUG", want one of info, debug, warn, error`},
		{"", 400, "want one of"},
		{strings.Repeat("x", 2<<10), 400, "reading the level"},
		{"error", 200, "error\n"},
	} {
		out := httptest.NewRecorder()
		pages.ServeHTTP(out,
			httptest.NewRequestWithContext(t.Context(), http.MethodPut, "http://127.0.0.1/debug/log-level",
				strings.NewReader(test.body)))
		if out.Code != test.status || !strings.Contains(out.Body.String(), test.answer) {
			t.Errorf("PUT of %.20q: %d, %s", test.body, out.Code, out.Body)
		}
		log.Debug("now")
	}
	want := []string{"audit", "now", "now", "now", "now", "audit"}
	var got []string
	for line := range strings.Lines(said.String()) {
		var entry struct {
			Msg, From, To string
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got = append(got, entry.Msg)
	}
	if !slices.Equal(got, want) || !strings.Contains(said.String(), `"from":"warn","to":"debug"`) ||
		!strings.Contains(said.String(), `"from":"debug","to":"error"`) {
		t.Errorf("it logged %s", said)
	}
}

// TestLogFormat: a person reads text, and whatever else has standard error gets JSON, if neither is
// asked for.
func TestLogFormat(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		format   string
		terminal bool
		json     bool
	}{
		{logAuto, true, false}, {logAuto, false, true}, {logText, false, false}, {logJSON, true, true},
	} {
		said := &bytes.Buffer{}
		s := cli.NewSystem()
		s.Err, s.ErrTerminal = said, test.terminal
		(verbs{&cli.App{System: s}}).logger(test.format, slog.LevelInfo).Info("hello",
			slog.Duration("after", 2*time.Second))
		if json.Valid(said.Bytes()) != test.json || !strings.Contains(said.String(), "hello") ||
			!strings.Contains(said.String(), "2s") {
			t.Errorf("%s with a terminal %v: %s", test.format, test.terminal, said)
		}
	}
}
