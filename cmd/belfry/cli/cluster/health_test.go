package cluster

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
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
	if got := h.Run("health", "--server", url, "--live"); got != (clitest.Left(0, "[+]/livez\n", "")) {
		t.Errorf("alive: %+v", got)
	}
	got := h.Run("health", "--server", url)
	if got.Code != cli.CodeUnavailable || got.Out != "" || !strings.Contains(got.Err, "not ready: 503") ||
		!strings.Contains(got.Err, "[+]/readyz") {
		t.Errorf("not ready: %+v, want exit code 4 and the page", got)
	}
	if got := h.Run("health", "--server", "127.0.0.1:1"); got.Code != cli.CodeUnavailable ||
		!strings.Contains(got.Err, "no server answers") {
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
	if got := h.Run("health", "--server", url, "--exclude", "disk", "--exclude", "shard-3&x"); got.Code != 0 {
		t.Errorf("%+v", got)
	}
}

// TestHealthAsJSON: for scripts each check is there with what it says, whether the server is ready
// or not.
func TestHealthAsJSON(t *testing.T) {
	page, status := "[+]serving ok\n[ ]disk excluded\n[+]shard-0 ok\nready\n", http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Belfry-Served-By", "n1")
		w.WriteHeader(status)
		w.Write([]byte(page)) //nolint:errcheck // the reader sees
	}))
	t.Cleanup(server.Close)
	h := newHarness(t, nil)
	const serving = `{"name":"serving","state":"OK","problem":""},`
	want := `{"ready":true,"checks":[` + serving +
		`{"name":"disk","state":"EXCLUDED","problem":""},{"name":"shard-0","state":"OK","problem":""}]}` + "\n"
	if got := h.Run("health", "--server", server.URL, "-o", "json"); got != (clitest.Left(0, want, "")) {
		t.Errorf("ready: %+v, want %s", got, want)
	}
	if got := h.Run("health", "--server", server.URL, "-o", "json",
		"--live"); got != (clitest.Left(0, `{"live":true}`+"\n", "")) {
		t.Errorf("alive: %+v", got)
	}
	page, status = "[+]serving ok\n[-]shard-0 failed: stopped: it failed: disk on fire\nnot ready\n",
		http.StatusServiceUnavailable
	want = `{"ready":false,"checks":[` + serving +
		`{"name":"shard-0","state":"FAILED","problem":"stopped: it failed: disk on fire"}]}` + "\n"
	if got := h.Run("health", "--server", server.URL, "-o", "json"); got.Code != cli.CodeUnavailable || got.Out != want ||
		!strings.Contains(got.Err, "not ready: 503") || strings.Contains(got.Err, "[-]") {
		t.Errorf("not ready: %+v, want exit code 4 and %s", got, want)
	}
}

// TestHealthExcludesNothingUnknown: a check that there is not is a mistake, which waiting does not
// repair.
func TestHealthExcludesNothingUnknown(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Belfry-Served-By", "n1")
		w.WriteHeader(http.StatusBadRequest)
		const refusal = `{"code":"invalid_argument",` +
			`"message":"exclude: there is no check \"dsk\"; the checks here are serving and disk"}`
		w.Write([]byte(refusal)) //nolint:errcheck // the reader sees
	}))
	t.Cleanup(server.Close)
	h := newHarness(t, nil)
	got := h.Run("health", "--server", server.URL, "--exclude", "dsk", "--wait", "2m")
	if got.Code != cli.CodeUsage ||
		!strings.Contains(got.Err, `--exclude: there is no check "dsk"; the checks here are serving and disk`) || asked != 1 {
		t.Errorf("%+v after %d questions, want exit code 2 after one", got, asked)
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
	h.System.Now = time.Now
	if got := h.Run("health", "--server", url, "--wait", "2m"); got.Code != 0 || asked.Load() != 3 {
		t.Errorf("%+v after %d questions, want success at the third", got, asked.Load())
	}
}
