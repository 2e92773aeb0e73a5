package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// daemon is as much of docker as the lab asks.
type daemon struct {
	containers *Containers

	mu sync.Mutex
	// asked is what was asked, downFor how many signals still find no process, about what is said of a
	// container.
	asked   []string
	downFor int
	about   string
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{containers: NewContainers(socket, func(node string) string { return "try-" + node }, "try_default")}
	server := &http.Server{Handler: http.HandlerFunc(d.answer)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return d
}

func (d *daemon) answer(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	d.asked = append(d.asked, strings.TrimSpace(fmt.Sprint(r.Method, " ", r.URL, " ", string(body))))
	if d.downFor > 0 {
		d.downFor--
		w.WriteHeader(http.StatusConflict)
		return
	}
	_, _ = io.WriteString(w, d.about)
}

func (d *daemon) questions() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.asked...)
}

// attached starts a process that stands for the command that is attached to a container, and ends
// when what it returns is called.
func attached(t *testing.T) (*exec.Cmd, func()) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "cat")
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return command, func() { in.Close() }
}

// TestSignalWaitsForProcess signals a container that was asked to start and has no process yet: a
// kill that came too early must not be lost, or the node would run on while the harness takes it
// for dead.
func TestSignalWaitsForProcess(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		d := newDaemon(t)
		d.downFor = 2
		command, end := attached(t)
		p := newContained(d.containers, "n1", command)
		if err := p.Signal(signal); err != nil {
			t.Errorf("%v: %v", signal, err)
		}
		if signal == syscall.SIGKILL {
			<-p.killed
		}
		ask := fmt.Sprintf("POST /containers/try-n1/kill?signal=%d", int(signal))
		if diff := cmp.Diff([]string{ask, ask, ask}, d.questions()); diff != "" {
			t.Errorf("%v: docker was asked (-want +got):\n%s", signal, diff)
		}
		end()
		if err := p.Wait(); err != nil {
			t.Errorf("%v: the end: %v", signal, err)
		}
	}
}

// TestSignalAfterEnd signals a process that has ended: docker is not asked, or the next process in
// the container would get the signal.
func TestSignalAfterEnd(t *testing.T) {
	d := newDaemon(t)
	command, end := attached(t)
	p := newContained(d.containers, "n1", command)
	end()
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal: %v", err)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Errorf("a kill: %v", err)
	}
	if asked := d.questions(); len(asked) > 0 {
		t.Errorf("docker was asked %q", asked)
	}
}

// TestKillFails kills a container of a docker that refuses: a caller that waits for the end must be
// told of it rather than wait.
func TestKillFails(t *testing.T) {
	d := newDaemon(t)
	d.containers.api = &http.Client{Transport: refusing{}}
	command, end := attached(t)
	defer end()
	p := newContained(d.containers, "n1", command)
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); !errors.Is(err, errRefused) {
		t.Errorf("the end: %v", err)
	}
}

// refusing is a connection to docker that is not there.
type refusing struct{}

var errRefused = errors.New("refused")

func (refusing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errRefused }

// TestLimitFilesElsewhere asks for a limit of a process that docker has on another machine: its
// process id belongs to another process here.
func TestLimitFilesElsewhere(t *testing.T) {
	for name, about := range map[string]string{
		"elsewhere": fmt.Sprintf(`{"Id":"5f1c7b2e9a","State":{"Pid":%d}}`, os.Getpid()),
		"ended":     `{"Id":"5f1c7b2e9a","State":{"Pid":0}}`,
		"nothing":   `{}`,
	} {
		d := newDaemon(t)
		d.about = about
		var before syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		if _, err := newContained(d.containers, "n1", nil).LimitFiles(16); err == nil {
			t.Errorf("%s: a limit was set", name)
		}
		var after syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &after); err != nil || after != before {
			t.Errorf("%s: the limit of this process was %v and is %v (%v)", name, before, after, err)
		}
	}
}

