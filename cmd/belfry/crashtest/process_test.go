package crashtest

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// program builds the program once for all tests of the package.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "belfry-crashtest")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "belfry")
	build := exec.Command("go", "build", "-o", path, "github.com/belfrydb/belfry/cmd/belfry")
	build.Stderr = os.Stderr
	return path, build.Run()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// process is a server that can be killed and started again on the same data and address.
type process struct {
	t      *testing.T
	dir    string
	listen string
	cmd    *exec.Cmd
}

// startProcess starts a server on a new data directory and waits until it serves.
func startProcess(t *testing.T) *process {
	t.Helper()
	p := &process{t: t, dir: filepath.Join(t.TempDir(), "data"), listen: "127.0.0.1:0"}
	p.start()
	t.Cleanup(p.kill)
	return p
}

// start runs the server and returns when it has printed its address, which it does once it serves.
func (p *process) start() {
	path, err := program()
	if err != nil {
		p.t.Fatalf("building the server: %v", err)
	}
	//nolint:noctx // killed by the test or its cleanup
	p.cmd = exec.Command(path, "serve", "--data", p.dir, "--listen", p.listen, "--print-addresses", "--log-level", "warn")
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		p.t.Fatalf("the server ended before it served: %v", err)
	}
	var addresses struct{ Listen string }
	if err := json.Unmarshal(line, &addresses); err != nil {
		p.t.Fatalf("the server's address %q: %v", line, err)
	}
	p.listen = addresses.Listen
}

// kill sends SIGKILL and waits for the end of the process.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill() // it may have ended by itself; Wait tells
		_ = p.cmd.Wait()         // an error, since it was killed
	}
}

// restart kills the server and starts it again on the same data and address.
func (p *process) restart() {
	p.kill()
	p.start()
}

func (p *process) url() string { return "http://" + p.listen }
