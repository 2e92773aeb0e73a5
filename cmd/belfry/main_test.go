package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	"github.com/belfrydb/belfry/cmd/belfry/processtest"
)

// asBelfry is set in the environment of a copy of the test binary that shall be the command.
const asBelfry = "TEST_RUNS_AS_BELFRY"

var (
	// launcher is the path of a program `belfry`: a script that starts the test binary as the command.
	launcher string
	// addresses are for servers that come back to theirs.
	addresses processtest.Addresses
)

// TestMain lets the test binary be the command: what the tests start is what was just compiled.
func TestMain(m *testing.M) {
	if os.Getenv(asBelfry) != "" {
		main()
	}
	cobra.EnableCommandSorting = false // as main does
	os.Exit(runTests(m))
}

// runTests writes the launcher and runs the tests. No test writes a program of its own: a process
// that another test forks meanwhile would hold it open for writing, and the system refuses to start
// such a file ("text file busy").
func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "belfry")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	launcher = filepath.Join(dir, "belfry")
	self, err := os.Executable()
	if err == nil {
		script := fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", asBelfry, self)
		err = os.WriteFile(launcher, []byte(script), 0o700) //nolint:gosec // it must be executable
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// process is a server in a process of its own.
type process struct {
	t       *testing.T
	command *exec.Cmd
	address string
	// peers is where other nodes reach it, gossip where they gossip with it.
	peers, gossip string
	// debug is where it shows what the process does; empty without --debug-addr.
	debug string
	// lmstfy is where clients of lmstfy reach it, if it was asked to listen for them.
	lmstfy string
	// ca is the file of the authority that it has its certificate from; empty without TLS.
	ca string
	// token is the file of the token that commands carry; empty for none.
	token  string
	stderr *lockedBuffer
	// printed is closed when the server is ready, or has ended before.
	printed chan struct{}
	// exited is closed when the process has ended, after err was set.
	exited chan struct{}
	err    error
}

// lockedBuffer may be written and read side by side.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// environment returns this process's environment without what would configure the command, and with
// what is given.
func environment(more ...string) []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "BELFRY_") {
			env = append(env, entry)
		}
	}
	return append(env, more...)
}

// serve starts a server on a free port and returns when it is ready.
func serve(t *testing.T, program, dir string, more ...string) *process {
	t.Helper()
	args := append([]string{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0",
		"--print-addresses", "--log-format", "text"}, more...)
	return startServer(t, exec.Command(program, args...)) //nolint:noctx // the cleanup kills it
}

// startServer starts a command that prints the server's addresses, and returns when it has.
func startServer(t *testing.T, command *exec.Cmd) *process {
	t.Helper()
	p := launch(t, command)
	<-p.printed
	if p.address == "" {
		<-p.exited
		t.Fatalf("the server did not print its addresses and said:\n%s", p.stderr)
	}
	return p
}

// launch starts a command that prints the server's addresses once it is ready. The addresses may be
// read once printed is closed.
func launch(t *testing.T, command *exec.Cmd) *process {
	t.Helper()
	p := &process{
		t: t, command: command, stderr: &lockedBuffer{}, printed: make(chan struct{}), exited: make(chan struct{}),
	}
	if command.Env == nil {
		command.Env = environment()
	}
	command.Stderr = p.stderr
	// A group of its own, so that all of it can be killed: `go run` has a child.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.exited
	})
	go func() {
		lines := bufio.NewReader(stdout)
		line, _ := lines.ReadBytes('\n') // a line that is cut off has no addresses
		var addresses struct{ Listen, PeerListen, GossipListen, DebugListen, LmstfyListen string }
		if json.Unmarshal(line, &addresses) == nil {
			p.address, p.peers, p.gossip, p.debug = addresses.Listen, addresses.PeerListen, addresses.GossipListen,
				addresses.DebugListen
			p.lmstfy = addresses.LmstfyListen
		}
		close(p.printed)
		io.Copy(io.Discard, lines) //nolint:errcheck // nothing more is expected
		p.err = command.Wait()
		close(p.exited)
	}()
	return p
}

// signal sends a signal to the server and all that it started, if they have not ended.
func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	select {
	case <-p.exited:
	default:
		// Between the end of the process and exited there is a moment in which no process is left.
		if err := syscall.Kill(-p.command.Process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			p.t.Errorf("sending %v: %v", sig, err)
		}
	}
}

// end waits until the server has ended and returns its exit code, -1 if a signal killed it.
func (p *process) end() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.command.ProcessState.ExitCode()
	case <-time.After(4 * time.Minute): // only what hangs takes that long, however busy the machine is
		p.t.Fatalf("the server did not end; it said:\n%s", p.stderr)
		return 0
	}
}

// refuses expects that a command ends with a code and says why.
func (p *process) refuses(code int, why string, args ...string) {
	p.t.Helper()
	if got := p.run(launcher, args...); got.Code != code || !strings.Contains(got.Err, why) {
		p.t.Errorf("%q: %+v, want exit code %d and %q", args, got, code, why)
	}
}

// run runs a command line against the server. That of the program under test runs within this
// process, as the race detector makes the start of one cost more than most commands; readme_test.go
// has each command in a process of its own.
func (p *process) run(program string, args ...string) clitest.Outcome {
	p.t.Helper()
	env := []string{"BELFRY_SERVER=" + p.address, "BELFRY_TLS_CA=" + p.ca, "BELFRY_TOKEN_FILE=" + p.token}
	if program != launcher {
		return runProgram(p.t, program, env, args...)
	}
	var out, errOut bytes.Buffer
	s := cli.NewSystem()
	s.In, s.Out, s.Err = strings.NewReader(""), &out, &errOut
	s.InTerminal, s.OutTerminal, s.ErrTerminal = false, false, false
	s.Environ = func() []string { return env }
	s.LookupEnv = func(name string) (value string, ok bool) {
		switch name {
		case "BELFRY_SERVER":
			return p.address, true
		case "BELFRY_TLS_CA":
			return p.ca, true
		case "BELFRY_TOKEN_FILE":
			return p.token, true
		}
		return "", false
	}
	s.Exit = func(code int) { p.t.Errorf("%v ended the process with %d", args, code) }
	code := run(p.t.Context(), s, args)
	return clitest.Left(code, out.String(), errOut.String())
}

// runProgram runs a command line in a process of its own.
func runProgram(t *testing.T, program string, env []string, args ...string) clitest.Outcome {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	var out, errOut bytes.Buffer
	command.Stdout, command.Stderr, command.Env = &out, &errOut, environment(env...)
	if err := command.Run(); err != nil && command.ProcessState == nil {
		t.Fatalf("running %v: %v", args, err)
	}
	return clitest.Left(command.ProcessState.ExitCode(), out.String(), errOut.String())
}