// TestDisconnect takes a container off its network and puts it back under the name that other nodes
// know.
func TestDisconnect(t *testing.T) {
	d := newDaemon(t)
	if err := errors.Join(d.containers.Disconnect(t.Context(), "n2"),
		d.containers.Connect(t.Context(), "n2")); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`POST /networks/try_default/disconnect {"Container":"try-n2","Force":true}`,
		`POST /networks/try_default/connect {"Container":"try-n2","EndpointConfig":{"Aliases":["n2"]}}`,
	}
	if diff := cmp.Diff(want, d.questions()); diff != "" {
		t.Errorf("docker was asked (-want +got):\n%s", diff)
	}
}

// filters puts a program in the place of iptables, which keeps what it was told, and fails when it
// was told as often as failAt says.
func filters(t *testing.T, failAt string) (told func() []string) {
	t.Helper()
	dir := t.TempDir()
	book := filepath.Join(dir, "book")
	script := "#!/bin/sh\nread -r _ _ _ _ group _ </proc/$$/stat\n[ \"$group\" = $$ ] || exit 1 # a signal from the " +
		"terminal would end it\necho \"$*\" >>" + book + "\n[ \"$(/usr/bin/wc -l <" + book + ")\" -ne " + failAt + " ]\n"
	if err := os.WriteFile(filepath.Join(dir, "iptables"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	return func() []string {
		b, err := os.ReadFile(book)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(b)), "\n")
	}
}

// aboutAddress is what docker says of a container with an address.
func aboutAddress(address string) string {
	return fmt.Sprintf(`{"NetworkSettings":{"Networks":{"try_default":{"IPAddress":%q}}}}`, address)
}

const cutRule = " DOCKER-USER -s 10.0.0.2 -d 10.0.0.2 -m comment --comment try_default -j DROP"

// TestCut cuts a node off and takes that back.
func TestCut(t *testing.T) {
	d, told := newDaemon(t), filters(t, "99")
	d.about = aboutAddress("10.0.0.2")
	restore, err := d.containers.Cut(t.Context(), "n1", []string{"n2"})
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.about = aboutAddress("10.0.0.3")
	d.mu.Unlock()
	if err := restore(t.Context()); err == nil || !strings.Contains(err.Error(), "addresses changed") {
		t.Errorf("restored, though the rules were those of other addresses: %v", err)
	}
	want := []string{"--wait -I" + cutRule, "--wait -I" + cutRule, "--wait -D" + cutRule, "--wait -D" + cutRule}
	if diff := cmp.Diff(want, told()); diff != "" {
		t.Errorf("iptables was told (-want +got):\n%s", diff)
	}
}

// TestCutFails has the second rule refused: the first must not stay.
func TestCutFails(t *testing.T) {
	d, told := newDaemon(t), filters(t, "2")
	d.about = aboutAddress("10.0.0.2")
	if _, err := d.containers.Cut(t.Context(), "n1", []string{"n2"}); err == nil {
		t.Error("a node was cut off by a rule that was refused")
	}
	want := []string{"--wait -I" + cutRule, "--wait -I" + cutRule, "--wait -D" + cutRule}
	if diff := cmp.Diff(want, told()); diff != "" {
		t.Errorf("iptables was told (-want +got):\n%s", diff)
	}
}

// TestCutBrokenOff takes the rules back also when the run was broken off.
func TestCutBrokenOff(t *testing.T) {
	d, told := newDaemon(t), filters(t, "99")
	d.about = aboutAddress("10.0.0.2")
	ctx, cancel := context.WithCancel(t.Context())
	restore, err := d.containers.Cut(ctx, "n1", []string{"n2"})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = restore(ctx) // docker is not asked any more whether the addresses are the same
	want := []string{"--wait -I" + cutRule, "--wait -I" + cutRule, "--wait -D" + cutRule, "--wait -D" + cutRule}
	if diff := cmp.Diff(want, told()); diff != "" {
		t.Errorf("iptables was told (-want +got):\n%s", diff)
	}
}
