package redisson

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Hold is for how long no other process works on a queue when one was killed: short, so that there
// are many successors in a run.
const Hold = time.Second

// Commands says how commands of `belfry mirror` are run.
type Commands struct {
	// Program is the server, Env its environment.
	Program string
	Env     []string
	// Log is the file of what they say.
	Log string
}

// ServeFlags are the flags with which every server mirrors a queue.
func (r *Redis) ServeFlags(queue string) []string {
	return []string{"--mirror-redis", r.URL(), "--mirror-queue", queue + ";codec=bytes"}
}

// Command is a command of `belfry mirror` that runs.
type Command struct {
	process *os.Process
	ended   chan struct{}
}

// Run starts `belfry mirror` with arguments for a queue, between Redis and servers, separated by
// commas. It goes on until Kill, or ends by itself.
func (s *Side) Run(queue, servers string, args ...string) (*Command, error) {
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of the mirror: %w", err)
	}
	defer log.Close() //nolint:errcheck // the process has its own
	args = append(append([]string{"mirror"}, args...), s.URL(), "--queue", queue, "--codec", "bytes", "--server", servers,
		"--hold", Hold.String())
	command := exec.Command(s.Program, args...) //nolint:noctx // it lives until Kill
	command.Env, command.Stdout, command.Stderr, command.SysProcAttr = s.Env, log, log, ownGroup()
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting a mirror: %w", err)
	}
	c := &Command{process: command.Process, ended: make(chan struct{})}
	go func() {
		_ = command.Wait() // it is killed, or was overtaken
		close(c.ended)
	}()
	return c, nil
}

// Live lets it go on for a while, and reports whether it still runs then.
func (c *Command) Live(ctx context.Context, d time.Duration) bool {
	alarm := time.NewTimer(d)
	defer alarm.Stop()
	select {
	case <-alarm.C:
		return true
	case <-ctx.Done():
	case <-c.ended:
	}
	return false
}

// Stop suspends it, and Continue ends that.
func (c *Command) Stop() { _ = c.process.Signal(syscall.SIGSTOP) } // it may have ended

// Continue lets a suspended command go on.
func (c *Command) Continue() { _ = c.process.Signal(syscall.SIGCONT) } // likewise

// Kill sends SIGKILL and waits for the end.
func (c *Command) Kill() {
	_ = c.process.Kill() // likewise
	<-c.ended
}
