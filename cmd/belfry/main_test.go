package main

import (
	"bufio"
	"bytes"
	"encoding/json"
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
)

// asBelfry is set in the environment of a copy of the test binary that shall be the command.
const asBelfry = "TEST_RUNS_AS_BELFRY"

// TestMain lets the test binary be the command: what the tests start is what was just compiled.
func TestMain(m *testing.M) {
	if os.Getenv(asBelfry) != "" {
		main()
	}
	cobra.EnableCommandSorting = false // as main does
	os.Exit(m.Run())
}

// belfry returns the path of a program `belfry` in a directory of its own.
func belfry(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "belfry")
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", asBelfry, self)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	return path
}

// process is a server in a process of its own.
type process struct {
	t       *testing.T
	command *exec.Cmd
	address string
	stderr  *lockedBuffer
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

// environment returns this process's environment without what would configure the command, and with what is given.
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
	args := append([]string{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--print-addresses"}, more...)
	return startServer(t, exec.Command(program, args...)) //nolint:noctx // the cleanup kills it
}

// startServer starts a command that prints the server's addresses.
func startServer(t *testing.T, command *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, command: command, stderr: &lockedBuffer{}, exited: make(chan struct{})}
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
	lines := bufio.NewReader(stdout)
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.exited
	})
	line, readErr := lines.ReadBytes('\n')
	go func() {
		io.Copy(io.Discard, lines) //nolint:errcheck // nothing more is expected
		p.err = command.Wait()
		close(p.exited)
	}()
	var addresses struct{ Listen string }
	if err := json.Unmarshal(line, &addresses); readErr != nil || err != nil || addresses.Listen == "" {
		<-p.exited
		t.Fatalf("the server printed %q (%v, %v) and said:\n%s", line, readErr, err, p.stderr)
	}
	p.address = addresses.Listen
	return p
}

// signal sends a signal to the server and all that it started.
func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	select {
	case <-p.exited:
	default:
		if err := syscall.Kill(-p.command.Process.Pid, sig); err != nil {
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
	case <-time.After(30 * time.Second):
		p.t.Fatalf("the server did not end; it said:\n%s", p.stderr)
		return 0
	}
}

// command runs a command line against the server, in a process of its own.
func (p *process) run(program string, args ...string) outcome {
	p.t.Helper()
	return runProgram(p.t, program, []string{"BELFRY_SERVER=" + p.address}, args...)
}

// runProgram runs a command line in a process of its own.
func runProgram(t *testing.T, program string, env []string, args ...string) outcome {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	var out, errOut bytes.Buffer
	command.Stdout, command.Stderr, command.Env = &out, &errOut, environment(env...)
	if err := command.Run(); err != nil && command.ProcessState == nil {
		t.Fatalf("running %v: %v", args, err)
	}
	return outcome{command.ProcessState.ExitCode(), out.String(), errOut.String()}
}
