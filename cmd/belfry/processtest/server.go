package processtest

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Server is a server that can be stopped and killed and started again on the same data and
// addresses. Its methods are for the test's own goroutine, except URL, Gossip, Log and Ended.
type Server struct {
	t       testing.TB
	program *Program
	dir     string
	args    []string

	listen, peers, gossip string
	log                   string
	group                 string // a control group that the process is in; empty for that of the test
	credential            *syscall.Credential

	command *exec.Cmd
	// serving is closed when the process serves, ended when it has ended, after err was set.
	serving, ended chan struct{}
	err            error
}

// New returns a server that is not started yet. Its data will be in dir, its log elsewhere; args
// are further arguments of `serve`. It is killed when the test ends.
func (p *Program) New(t testing.TB, dir string, args ...string) *Server {
	t.Helper()
	listen, peers, gossip := p.addresses.Free(t), p.addresses.Free(t), p.addresses.Free(t)
	s := &Server{
		t: t, program: p, dir: dir, listen: listen, peers: peers, gossip: gossip, log: filepath.Join(t.TempDir(), "log"),
	}
	s.args = append([]string{
		"serve", "--data", dir, "--listen", listen, "--peer-listen", peers, "--gossip-listen", gossip, "--print-addresses",
		"--log-format", "text",
	}, args...)
	t.Cleanup(s.Kill)
	return s
}

// Add adds arguments of `serve`, from the next start on.
func (s *Server) Add(args ...string) { s.args = append(s.args, args...) }

// Within has the process in the control group of a directory from its first moment on, from the
// next start on.
func (s *Server) Within(group string) { s.group = group }

// As has the process run under the number of a group of users, by which a firewall can tell its
// packets, from the next start on. It takes root.
func (s *Server) As(group uint32) { s.credential = &syscall.Credential{Gid: group} }

// commandOf returns the command that runs the program.
func (s *Server) commandOf(path string) *exec.Cmd {
	if s.group == "" {
		return exec.Command(path, s.args...) //nolint:noctx // killed by the test or its cleanup
	}
	const enter = `echo $$ >"$0/cgroup.procs" && exec "$@"`
	return exec.Command("sh", append([]string{"-c", enter, s.group, path}, s.args...)...) //nolint:noctx // as above
}

// Start runs the server and returns when it serves.
func (s *Server) Start() {
	s.t.Helper()
	s.Launch()
	select {
	case <-s.serving:
	case <-s.ended:
		s.t.Fatalf("the server on %s ended before it served: %v\n%s", s.dir, s.err, Tail(s.Log(), 20))
	}
}

// Launch runs the server and returns at once: it may wait for others before it serves.
func (s *Server) Launch() {
	s.t.Helper()
	path, err := s.program.Path()
	if err != nil {
		s.t.Fatal(err)
	}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // the process has its own
	s.command = s.commandOf(path)
	s.command.Stderr = log
	// A test that is ended by force takes its servers with it.
	s.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: s.credential}
	out, err := s.command.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.command.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.serving, s.ended = make(chan struct{}), make(chan struct{})
	go s.wait(s.command, out, s.serving, s.ended)
}

// wait follows one process to its end.
func (s *Server) wait(command *exec.Cmd, out io.Reader, serving, ended chan struct{}) {
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err == nil { // the addresses, once it serves
		close(serving)
	}
	_, _ = io.Copy(io.Discard, lines) // nothing more is expected; the end of the process ends it
	s.err = command.Wait()
	close(ended)
}

// Kill sends SIGKILL and waits for the end of the process, if it runs.
func (s *Server) Kill() { _ = s.signalAndWait(syscall.SIGKILL) } // that it was killed

// Stop sends SIGTERM and waits until the server has ended of its own accord; the error is what it
// ended with.
func (s *Server) Stop() error { return s.signalAndWait(syscall.SIGTERM) }

func (s *Server) signalAndWait(signal syscall.Signal) error {
	if s.command == nil {
		return nil
	}
	s.Signal(signal)
	<-s.ended
	return s.err
}

// Signal sends a signal to the process, which may have ended.
func (s *Server) Signal(signal syscall.Signal) {
	if err := s.command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Errorf("sending %v: %v", signal, err)
	}
}

// Restart kills the server and starts it again.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.Start()
}

// Ended returns a channel that is closed when the process that was started last has ended.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// PID returns the process's number.
func (s *Server) PID() int { return s.command.Process.Pid }

// URL returns where clients reach the server, also before it is started.
func (s *Server) URL() string { return "http://" + s.listen }

// Peers returns where other nodes call the server, also before it is started.
func (s *Server) Peers() string { return s.peers }

// Gossip returns where other nodes gossip with the server, also before it is started.
func (s *Server) Gossip() string { return s.gossip }

// Log returns what the server wrote to standard error since it was made.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Tail returns the last lines of a text.
func Tail(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[max(0, len(all)-lines-1):], "")
}
