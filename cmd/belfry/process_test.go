package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
)

// TestKilledServerKeepsItsJobs is the promise in short: what was answered is there after kill -9,
// leases too.
func TestKilledServerKeepsItsJobs(t *testing.T) {
	t.Parallel()
	program, dir := launcher, t.TempDir()
	first := serve(t, program, dir)
	for i := range 20 {
		if got := first.run(program, "put", "orders", fmt.Sprintf("job %d", i), "--delay", "1h", "--id",
			fmt.Sprintf("order-%d", i)); got.Code != 0 {
			t.Fatalf("put: %+v", got)
		}
	}
	if got := first.run(program, "put", "held", "held", "--ttr", "1h"); got.Code != 0 {
		t.Fatalf("put: %+v", got)
	}
	held := reserveOne(t, first, program, "held")
	first.signal(syscall.SIGKILL)
	if code := first.end(); code != -1 {
		t.Fatalf("the killed server ended with %d", code)
	}

	second := serve(t, program, dir)
	got := second.run(program, "list", "orders")
	if jobs := strings.Count(got.Out, "order-"); got.Code != 0 || jobs != 20 {
		t.Errorf("after kill -9 there are %d jobs, want 20:\n%s%s", jobs, got.Out, got.Err)
	}
	if got := second.run(program, "get", "orders", "order-7", "--body"); got.Out != "job 7" {
		t.Errorf("the body after kill -9: %+v", got)
	}
	if got := second.run(program, "reserve", "held"); got.Code != cli.CodeNothing {
		t.Errorf("a held job was handed out again: %+v", got)
	}
	if got := second.run(program, "ack", held.Lease); got.Code != 0 {
		t.Errorf("acking with the lease from before: %+v", got)
	}
}

// reserved is what the tests read of a reserved job.
type reserved struct {
	ID, Lease, Fence string
	Attempt          int
}

// reserveOne reserves a job that must be there.
func reserveOne(t *testing.T, p *process, program, queue string) reserved {
	t.Helper()
	got := p.run(program, "reserve", queue, "--wait", "10s", "-o", "json")
	var answer struct{ Jobs []reserved }
	if err := json.Unmarshal([]byte(got.Out), &answer); err != nil || len(answer.Jobs) != 1 {
		t.Fatalf("reserving from %s: %+v, %v", queue, got, err)
	}
	return answer.Jobs[0]
}

// TestStaleLease walks through a lapsed lease on the command line.
func TestStaleLease(t *testing.T) {
	t.Parallel()
	program := launcher
	p := serve(t, program, t.TempDir())
	if got := p.run(program, "put", "orders", "x", "--ttr", "100ms"); got.Code != 0 {
		t.Fatalf("put: %+v", got)
	}
	old := reserveOne(t, p, program, "orders")
	young := reserveOne(t, p, program, "orders") // waits until the lease has lapsed
	if young.ID != old.ID || young.Attempt != 2 || young.Fence <= old.Fence {
		t.Errorf("after the lapse: %+v, before: %+v; want the same job with a higher fence", young, old)
	}
	got := p.run(program, "ack", old.Lease)
	if got.Code != cli.CodeConflict || !strings.Contains(got.Err, "STALE_LEASE") {
		t.Errorf("acking with the old lease: %+v, want exit code 6 and STALE_LEASE", got)
	}
}

func TestServerStopsOnSignal(t *testing.T) {
	t.Parallel()
	program := launcher
	p := serve(t, program, t.TempDir(), "--log-format", "auto") // no terminal has its standard error
	waiting := make(chan clitest.Outcome, 1)
	go func() { waiting <- p.run(program, "reserve", "orders", "--wait", "60s") }()
	awaitMetric(t, p.address, "belfry_shard_waiters", 1)
	p.signal(syscall.SIGTERM)
	if code := p.end(); code != 0 {
		t.Errorf("the server ended with %d and said:\n%s", code, p.stderr)
	}
	if got := <-waiting; got.Code != cli.CodeNothing {
		t.Errorf("the waiting reserve ended with %+v, want exit code 10", got)
	}
	for line := range strings.Lines(p.stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line of the log is no JSON: %s", line)
		}
	}
	if !strings.Contains(p.stderr.String(), `"msg":"stopped"`) {
		t.Errorf("the log does not say that it stopped:\n%s", p.stderr)
	}
}

// TestSecondSignalEndsAtOnce keeps a call half sent, so that draining takes long, and sends a
// second signal.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	program := launcher
	p := serve(t, program, t.TempDir())
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST /v1/put HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	// The server must have seen the call, or there is nothing to drain.
	if got := p.run(program, "health"); got.Code != 0 {
		t.Fatal(got)
	}
	p.signal(syscall.SIGTERM)
	awaitText(t, p, "msg=stopping")
	p.signal(syscall.SIGINT)
	if code := p.end(); code != 130 { // and not 0, as after a drain
		t.Errorf("the server ended with %d, want 130; it said:\n%s", code, p.stderr)
	}
}

