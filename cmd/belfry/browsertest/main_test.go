package browsertest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/processtest"
)

// waitMax bounds every wait for a condition: only what hangs takes that long, however busy the
// machine is.
const waitMax = 2 * time.Minute

// axeFile is where `make tools` puts axe-core.
const axeFile = "../../../bin/axe.min.js"

var program processtest.Program

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if err := program.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// site is a server with its dashboard.
type site struct {
	server *processtest.Server
	client *client.Client
	// token is the root token; empty if calls need none.
	token string
	// counted and running are the ids of tasks: one that has counted jobs, and one that takes hours.
	counted, running string
}

// page returns the address of a page.
func (s *site) page(path string) string { return s.server.URL() + "/ui/" + path }

// startOpen starts a server whose calls need no token.
func startOpen(t *testing.T) *site {
	t.Helper()
	s := &site{server: program.New(t, filepath.Join(t.TempDir(), "data"), "--node-id", "n1", "--log-level", "warn")}
	s.start(t)
	return s
}

// startSecured starts a server whose calls need a token.
func startSecured(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	out, err := program.Run(t.Context(), "token", "root", "--dir", dir, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var made struct{ RootTokens, Token string }
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(made.Token)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{
		server: program.New(t, filepath.Join(t.TempDir(), "data"), "--node-id", "n1", "--log-level", "warn",
			"--root-tokens", made.RootTokens),
		token: string(token[:len(token)-1]),
	}
	s.start(t, client.WithToken(s.token))
	return s
}

func (s *site) start(t *testing.T, options ...client.Option) {
	t.Helper()
	s.server.Start()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of the server ends with:\n%s", processtest.Tail(s.server.Log(), 30))
		}
	})
	sdk, err := client.New(s.server.URL(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sdk.Close() })
	s.client = sdk
}

// startBrowser starts the browser that all tests share, and returns the context for its tabs.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("missing: chromium; on Debian: apt-get install -y chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, // root has no sandbox
		chromedp.Flag("lang", "en"), chromedp.Env("TZ=Asia/Tokyo"), chromedp.WSURLReadTimeout(waitMax))
	allocated, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	browser, cancel := chromedp.NewContext(allocated)
	t.Cleanup(cancel)
	if err := chromedp.Do(browser); err != nil {
		t.Fatalf("starting %s: %v", path, err)
	}
	return browser
}

// readAxe returns axe-core, the program that checks the pages for people who see or move little.
func readAxe(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile(axeFile)
	if err != nil {
		t.Fatalf("missing: axe-core; make tools fetches it: %v", err)
	}
	return string(source)
}
