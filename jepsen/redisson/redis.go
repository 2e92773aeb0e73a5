// Package redisson is the other side of the workload "mirror": a Redis, processes of Redisson that
// use it, and commands of `belfry mirror` between it and a cluster.
package redisson

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// Port is where the Redis of a run listens, on an address that is the run's own.
	Port = "7403"
	// readyMax is how long it may take to answer; pollEvery how often it is asked.
	readyMax  = 30 * time.Second
	pollEvery = 20 * time.Millisecond
)

// Redis is a redis-server that syncs its file before each answer. Start, Restart and Close are for
// one goroutine at a time.
type Redis struct {
	program, host, data, log string

	client  *redis.Client
	command *exec.Cmd
	ended   chan struct{} // closed when the process has ended
}

// Start starts a Redis that has its data below dir and listens at host, and returns when it
// answers. The caller must Close it.
func Start(ctx context.Context, dir, host string) (*Redis, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("the workload mirror needs redis-server; on Debian install it with: apt-get install "+
			"redis-server (%w)", err)
	}
	redis.SetLogger(silence{})
	r := &Redis{program: program, host: host, data: filepath.Join(dir, "redis"), log: filepath.Join(dir, "redis.log")}
	if err := os.MkdirAll(r.data, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of Redis: %w", err)
	}
	r.client = redis.NewClient(&redis.Options{ // what fails may have been done, and is not sent again
		Addr: net.JoinHostPort(host, Port), ClientName: "redisson", MaxRetries: -1, DialerRetries: 1, PoolSize: 50,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	if err := r.up(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// up starts the process and waits until it answers.
func (r *Redis) up(ctx context.Context) error {
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of Redis: %w", err)
	}
	//nolint:errcheck // the process has its own
	defer log.Close()
	//nolint:noctx // it lives until it is killed
	command := exec.Command(r.program, "--bind", r.host, "--port", Port, "--dir", r.data, "--protected-mode",
		"no", "--save", "", "--appendonly", "yes", "--appendfsync", "always")
	command.Stdout, command.Stderr, command.SysProcAttr = log, log, ownGroup()
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting redis-server: %w", err)
	}
	ended := make(chan struct{})
	r.command, r.ended = command, ended
	go func() {
		_ = command.Wait() // it is killed in the end
		close(ended)
	}()
	return r.await(ctx)
}

// ownGroup has a process end with the harness, and not with an interrupt at its terminal.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// await waits until the server answers.
func (r *Redis) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		info, err := r.client.Info(ctx, "server").Result()
		if err == nil {
			err = r.client.Ping(ctx).Err() // refused until it has read its file
		}
		// another one may be at its address
		if err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r", r.command.Process.Pid)) {
			return nil
		}
		select {
		case <-tick.C:
		case <-r.ended:
			text, _ := os.ReadFile(r.log) // what can be read of it
			return fmt.Errorf("redis-server ended at its start:\n%s", strings.TrimSpace(string(text)))
		case <-ctx.Done():
			return fmt.Errorf("redis-server does not answer: %w", errors.Join(err, context.Cause(ctx)))
		}
	}
}

// URL is where it is reached.
func (r *Redis) URL() string { return "redis://" + net.JoinHostPort(r.host, Port) }

// Restart kills the server, and starts it again with what is in its file.
func (r *Redis) Restart(ctx context.Context) error {
	r.kill()
	return r.up(ctx)
}

func (r *Redis) kill() {
	if r.command != nil {
		_ = r.command.Process.Kill() // it may have ended
		<-r.ended
	}
}

// Close kills the server.
func (r *Redis) Close() error {
	r.kill()
	if err := r.client.Close(); err != nil {
		return fmt.Errorf("closing the connections to Redis: %w", err)
	}
	return nil
}

// silence is for connections that end on purpose.
type silence struct{}

// Printf says nothing.
func (silence) Printf(context.Context, string, ...any) {}
