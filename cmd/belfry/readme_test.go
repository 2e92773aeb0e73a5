package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// repository is the root of the module, from this package.
const repository = "../.."

// readme returns the README.
func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fenced returns the blocks of a language, in order.
func fenced(text, language string) []string {
	var blocks []string
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, match[1])
	}
	return blocks
}

// page is where the README's commands run: a directory for its files, and a server for its calls.
type page struct {
	t       *testing.T
	root    string // of the module, absolute
	dir     string
	bin     string
	address string
}

// TestReadme runs every command of the README, in order, as a reader would: the block that starts the server starts it,
// and the others talk to it. Only its address is another, because the default one may be in use.
func TestReadme(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	p := &page{t: t, root: root, dir: t.TempDir(), bin: t.TempDir()}
	blocks := fenced(readme(t), "sh")
	if len(blocks) < 8 {
		t.Fatalf("found %d blocks of commands; the README has more", len(blocks))
	}
	for i, block := range blocks {
		ok := t.Run(fmt.Sprintf("%02d %s", i+1, strings.SplitN(block, "\n", 2)[0]), func(t *testing.T) {
			switch {
			case strings.HasSuffix(strings.TrimSpace(block), "belfry serve"):
				p.serve(block)
			case strings.Contains(block, "--join 127.0.0.1:7402"):
				p.join(t, block)
			case strings.Contains(block, "make up"):
				// Docker is not there in every test; what the targets start is in deploy_test.go.
				p.run(t, strings.ReplaceAll(block, "make ", "make --dry-run "))
			default:
				p.run(t, block)
			}
		})
		if !ok {
			return // what follows builds on it
		}
	}
}

// environment is what the README's commands see.
func (p *page) environment() []string {
	return environment(
		"BELFRY_SERVER="+p.address, "GOBIN="+p.bin, "PATH="+p.bin+string(os.PathListSeparator)+os.Getenv("PATH"), "GOFLAGS=-buildvcs=false",
		"BELFRY_PEER_LISTEN=127.0.0.1:0", // the default port may be in use
	)
}

// serve runs the block that starts the server, with a free port and a directory of the test's.
func (p *page) serve(block string) {
	command := exec.Command("bash", "-c", strings.Replace(block, "go run", "exec go run", 1)) //nolint:noctx // the cleanup kills it
	command.Dir = p.root
	command.Env = append(p.environment(), "BELFRY_LISTEN=127.0.0.1:0", "BELFRY_PRINT_ADDRESSES=true", "BELFRY_DATA="+filepath.Join(p.dir, "data"))
	p.address = startServer(p.t, command).address
}

// join runs the block that adds a second node, to a server of its own: what follows is for one node.
func (p *page) join(t *testing.T, block string) {
	first := serve(t, launcher, t.TempDir())
	block = strings.NewReplacer(
		"go run", "exec go run", "./n2-data", filepath.Join(t.TempDir(), "data"), "127.0.0.1:7410", "127.0.0.1:0", "127.0.0.1:7402", first.gossip,
	).Replace(block)
	command := exec.Command("bash", "-c", block) //nolint:noctx // the cleanup kills it
	command.Dir = p.root
	command.Env = append(p.environment(), "BELFRY_PRINT_ADDRESSES=true")
	startServer(t, command)
	awaitCluster(t, first, "two nodes", func(_ int, c *belfryv1.GetClusterResponse) bool { return len(c.Nodes) == 2 })
}

// run runs a block in the page's directory; a command of it that fails fails the test.
func (p *page) run(t *testing.T, block string) {
	t.Helper()
	if p.address == "" {
		t.Fatal("the README has not started a server yet")
	}
	block = regexp.MustCompile(`(localhost|127\.0\.0\.1):7400`).ReplaceAllString(block, p.address)
	// The source is in the root of the module; what the commands write is not.
	block = regexp.MustCompile(`(?m)^(go (?:run|install)|make) `).ReplaceAllString(block, "$1 -C "+p.root+" ")
	block = strings.ReplaceAll(block, "curl ", "curl --fail-with-body --silent --show-error ")
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", block)
	command.Dir, command.Env = p.dir, p.environment()
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\nprinted:\n%s", err, block, out)
	}
	t.Logf("%s", out)
}

