package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// repository is the root of the module, from this package.
const repository = "../.."

// readPage returns a page, by its path from the root of the module.
func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readme returns the README.
func readme(t *testing.T) string {
	t.Helper()
	return readPage(t, "README.md")
}

// fenced returns the blocks of a language, in order.
func fenced(text, language string) []string {
	var blocks []string
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, match[1])
	}
	return blocks
}

// page is where the commands of a page run: a directory for its files, and a server for its calls.
type page struct {
	t       *testing.T
	root    string // of the module, absolute
	dir     string
	bin     string
	address string
}

// TestReadme runs every command of the README, in order, as a reader would: the block that starts
// the server starts it, and the others talk to it. Only its address is another, because the default
// one may be in use.
func TestReadme(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	p := &page{t: t, root: root, dir: t.TempDir(), bin: t.TempDir()}
	blocks := fenced(readme(t), "sh")
	if len(blocks) < 5 {
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

// environment is what the page's commands see.
func (p *page) environment() []string {
	return environment(
		"BELFRY_SERVER="+p.address, "GOBIN="+p.bin, "PATH="+p.bin+string(os.PathListSeparator)+os.Getenv("PATH"),
		"GOFLAGS=-buildvcs=false",
		"BELFRY_PEER_LISTEN=127.0.0.1:0", // the default port may be in use
	)
}

// serve runs the block that starts the server, with a free port and a directory of the test's.
func (p *page) serve(block string) {
	command := exec.Command("bash", "-c", //nolint:noctx // the cleanup kills it
		strings.Replace(block, "go run", "exec go run", 1))
	command.Dir = p.root
	command.Env = append(p.environment(), "BELFRY_LISTEN=127.0.0.1:0", "BELFRY_PRINT_ADDRESSES=true",
		"BELFRY_DATA="+filepath.Join(p.dir, "data"))
	p.address = startServer(p.t, command).address
}

// join runs the block that adds a second node, to a server of its own: what follows is for one
// node.
func (p *page) join(t *testing.T, block string) {
	first := serve(t, launcher, t.TempDir())
	block = strings.NewReplacer(
		"go run", "exec go run", "./n2-data", filepath.Join(t.TempDir(), "data"), "127.0.0.1:7410", "127.0.0.1:0",
		"127.0.0.1:7402", first.gossip,
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
		t.Fatal("the page has not started a server yet")
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

// TestReadmeWorker compiles the worker of the README, lets it do a job, and stops it.
func TestReadmeWorker(t *testing.T) {
	t.Parallel()
	blocks := fenced(readme(t), "go")
	if len(blocks) != 1 {
		t.Fatalf("the README has %d programs, want a worker", len(blocks))
	}
	program := launcher
	p := serve(t, program, t.TempDir())
	source := strings.ReplaceAll(blocks[0], "127.0.0.1:7400", p.address)
	path := filepath.Join(t.TempDir(), "worker")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, clitest.WriteFile(t, "main.go", source))
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
	if got := p.run(program, "put", "orders", "close order 42", "--id", "order-42", "--delay", "100ms"); got.Code != 0 {
		t.Fatal(got)
	}
	await(t, "the worker", func() bool {
		return strings.Contains(printed.String(), "order-42: close order 42 (attempt 1, fence ")
	})
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := worker.Wait(); err != nil || !strings.HasSuffix(printed.String(), "stopped: <nil>\n") {
		t.Errorf("the worker ended with %v and printed:\n%s", err, printed)
	}
	if got := p.run(program, "get", "orders", "order-42"); got.Code != 0 || !strings.Contains(got.Out, "acked") {
		t.Errorf("the job has not ended: %+v", got)
	}
}
