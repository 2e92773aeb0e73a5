package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// mirrorPage is where the commands of the mirror's page run: a Redis with an application of
// Redisson beside what a page has.
type mirrorPage struct {
	page
	redis *redistest.Server
	app   *redissontest.Client
	// metrics is the address of a server with a bridge.
	metrics string
}

// TestMirrorReadme runs every command of the mirror's page, in order, and looks what became of the
// entries that an application has: three that are due in an hour, and what it offers on the way.
func TestMirrorReadme(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "mirror", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	p := newMirrorPage(t, root)
	for n := range 3 {
		p.offer(t, fmt.Sprintf("order %d", n), time.Hour)
	}
	ran := make(map[string]bool)
	for i, block := range fenced(string(text), "sh") {
		first := strings.SplitN(block, "\n", 2)[0]
		if ok := t.Run(fmt.Sprintf("%02d %s", i+1, first), func(t *testing.T) { ran[p.step(t, block)] = true }); !ok {
			return // what follows builds on it
		}
	}
	for _, step := range []string{"inspect", "dry-run", "run", "serve", "follow", "rollback", "cutover", "finalize",
		"make", "ACL"} {
		if !ran[step] {
			t.Errorf("the page has no command of the kind %q", step)
		}
	}
}

func newMirrorPage(t *testing.T, root string) *mirrorPage {
	t.Helper()
	r := redistest.Start(t)
	return &mirrorPage{
		page: page{
			t: t, root: root, dir: t.TempDir(), bin: filepath.Dir(launcher), address: serve(t, launcher, t.TempDir()).address,
		},
		redis: r,
		app:   redissontest.New(r.Client(), "orders", redissontest.NewGeneration, time.Now),
	}
}

// step runs a block and checks what it did. It returns what kind of block it was.
func (p *mirrorPage) step(t *testing.T, block string) string {
	t.Helper()
	block = strings.ReplaceAll(block, "127.0.0.1:6379", p.redis.Address())
	block = strings.ReplaceAll(block, "localhost:7400/metrics", p.metrics+"/metrics")
	kinds := []string{"make", "dry-run", "ACL", "inspect", "mirror run", "belfry serve", "follow", "rollback", "cutover",
		"finalize"}
	for _, kind := range kinds {
		if !strings.Contains(block, kind) {
			continue
		}
		switch kind {
		case "make": // Docker is not there in every test; what the targets start is in deploy_test.go
			p.run(t, strings.ReplaceAll(block, "make ", "make --dry-run "))
		case "mirror run":
			p.through(t, block)
		case "ACL":
			p.run(t, block)
			p.restricted(t)
		case "belfry serve":
			p.serveMirror(t, block)
		case "follow":
			stop := p.start(t, block)
			p.offer(t, "followed", time.Hour)
			await(t, "the import", func() bool { return p.pending(t) == 0 })
			stop()
		case "cutover":
			p.run(t, strings.ReplaceAll(block, "10m", "100ms"))
			p.want(t, 0)
		default:
			p.run(t, block)
		}
		switch kind {
		case "dry-run":
			p.want(t, 3)
		case "rollback":
			p.want(t, 4)
		case "finalize":
			// The key that stays for a day keeps a bridge that was overtaken refused.
			keys := p.redis.Client().Keys(t.Context(), "belfry_*").Val()
			if left := p.redis.Client().TTL(t.Context(), "belfry_mirror:{orders}").Val(); len(keys) != 1 || left <= 0 {
				t.Errorf("the keys %q are left, for %v", keys, left)
			}
		}
		words := strings.Fields(kind)
		return words[len(words)-1]
	}
	p.run(t, block)
	return ""
}

// through has an entry come back on the ready list while a block runs.
func (p *mirrorPage) through(t *testing.T, block string) {
	t.Helper()
	stop := p.start(t, block)
	p.offer(t, "through", 0)
	if got, ok, err := p.app.Take(t.Context(), time.Minute); err != nil || !ok || string(got) != "through" {
		t.Errorf("the ready list gave %q, %v, %v", got, ok, err)
	}
	stop()
}

// restricted goes the whole way as the user of Redis that the page makes.
func (p *mirrorPage) restricted(t *testing.T) {
	t.Helper()
	rest := fmt.Sprintf(" redis://mirror:secret@%s --queue orders", p.redis.Address())
	p.through(t, "belfry mirror run"+rest)
	p.offer(t, "later", time.Hour)
	for _, command := range []string{"import", "rollback", "cutover --quiet 100ms", "finalize"} {
		p.run(t, "belfry mirror "+command+rest)
	}
	p.want(t, 0)
}

// offer has the application offer an entry.
func (p *mirrorPage) offer(t *testing.T, payload string, delay time.Duration) {
	t.Helper()
	if err := p.app.Offer(t.Context(), []byte(payload), time.Now().Add(delay)); err != nil {
		t.Fatal(err)
	}
}

// pending is how many entries the application sees.
func (p *mirrorPage) pending(t *testing.T) int {
	t.Helper()
	n, err := p.app.Size(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (p *mirrorPage) want(t *testing.T, entries int) {
	t.Helper()
	if got := p.pending(t); got != entries {
		t.Errorf("Redis has %d entries, want %d", got, entries)
	}
}

// start runs a block that goes on until it is interrupted, which stop does.
func (p *mirrorPage) start(t *testing.T, block string) (stop func()) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", "-c", "exec "+block)
	command.Dir, command.Env = p.dir, p.environment()
	printed := &lockedBuffer{}
	command.Stdout, command.Stderr = printed, printed
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := command.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		command.Wait() //nolint:errcheck,gosec // the code says it
		if code := command.ProcessState.ExitCode(); code != 130 {
			t.Errorf("interrupted, it ended with %d:\n%s", code, printed)
		}
	}
}

// serveMirror runs the block that starts a server with a bridge, with a Redis of its own: one that
// belongs to one cluster is refused by another. The next block asks that server for its metrics.
func (p *mirrorPage) serveMirror(t *testing.T, block string) {
	t.Helper()
	other := redistest.Start(p.t)
	command := exec.Command("bash", "-c", //nolint:noctx // the cleanup kills it
		"exec "+strings.ReplaceAll(block, p.redis.Address(), other.Address()))
	command.Env = append(p.environment(), "BELFRY_LISTEN=127.0.0.1:0", "BELFRY_PRINT_ADDRESSES=true",
		"BELFRY_DATA="+filepath.Join(p.t.TempDir(), "data"))
	bridged := startServer(p.t, command)
	app := redissontest.New(other.Client(), "orders", redissontest.NewGeneration, time.Now)
	if err := app.Offer(t.Context(), []byte("through a server"), time.Now()); err != nil {
		t.Fatal(err)
	}
	awaitMetric(t, bridged.address, "belfry_mirror_delivered_total", 1)
	p.metrics = bridged.address
}
