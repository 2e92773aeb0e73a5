package main

import (
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof" //nolint:gosec // what it registers by itself is served nowhere
	"strings"
	"time"
)

// startDebug listens for people who look into the process: profiles and variables, and nothing of a client's. Whoever reaches it may read the memory
// of the process in pieces and keep it busy, so that it listens on loopback only. An empty address is none. stop ends it at once.
func startDebug(ctx context.Context, address string) (at string, stop func(), err error) {
	if address == "" {
		return "", func() {}, nil
	}
	if host, _, err := net.SplitHostPort(address); err != nil || !onLoopback(host) {
		return "", nil, usagef("--debug-addr: want HOST:PORT on loopback, such as 127.0.0.1:6060, have %q: whoever reaches it sees into the process", address)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, fmt.Errorf("listening at --debug-addr: %w", err)
	}
	s := &http.Server{Handler: debugHandler(), ReadHeaderTimeout: 10 * time.Second}
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

// debugHandler answers for pprof and expvar. A page of a browser that has its own name resolve to loopback gets nothing.
func debugHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/vars", variables)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if !onLoopback(host) {
			http.Error(w, "this is for callers on the machine, by its address", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// variables answers with what package expvar holds, but for the command line, which may have a password in it.
func variables(w http.ResponseWriter, _ *http.Request) {
	all := map[string]json.RawMessage{}
	expvar.Do(func(v expvar.KeyValue) {
		if v.Key != "cmdline" {
			all[v.Key] = json.RawMessage(v.Value.String())
		}
	})
	text, err := json.Marshal(all)
	if err != nil {
		http.Error(w, errors.Join(errors.New("writing the variables"), err).Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = w.Write(append(text, '\n')) // that the caller is gone is the only way this fails
}
