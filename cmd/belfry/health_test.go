package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// healthServer answers health pages as it is told.
func healthServer(t *testing.T, answer func(path string) int) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Belfry-Served-By", "n1")
		w.WriteHeader(answer(r.URL.String()))
		w.Write([]byte("[+]" + r.URL.Path + "\n")) //nolint:errcheck // the reader sees
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestHealth(t *testing.T) {
	url := healthServer(t, func(path string) int {
		if path == "/livez" {
			return http.StatusOK
		}
		return http.StatusServiceUnavailable
	})
	h := newHarness(t, nil)
	if got := h.run("health", "--server", url, "--live"); got != (outcome{0, "[+]/livez\n", ""}) {
		t.Errorf("alive: %+v", got)
	}
	got := h.run("health", "--server", url)
	if got.code != codeUnavailable || got.out != "" || !strings.Contains(got.err, "not ready: 503") || !strings.Contains(got.err, "[+]/readyz") {
		t.Errorf("not ready: %+v, want exit code 4 and the page", got)
	}
	if got := h.run("health", "--server", "127.0.0.1:1"); got.code != codeUnavailable || !strings.Contains(got.err, "no server answers") {
		t.Errorf("nobody there: %+v, want exit code 4", got)
	}
}

// TestHealthExcludes passes on which checks do not count.
func TestHealthExcludes(t *testing.T) {
	url := healthServer(t, func(path string) int {
		if path == "/readyz?verbose&exclude=disk&exclude=shard-3%26x" {
			return http.StatusOK
		}
		return http.StatusServiceUnavailable
	})
	h := newHarness(t, nil)
	if got := h.run("health", "--server", url, "--exclude", "disk", "--exclude", "shard-3&x"); got.code != 0 {
		t.Errorf("%+v", got)
	}
}

// TestHealthWaits asks again until the server is ready.
func TestHealthWaits(t *testing.T) {
	var asked atomic.Int64
	url := healthServer(t, func(string) int {
		if asked.Add(1) < 3 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	h := newHarness(t, nil)
	h.system.now = time.Now
	if got := h.run("health", "--server", url, "--wait", "2m"); got.code != 0 || asked.Load() != 3 {
		t.Errorf("%+v after %d questions, want success at the third", got, asked.Load())
	}
}
