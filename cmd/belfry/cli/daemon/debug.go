package daemon

import (
	"context"
	"encoding/json"
	"expvar"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof" //nolint:gosec // what it registers by itself is served nowhere
	"strings"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
)

// startDebug listens for people who examine the process; it serves no data of clients. A caller may
// read the memory of the process in pieces and keep it busy, so it listens on loopback only. An
// empty address is none. stop ends it at once.
func startDebug(ctx context.Context, address string, log *slog.Logger,
	pages http.Handler) (at string, stop func(), err error) {
	if address == "" {
		return "", func() {}, nil
	}
	if host, _, err := net.SplitHostPort(address); err != nil || !cli.OnLoopback(host) {
		return "", nil, cli.Usagef(
			"--debug-addr: want HOST:PORT on loopback, such as 127.0.0.1:6060, have %q: whoever reaches it sees "+
				"into the process", address)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, fmt.Errorf("listening at --debug-addr: %w", err)
	}
	s := &http.Server{
		Handler: pages, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	log.Info("listening for who looks into the process", slog.String("debug", listener.Addr().String()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(listener) // until it is closed
	}()
	return listener.Addr().String(), func() {
		_ = s.Close() // whatever is under way
		<-ended
	}, nil
}

// debugHandler answers for pprof and expvar, says what runs here and with which settings, and turns
// the level of the log. A page of a browser that has its own name resolve to loopback gets nothing.
func debugHandler(audit *slog.Logger, level *slog.LevelVar, config func(io.Writer)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/vars", variables)
	mux.HandleFunc("GET /debug/config", func(w http.ResponseWriter, _ *http.Request) { config(w) })
	mux.HandleFunc("GET /debug/log-level", func(w http.ResponseWriter, _ *http.Request) { showLevel(w, level) })
	mux.HandleFunc("PUT /debug/log-level",
		func(w http.ResponseWriter, r *http.Request) { changeLevel(w, r, audit, level) })
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, cli.ThisBuild()) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if !cli.OnLoopback(host) {
			http.Error(w, "this is for callers on the machine, by its address", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// variables answers with what package expvar holds, but for the command line, which may have a
// password in it.
func variables(w http.ResponseWriter, _ *http.Request) {
	all := map[string]json.RawMessage{}
	expvar.Do(func(v expvar.KeyValue) {
		if v.Key != "cmdline" {
			all[v.Key] = json.RawMessage(v.Value.String())
		}
	})
	answerJSON(w, all)
}

// showLevel answers with the level of the log.
func showLevel(w io.Writer, level *slog.LevelVar) {
	fmt.Fprintln(w, strings.ToLower(level.Level().String()))
}

// changeLevel sets the level of the log to the word that the body is, and answers with it; it holds
// until the process ends. The audit, which has no level, says so.
func changeLevel(w http.ResponseWriter, r *http.Request, audit *slog.Logger, level *slog.LevelVar) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
	if err != nil {
		http.Error(w, "reading the level: "+err.Error(), http.StatusBadRequest)
		return
	}
	to, err := parseLevel(strings.TrimSpace(string(body)))
	if err != nil {
		http.Error(w, "the level: "+err.Error(), http.StatusBadRequest)
		return
	}
	from := level.Level()
	level.Set(to)
	audit.Info("audit", slog.String("changed", "log level"), slog.String("from", strings.ToLower(from.String())),
		slog.String("to", strings.ToLower(to.String())))
	showLevel(w, level)
}

// answerJSON answers with a value and the end of its line.
func answerJSON(w http.ResponseWriter, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		http.Error(w, "writing the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = w.Write(append(text, '\n')) // that the caller is gone is the only way this fails
}