// TestReadmeError holds the error body of the README against what the server answers to the call above it. The value of a
// detail is its binary form, in which the order of fields is not fixed.
func TestReadmeError(t *testing.T) {
	t.Parallel()
	match := regexp.MustCompile("(?s)curl localhost:7400(/v1/[a-z-]+) -d '([^']*)' \\|\\| true\n```\n\n```json\n(.*?)```").FindStringSubmatch(readme(t))
	if match == nil {
		t.Fatal("the README has no call with an error below it")
	}
	p := serve(t, launcher, t.TempDir())
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.address+match[1], strings.NewReader(match[2]))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	body = regexp.MustCompile(`"value":"[^"]*"`).ReplaceAll(body, []byte(`"value":"…"`))
	var got, want any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(match[3]), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the README has another error than the server (-README +server):\n%s", diff)
	}
}

// TestReadmeWorker compiles the worker of the README, lets it do a job, and stops it.
func TestReadmeWorker(t *testing.T) {
	t.Parallel()
	blocks := fenced(readme(t), "go")
	if len(blocks) != 2 {
		t.Fatalf("the README has %d programs, want a worker and a test", len(blocks))
	}
	program := launcher
	p := serve(t, program, t.TempDir())
	source := strings.ReplaceAll(blocks[0], "127.0.0.1:7400", p.address)
	path := filepath.Join(t.TempDir(), "worker")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, write(t, "main.go", source))
	build.Dir = repository
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the worker: %v\n%s", err, out)
	}
	worker := exec.CommandContext(t.Context(), path)
	printed := &lockedBuffer{}
	worker.Stdout, worker.Stderr = printed, printed
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	if got := p.run(program, "put", "orders", "close order 42", "--id", "order-42", "--delay", "100ms"); got.code != 0 {
		t.Fatal(got)
	}
	await(t, "the worker", func() bool { return strings.Contains(printed.String(), "order-42: close order 42 (attempt 1, fence ") })
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := worker.Wait(); err != nil || !strings.HasSuffix(printed.String(), "stopped: <nil>\n") {
		t.Errorf("the worker ended with %v and printed:\n%s", err, printed)
	}
	if got := p.run(program, "get", "orders", "order-42"); got.code != 0 || !strings.Contains(got.out, "acked") {
		t.Errorf("the job has not ended: %+v", got)
	}
}

// TestReadmeTest runs the test that the README shows.
func TestReadmeTest(t *testing.T) {
	t.Parallel()
	blocks := fenced(readme(t), "go")
	run := exec.CommandContext(t.Context(), "go", "test", "-v", write(t, "shop_test.go", blocks[len(blocks)-1]))
	run.Dir = repository
	if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "\n--- PASS: TestUnpaidOrderIsCancelled ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestReadmeNamesTestsThatExist guards the table of promises: a test that was renamed must be renamed there.
func TestReadmeNamesTestsThatExist(t *testing.T) {
	named := regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(readme(t), -1)
	if len(named) < 10 {
		t.Fatalf("found %d names of tests; the README has more", len(named))
	}
	grep := exec.CommandContext(t.Context(), "grep", "-rhoE", "^func Test[A-Za-z]+", "--include=*_test.go", repository)
	out, err := grep.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range named {
		if !strings.Contains(string(out), "func "+name[1]+"\n") {
			t.Errorf("the README names %s; there is no such test", name[1])
		}
	}
}

// TestReadmeGivesReasonsForDependencies compares the table of modules with go.mod.
func TestReadmeGivesReasonsForDependencies(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	required := regexp.MustCompile(`(?m)^\t(\S+) v\S+( // indirect)?$`).FindAllStringSubmatch(string(mod), -1)
	direct := make(map[string]bool)
	for _, r := range required {
		direct[r[1]] = r[2] == ""
	}
	text := readme(t)
	for module, isDirect := range direct {
		if isDirect && !strings.Contains(text, "| `"+module+"` | ") {
			t.Errorf("the README gives no reason for %s", module)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z.]+/[^`]+|[a-z]+\\.[^`]+)` \\| ").FindAllStringSubmatch(text, -1) {
		if _, known := direct[row[1]]; !known {
			t.Errorf("the README gives a reason for %s, which go.mod does not require", row[1])
		}
	}
}

// TestReadmeShowsTheFlags compares the table of flags with the flags of serve.
func TestReadmeShowsTheFlags(t *testing.T) {
	text := readme(t)
	serve, _, err := newRoot(&system{}).Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range knownSettings(serve) {
		if flag := serve.LocalNonPersistentFlags().Lookup(name); flag != nil && !strings.Contains(text, "`--"+name+"`") {
			t.Errorf("the README does not show --%s", name)
		}
	}
}