// TestEchoOfASignal stops a server as timeout(1) does, with a signal that comes more than once. On
// a busy machine an echo may come as late as a second signal, so one of a few servers is enough;
// one that knows no echoes never passes.
func TestEchoOfASignal(t *testing.T) {
	t.Parallel()
	const tries = 10
	for try := 1; ; try++ {
		p := serve(t, launcher, t.TempDir())
		for range 1000 { // of which the kernel makes a few
			_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGTERM) // it may have ended already
		}
		code := p.end()
		if code == 0 && strings.Contains(p.stderr.String(), "msg=stopped") {
			return
		}
		if code != cli.CodeSignal+int(syscall.SIGTERM) || try == tries {
			t.Fatalf("the server ended with %d and said:\n%s", code, p.stderr)
		}
	}
}

func TestDirectoryInUse(t *testing.T) {
	t.Parallel()
	program, dir := launcher, t.TempDir()
	p := serve(t, program, dir)
	got := runProgram(t, program, nil, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0")
	if got.Code != cli.CodeError || !strings.Contains(got.Err, dir) ||
		!strings.Contains(got.Err, fmt.Sprint(p.command.Process.Pid)) {
		t.Errorf("got %+v, want exit code 1, the directory and the pid %d", got, p.command.Process.Pid)
	}
}

// TestShardsNeverChange: another number is refused, also the default if it is said; what is not
// said is the directory's.
func TestShardsNeverChange(t *testing.T) {
	t.Parallel()
	program, dir := launcher, t.TempDir()
	first := serve(t, program, dir, "--shards", "2")
	first.signal(syscall.SIGTERM)
	if code := first.end(); code != 0 {
		t.Fatalf("the server ended with %d and said:\n%s", code, first.stderr)
	}
	got := runProgram(t, program, nil, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0",
		"--shards", "6")
	if got.Code != cli.CodeError || !strings.Contains(got.Err, "has 2 shards, not 6") {
		t.Errorf("got %+v, want exit code 1 and how many shards there are", got)
	}
	again := serve(t, program, dir)
	if got := again.run(program, "health"); strings.Count(got.Out, "shard-") != 2 {
		t.Errorf("the server has not the directory's two shards:\n%s", got.Out)
	}
}

func TestServeRefusesANetwork(t *testing.T) {
	t.Parallel()
	got := runProgram(t, launcher, nil, "serve", "--data", t.TempDir(), "--listen", "0.0.0.0:0")
	if got.Code != cli.CodeUsage || !strings.Contains(got.Err, "--insecure") {
		t.Errorf("got %+v, want exit code 2 and what --insecure is for", got)
	}
}

// TestServeIsConfigured starts the server from a file and the environment.
// TestServeShowsItsGoroutines: a server listens for people who look into it, and the doctor does.
func TestServeShowsItsGoroutines(t *testing.T) {
	t.Parallel()
	p := serve(t, launcher, t.TempDir(), "--debug-addr", "127.0.0.1:0")
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if got := p.run(launcher, "doctor", "--out", path, "--debug-addr", p.debug); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	files := unpack(t, path)
	if text := files["goroutines.txt"]; !strings.Contains(text, "hashicorp/raft") {
		t.Errorf("its goroutines are %.300s", text)
	}
	if text := files["cluster.json"]; !strings.Contains(text, p.address) {
		t.Errorf("the cluster is %s", text)
	}
	p.signal(syscall.SIGTERM)
	if <-p.exited; p.err != nil {
		t.Errorf("it ended with %v:\n%s", p.err, p.stderr)
	}
}

func TestServeIsConfigured(t *testing.T) {
	t.Parallel()
	program, dir := launcher, t.TempDir()
	file := clitest.WriteFile(t, "belfry.conf",
		fmt.Sprintf("data = %q\nlisten = 127.0.0.1:1\nprint-addresses = true\nnode-id = file\nshards = 2\n", dir))
	command := exec.Command(program, "serve", "--config", file) //nolint:noctx // the cleanup kills it
	command.Env = environment("BELFRY_LISTEN=127.0.0.1:0", "BELFRY_PEER_LISTEN=127.0.0.1:0", "BELFRY_NODE_ID=env")
	p := startServer(t, command)
	got := p.run(program, "health")
	if strings.Count(got.Out, "shard-") != 2 {
		t.Errorf("the server has not the file's two shards:\n%s", got.Out)
	}
	if name := header(t, p.address, "Belfry-Served-By"); name != "env" {
		t.Errorf("the node is named %q, want the environment's name", name)
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	program := launcher
	p := serve(t, program, t.TempDir())
	for _, queue := range []string{"orders", "orders-eu", "mail"} {
		if got := p.run(program, "put", queue, "x"); got.Code != 0 {
			t.Fatal(got)
		}
	}
	if got := p.run(program, "__complete", "get", "or"); !strings.HasPrefix(got.Out, "orders\norders-eu\n:") {
		t.Errorf("completing a queue's name: %+v", got)
	}
	if got := p.run(program, "__complete", "bench", "la"); !strings.HasPrefix(got.Out, "lateness") {
		t.Errorf("completing a workload: %+v", got)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := p.run(program, "completion", shell); got.Code != 0 || !strings.Contains(got.Out, "belfry") {
			t.Errorf("the script for %s: exit code %d, %d bytes", shell, got.Code, len(got.Out))
		}
	}
}
