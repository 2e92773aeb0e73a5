package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
)

// TestServerShowsItsSettings: the debug listener of a server has its own settings, without secrets,
// and the level of its own log.
func TestServerShowsItsSettings(t *testing.T) {
	t.Parallel()
	p := serve(t, launcher, t.TempDir(), "--debug-addr", "127.0.0.1:0", "--log-format", "json", "--mirror-redis",
		"redis://me:hunter7@127.0.0.1:1/0", "--mirror-queue", "orders")
	if text := pageAt(t, p.debug, "/debug/config"); !strings.Contains(text, "log-format") ||
		!strings.Contains(text, "redis://***@127.0.0.1:1/0") || strings.Contains(text, "hunter7") {
		t.Errorf("the settings are\n%s", text)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+p.debug+"/debug/log-level",
		strings.NewReader("error"))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("turning the level: %s, %v", answer.Status, err)
	}
	awaitText(t, p, `"msg":"audit","changed":"log level","from":"info","to":"error"`)
	p.signal(syscall.SIGTERM)
	if code := p.end(); code != 0 || strings.Contains(p.stderr.String(), `"msg":"stopped"`) {
		t.Errorf("it ended with %d, and said\n%s", code, p.stderr)
	}
}

func TestDebugListensOnLoopbackOnly(t *testing.T) {
	for _, address := range []string{"0.0.0.0:6060", ":6060", "[::]:0", "10.0.0.1:6060", "n1:6060", "127.0.0.1", "6060"} {
		h := newHarness(t, nil)
		got := h.Run("serve", "--data", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0", "--debug-addr",
			address)
		if got.Code != cli.CodeUsage || !strings.Contains(got.Err, "--debug-addr: want HOST:PORT on loopback") {
			t.Errorf("%s: %+v", address, got)
		}
	}
}

// The doctor takes what the goroutines do from there, as the settings of the server say.
func TestDoctorAsksTheDebugListener(t *testing.T) {
	p := serve(t, launcher, t.TempDir(), "--debug-addr", "127.0.0.1:0")
	h := newHarness(t, nil)
	h.Env["BELFRY_SERVER"], h.Env["BELFRY_DEBUG_ADDR"] = p.address, p.debug
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if got := h.Run("doctor", "--out", path); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	if text := unpack(t, path)["goroutines.txt"]; !strings.Contains(text, "goroutine profile: total ") ||
		!strings.Contains(text, "startDebug") {
		t.Errorf("goroutines.txt is %.300s", text)
	}
}

// The port for debugging may be anybody's by mistake: it gets no token.
func TestDoctorShowsNoTokenToTheDebugListener(t *testing.T) {
	text, _, _ := tokens.New()
	asked := make(chan http.Header, 1)
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header }))
	t.Cleanup(stranger.Close)
	h := newHarness(t, nil)
	h.Env["BELFRY_SERVER"], h.Env["BELFRY_TOKEN_FILE"] = belfrytest.Start(t).URL, clitest.WriteFile(t, "token", text+"\n")
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if got := h.Run("doctor", "--out", path, "--debug-addr", stranger.Listener.Addr().String()); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	if header := <-asked; header.Get("Authorization") != "" {
		t.Errorf("it was shown %v", header)
	}
	for name, file := range unpack(t, path) {
		if strings.Contains(file, text) {
			t.Errorf("the token is in %s", name)
		}
	}
}
