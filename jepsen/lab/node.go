package lab

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Node is one server, through all lives of its process. Its methods may be called from any
// goroutine, one that starts or ends it at a time.
type Node struct {
	lab *Lab
	// Name is its name, Data its data directory, Log the file of what it wrote.
	Name, Data, Log string
	Clock           *Clock
	// place is the name under which the network knows it: its own, unless it is a stranger.
	place string
	// stranger says that it is not part of the lab, joins that it asks the lab's nodes to be taken in
	// all the same.
	stranger, joins bool

	// starting is held from the look whether a process runs until there is one.
	starting sync.Mutex

	mu sync.Mutex
	// program is what it runs from its next start on; empty for the lab's.
	program string
	// advertises is the host that it advertises from its next start on; empty for the one at which the
	// network has it.
	advertises string
	// mayEnd says that a fault allows the process to end by itself.
	mayEnd  bool
	removed bool
	life    *life
}

// life is one process of a node.
type life struct {
	process process
	// asked is closed by the code that ends the process on purpose, before the process ends. ended is
	// closed when it has ended, after err was set.
	asked, ended chan struct{}
	ask          sync.Once
	err          error
}

// Start runs the server and returns when it serves; a node that runs is left as it is, unless it
// was told to end: then its end is waited for.
func (n *Node) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	if err := n.awaitEnd(ctx); err != nil {
		return err
	}
	l, serves, err := n.launch()
	if err != nil || l == nil {
		return err
	}
	select {
	case err := <-serves:
		if err != nil {
			return fmt.Errorf("%s ended before it served: %w; the end of its log: %s", n.Name, errors.Join(err, l.err),
				tail(n.Log))
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s does not serve: %w", n.Name, context.Cause(ctx))
	}
}

// awaitEnd waits for the end of a process that was told to end, and may be held back by its disk.
func (n *Node) awaitEnd(ctx context.Context) error {
	l := n.current()
	if l == nil {
		return nil
	}
	select {
	case <-l.asked:
	default:
		return nil
	}
	select {
	case <-l.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s was told to end and does not: %w", n.Name, context.Cause(ctx))
	}
}

// launch starts a process unless there is one; the life is nil then. What it returns says once
// whether the server serves. A fault may start a node that another start is about to start: there
// is never more than one process.
func (n *Node) launch() (*life, <-chan error, error) {
	n.starting.Lock()
	defer n.starting.Unlock()
	if n.Running() {
		return nil, nil, nil
	}
	log, err := os.OpenFile(n.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the log of %s: %w", n.Name, err)
	}
	defer log.Close() //nolint:errcheck // the process has its own
	// The last line of a process that was killed may be torn; the first one of this life must not go
	// on with it.
	if _, err := log.WriteString("\n"); err != nil {
		return nil, nil, fmt.Errorf("writing the log of %s: %w", n.Name, err)
	}
	command := n.lab.command(n)
	command.Stderr = log
	command.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL, // a kill of the harness kills the servers
		Setpgid:   true,            // at an interrupt from a terminal the harness ends them
	}
	if err := n.lab.cfg.Network.Wrap(n.place, command); err != nil {
		return nil, nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("starting %s: %w", n.Name, err)
	}
	if err := command.Start(); err != nil {
		return nil, nil, fmt.Errorf("starting %s: %w", n.Name, err)
	}
	l := &life{process: n.lab.process(n, command), asked: make(chan struct{}), ended: make(chan struct{})}
	n.mu.Lock()
	n.life = l
	n.mu.Unlock()
	serves := make(chan error, 1)
	go n.follow(l, bufio.NewReader(out), serves)
	return l, serves, nil
}

// follow reads what the process says about where it serves, and follows it to its end.
func (n *Node) follow(l *life, out *bufio.Reader, serves chan<- error) {
	_, readErr := out.ReadString('\n') // the addresses, once it serves
	if readErr == nil {
		serves <- nil
	}
	_, _ = io.Copy(io.Discard, out) // nothing more is expected; the end of the process ends it
	l.err = l.process.Wait()
	select {
	case <-l.asked:
	default:
		n.endedUnasked(l)
	}
	close(l.ended)
	if readErr != nil {
		serves <- readErr
	}
}

