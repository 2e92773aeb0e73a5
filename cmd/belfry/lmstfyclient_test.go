package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	// lmstfyModule is the module whose client, with its tests, TestLmstfyClient runs; lmstfySum is the
	// sum of what it contains.
	lmstfyModule = "github.com/bitleak/lmstfy@v1.0.15"
	lmstfySum    = "h1:ZZuYF1aR0JsmDYGpoua1uC6LRxdPHKXja4dT1nQ36ec="
	// lmstfyTests is how many tests it has.
	lmstfyTests = 20
)

// lmstfySetup takes the place of the file that starts lmstfy for these tests.
const lmstfySetup = `package client

import (
	"net"
	"os"
	"strconv"
)

var Host, Port = address()

var Namespace, Token = "client-ns", os.Getenv("LMSTFY_TOKEN")

func address() (string, int) {
	host, port, err := net.SplitHostPort(os.Getenv("LMSTFY_ADDRESS"))
	if err != nil {
		panic(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		panic(err)
	}
	return host, number
}
`

// TestLmstfyClient runs the tests of lmstfy's Go client against a server, with a token that an
// administrator makes for their namespace. Only the file that starts their server is another.
func TestLmstfyClient(t *testing.T) {
	t.Parallel()
	root := makeRoot(t, t.TempDir(), "root")
	p := serve(t, launcher, t.TempDir(), "--root-tokens", root.RootTokens, "--lmstfy-listen", "127.0.0.1:0")
	dir := lmstfyClient(t)
	run := exec.CommandContext(t.Context(), "go", "test", "-v", "-count=1", ".")
	run.Dir = dir
	run.Env = append(os.Environ(), "LMSTFY_ADDRESS="+p.lmstfy,
		"LMSTFY_TOKEN="+lmstfyToken(t, p.lmstfy, tokenText(t, root.Token)))
	out, err := run.CombinedOutput()
	passed := regexp.MustCompile(`(?m)^--- PASS: Test`).FindAll(out, -1)
	if err != nil || len(passed) != lmstfyTests {
		t.Errorf("%d of %d tests of the client passed: %v\n%s", len(passed), lmstfyTests, err, out)
	}
}

// lmstfyClient copies lmstfy's client and its tests into a module of their own.
func lmstfyClient(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	pinned := filepath.Join(repository, ".ci", "lmstfy")
	for _, name := range []string{"go.mod", "go.sum"} {
		copyFile(t, filepath.Join(pinned, name), filepath.Join(dir, name))
	}
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", lmstfyModule)
	download.Dir = dir
	out, err := download.Output()
	if err != nil {
		t.Fatalf("%s is not to be had: %v\n%s", lmstfyModule, err, out)
	}
	var module struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &module); err != nil || module.Sum != lmstfySum {
		t.Fatalf("%s has the sum %s, want %s; %v", lmstfyModule, module.Sum, lmstfySum, err)
	}
	for _, name := range []string{"client.go", "errors.go", "client_test.go"} {
		copyFile(t, filepath.Join(module.Dir, "client", name), filepath.Join(dir, name))
	}
	if err := os.WriteFile(filepath.Join(dir, "setup_test.go"), []byte(lmstfySetup), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// copyFile copies a file.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// tokenText reads the token in a file.
func tokenText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// lmstfyToken has an administrator make a token, as lmstfy's own scripts do.
func lmstfyToken(t *testing.T, address, admin string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+address+"/token/client-ns?description=client", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.SetBasicAuth("admin", admin)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var made struct{ Token string }
	if err := json.NewDecoder(response.Body).Decode(&made); err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("making a token: %d, %v", response.StatusCode, err)
	}
	return made.Token
}
