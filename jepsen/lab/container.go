package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Containers are existing containers that only the lab starts, one for each node. The lab uses
// docker's socket, as the docker command does, but without a process for each signal: some faults
// send ten a second.
type Containers struct {
	// Name returns the name of a node's container; Network is that of the network that connects them.
	Name    func(node string) string
	Network string
	api     *http.Client
}

// containerAskMax bounds one question to docker, which may have to wait for the end of a process.
const containerAskMax = 30 * time.Second

// NewContainers returns the containers that docker has at a socket of this machine.
func NewContainers(socket string, name func(node string) string, network string) *Containers {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Containers{
		Name: name, Network: network,
		api: &http.Client{Timeout: containerAskMax, Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 4,
			IdleConnTimeout: time.Minute}},
	}
}

// errContainerDown says that no process runs in a container.
var errContainerDown = errors.New("no process runs in the container")

// ask asks docker something about a container or a network. The answer is decoded into reply unless
// that is nil.
func (c *Containers) ask(ctx context.Context, method, path string, body, reply any) error {
	var sent io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("asking docker for %s: %w", path, err)
		}
		sent = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, sent)
	if err != nil {
		return fmt.Errorf("asking docker for %s: %w", path, err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := c.api.Do(request)
	if err != nil {
		return fmt.Errorf("asking docker for %s: %w", path, err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return fmt.Errorf("asking docker for %s: %w", path, err)
	case answer.StatusCode == http.StatusConflict:
		return fmt.Errorf("asking docker for %s: %w: %s", path, errContainerDown, bytes.TrimSpace(said))
	case answer.StatusCode >= http.StatusMultipleChoices:
		return fmt.Errorf("asking docker for %s: %s: %s", path, answer.Status, bytes.TrimSpace(said))
	case reply == nil:
		return nil
	}
	if err := json.Unmarshal(said, reply); err != nil {
		return fmt.Errorf("asking docker for %s: %w", path, err)
	}
	return nil
}

// Disconnect takes a node off the network, for clients too; Connect puts it back under its name, at
// an address that docker chooses anew.
func (c *Containers) Disconnect(ctx context.Context, node string) error {
	return c.ask(ctx, http.MethodPost, "/networks/"+url.PathEscape(c.Network)+"/disconnect",
		map[string]any{"Container": c.Name(node), "Force": true}, nil)
}

// Connect puts a node back on the network.
func (c *Containers) Connect(ctx context.Context, node string) error {
	return c.ask(ctx, http.MethodPost, "/networks/"+url.PathEscape(c.Network)+"/connect",
		map[string]any{"Container": c.Name(node), "EndpointConfig": map[string]any{"Aliases": []string{node}}}, nil)
}

// command returns the command that starts a container, and ends with its process: as that did,
// after all that it wrote.
func (c *Containers) command(node string) *exec.Cmd {
	//nolint:noctx // it lives until the container is stopped or killed
	return exec.Command("docker", "start", "--attach", c.Name(node))
}

// contained is one life of a process in a container.
type contained struct {
	containers *Containers
	node       string
	// attached is the command that started the container.
	attached *exec.Cmd
	// ended is closed when the process has ended. After that, or after the first request for a kill,
	// no further kill begins; killed is closed when none is in progress.
	ended, killed chan struct{}
	once          sync.Once
	killErr       error
}

func newContained(c *Containers, node string, attached *exec.Cmd) *contained {
	return &contained{containers: c, node: node, attached: attached, ended: make(chan struct{}),
		killed: make(chan struct{})}
}

// Wait implements process.
func (p *contained) Wait() error {
	err := p.attached.Wait()
	close(p.ended)
	p.once.Do(func() { close(p.killed) })
	<-p.killed
	return errors.Join(err, p.killErr)
}

// Signal implements process. It only begins a kill: docker answers a kill when the process has
// ended, and a caller that kills several processes at once cannot wait for each.
func (p *contained) Signal(signal syscall.Signal) error {
	if signal != syscall.SIGKILL {
		return p.send(signal)
	}
	p.once.Do(func() { go p.kill() })
	return nil
}

// kill sends SIGKILL.
func (p *contained) kill() {
	defer close(p.killed)
	if err := p.send(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.killErr = err
		_ = p.attached.Process.Kill() // otherwise a wait for the end would never return
	}
}

// send sends a signal. A container that was asked to start may have no process yet: the signal
// waits for it, or it would be missed.
func (p *contained) send(signal syscall.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	defer cancel()
	path := fmt.Sprintf("/containers/%s/kill?signal=%d", url.PathEscape(p.containers.Name(p.node)), int(signal))
	for {
		select {
		case <-p.ended:
			return os.ErrProcessDone
		default:
		}
		err := p.containers.ask(ctx, http.MethodPost, path, nil, nil)
		if !errors.Is(err, errContainerDown) {
			return err
		}
		select {
		case <-p.ended:
			return os.ErrProcessDone
		case <-ctx.Done():
			return err
		case <-time.After(lookPause / 5):
		}
	}
}

// PID implements process. It is 0, because there is no process of this machine to act on.
func (p *contained) PID() int { return 0 }

// LimitFiles implements process. Only the user of a process may set its limits: root, too, needs a
// right of its own for that, so it sets them as that user.
func (p *contained) LimitFiles(most uint64) (uint64, error) {
	pid, err := p.pid()
	if err != nil {
		return 0, err
	}
	about, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return 0, fmt.Errorf("looking for the user of the process: %w", err)
	}
	owner, ok := about.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.New("looking for the user of the process: the system does not say")
	}
	limit := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), containerAskMax)
		defer cancel()
		command := exec.CommandContext(ctx, "prlimit", append([]string{"--pid", strconv.Itoa(pid)}, args...)...)
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
		out, err := command.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("the limit of files of process %d: %w: %s", pid, err, bytes.TrimSpace(out))
		}
		return strings.TrimSpace(string(out)), nil
	}
	said, err := limit("--nofile", "--output", "SOFT", "--noheadings", "--raw")
	if err != nil {
		return 0, err
	}
	before, err := strconv.ParseUint(said, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the limit of files of process %d: %w", pid, err)
	}
	_, err = limit(fmt.Sprintf("--nofile=%d:", most))
	return before, err
}

// pid returns the number that this machine knows the process by, and an error if docker runs
// elsewhere: then the number is that of another process here, which must not be touched.
func (p *contained) pid() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), containerAskMax)
	defer cancel()
	var container struct {
		ID    string
		State struct{ Pid int }
	}
	if err := p.containers.ask(ctx, http.MethodGet, "/containers/"+url.PathEscape(p.containers.Name(p.node))+"/json",
		nil, &container); err != nil {
		return 0, err
	}
	if container.State.Pid == 0 || container.ID == "" {
		return 0, fmt.Errorf("the process of %s: %w", p.node, os.ErrProcessDone)
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", container.State.Pid))
	if err != nil {
		return 0, fmt.Errorf("looking for the process of %s: %w", p.node, err)
	}
	if !bytes.Contains(groups, []byte(container.ID)) {
		return 0, fmt.Errorf("the process of %s is not on this machine: number %d belongs to another", p.node,
			container.State.Pid)
	}
	return container.State.Pid, nil
}