// endedUnasked records the end of a process that was not requested, unless a fault allows it.
func (n *Node) endedUnasked(l *life) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lab.cfg.Logger.Info("a node ended by itself", slog.String("node", n.Name), slog.Any("error", l.err))
	if !n.mayEnd && !n.stranger {
		n.lab.surprised("%s ended by itself: %v; the end of its log: %s", n.Name, l.err, tail(n.Log))
	}
}

// MayEnd says that a fault allows the process to end by itself from now on, MustLive that none does
// any more.
func (n *Node) MayEnd() { n.allow(true) }

// MustLive ends what MayEnd began.
func (n *Node) MustLive() { n.allow(false) }

func (n *Node) allow(end bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mayEnd = end
}

// Use has the node run another program from its next start on, or the lab's if it is empty.
func (n *Node) Use(program string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.program = program
}

// Advertise has the node advertise another host from its next start on, or the right one if it is
// empty.
func (n *Node) Advertise(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advertises = host
}

// advertised returns the host that the node advertises when it is started.
func (n *Node) advertised() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return cmp.Or(n.advertises, n.lab.cfg.Network.Advertised(n.place))
}

// runs returns the program that the node runs when it is started.
func (n *Node) runs() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.program != "" {
		return n.program
	}
	return n.lab.cfg.Program
}

// Remove says that the node is no longer part of the cluster, and Removed whether that was said.
func (n *Node) Remove() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.removed = true
}

// Removed reports whether the node is no longer part of the cluster.
func (n *Node) Removed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.removed
}

// current returns the last life, nil if there was none.
func (n *Node) current() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life
}

// Running reports whether the node has a process.
func (n *Node) Running() bool {
	l := n.current()
	if l == nil {
		return false
	}
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

// ExitCode returns what the process ended with that was started last; -1 while it runs, if a signal
// ended it, or if there was none.
func (n *Node) ExitCode() int {
	l := n.current()
	if l == nil || n.Running() {
		return -1
	}
	if l.err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exec.ExitError](l.err); ok {
		return exit.ExitCode()
	}
	return -1
}

// Ended returns a channel that is closed when the process that was started last has ended.
func (n *Node) Ended() <-chan struct{} { return n.current().ended }

// killMax is how long the end of a process that was killed is waited for: one that hangs in its
// disk ends when the disk lets it go.
const killMax = 10 * time.Second

// Kill sends SIGKILL and waits for the end of the process, if it runs, unless its disk keeps it.
func (n *Node) Kill() {
	n.KillSoon()
	l := n.current()
	if l == nil {
		return
	}
	limit := time.NewTimer(killMax)
	defer limit.Stop()
	select {
	case <-l.ended:
	case <-limit.C:
	}
}

// KillSoon sends SIGKILL and does not wait. It is for hooks that the process itself waits for.
func (n *Node) KillSoon() {
	if l := n.current(); l != nil && n.Running() {
		l.ask.Do(func() { close(l.asked) })
		_ = n.Signal(syscall.SIGKILL) // it has ended by itself then
	}
}

// Stop sends SIGTERM and waits until the server has ended of its own accord; the error is what it
// ended with.
func (n *Node) Stop() error {
	l := n.current()
	if l == nil || !n.Running() {
		return nil
	}
	l.ask.Do(func() { close(l.asked) })
	_ = n.Signal(syscall.SIGCONT)
	if err := n.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	limit := time.NewTimer(waitMax)
	defer limit.Stop()
	select {
	case <-l.ended:
		if l.err != nil {
			return fmt.Errorf("stopping %s: %w; the end of its log: %s", n.Name, l.err, tail(n.Log))
		}
		return nil
	case <-limit.C:
		n.Kill()
		return fmt.Errorf("%s did not stop within %v", n.Name, waitMax)
	}
}

// Signal sends a signal to the process.
func (n *Node) Signal(signal syscall.Signal) error {
	l := n.current()
	if l == nil {
		return nil
	}
	if err := l.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %v to %s: %w", signal, n.Name, err)
	}
	return nil
}

// LimitFiles has the process open no file or connection at which it would have more than most, and
// returns how many it could have before. The next process starts without that limit.
func (n *Node) LimitFiles(most uint64) (before uint64, err error) {
	before, err = n.current().process.LimitFiles(most)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", n.Name, err)
	}
	return before, nil
}

// PID returns the number of the process that was started last; 0 if it is in a container.
func (n *Node) PID() int { return n.current().process.PID() }

// tail returns the end of a file, for people.
func tail(path string) string {
	const most = 1500
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-most):])
}
