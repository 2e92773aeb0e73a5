// Package redistest runs real Redis servers for tests, which kill them and start them again, cut
// their connections and ask how long they were blocked. Imported by tests only.
package redistest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// Ports below those that the system gives to outgoing connections; that of a cluster's bus is
	// 10,000 above the server's.
	portMin = 10_000
	portMax = 22_000
	// addressesMax is how many addresses Start tries.
	addressesMax = 20
	// readyMax is how long a server may take to be ready, its data read and its peers found.
	readyMax = 60 * time.Second
	// pollEvery is how often a server that is not ready is asked again.
	pollEvery = 5 * time.Millisecond
)

// errAddressTaken is the end of a server that found its address taken.
var errAddressTaken = errors.New("the address is taken")

// Option is a setting of a server.
type Option func(*settings)

// settings is what a server is run with.
type settings struct {
	args     []string
	cluster  bool
	member   bool // of a cluster of several
	sentinel bool
	tls      *Authority // signs the server's certificate; nil without TLS
}

// WithConfig sets a directive of redis.conf, over what Start sets itself.
func WithConfig(directive string, values ...string) Option {
	return func(s *settings) { s.args = append(append(s.args, "--"+directive), values...) }
}

// WithAOF has the server write an append-only file, without which it forgets everything when it
// ends. It is synced as Redis calls it: "always", before each answer, or "everysec". Either
// survives the end of the process, by whatever signal.
func WithAOF(appendfsync string) Option {
	return func(s *settings) {
		WithConfig("appendonly", "yes")(s)
		WithConfig("appendfsync", appendfsync)(s)
	}
}

// WithCluster has the server be a Redis Cluster of one node, which owns all slots. It refuses
// commands over keys of several slots.
func WithCluster() Option {
	return func(s *settings) {
		WithConfig("cluster-enabled", "yes")(s)
		s.cluster = true
	}
}

// Server is a Redis server on loopback that can be stopped and killed and started again at the same
// address with the same data. Its methods are for the test's own goroutine, except Client, URL,
// Address, Slowest and Log. What fails, fails the test.
type Server struct {
	t        testing.TB
	path     string
	dir      string
	settings settings

	address string
	client  *redis.Client

	command *exec.Cmd
	// ended is closed when the process has ended, after err was set.
	ended chan struct{}
	err   error
}

// Start runs a server and returns when it answers. It keeps nothing on disk unless told to, has one
// user without a password and all rights, and notes every command of a millisecond or more. It is
// killed when the test ends. Without redis-server on the machine the test fails.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := prepare(t, opts...)
	s.start()
	return s
}

// start runs the server at an address of its own.
func (s *Server) start() {
	s.t.Helper()
	for range addressesMax {
		s.take(randomAddress())
		err := s.up()
		if err == nil {
			return
		}
		if !errors.Is(err, errAddressTaken) {
			s.t.Fatal(err)
		}
	}
	s.t.Fatalf("%d addresses on loopback were taken", addressesMax)
}

// prepare returns a server that has no address yet.
func prepare(t testing.TB, opts ...Option) *Server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("redis-server is missing; on Debian install it with: apt-get install redis-server (%v)", err)
	}
	s := &Server{t: t, path: path, dir: t.TempDir()}
	for _, opt := range opts {
		opt(&s.settings)
	}
	if err := os.WriteFile(s.file("users"), nil, 0o600); err != nil { // the server does not start without it
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		if s.client != nil {
			_ = s.client.Close() // it is no longer in use
		}
	})
	return s
}

func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

// randomAddress returns an address that is probably free, on a host that belongs to this process: a
// server that is down finds its own free when it comes back, whatever other processes take
// meanwhile.
func randomAddress() string {
	id := os.Getpid() // at most 22 bits on Linux, where all of 127.0.0.0/8 is loopback
	host := fmt.Sprintf("127.%d.%d.%d", 128+id>>16&63, id>>8&255, id&255)
	return net.JoinHostPort(host, strconv.Itoa(portMin+rand.IntN(portMax-portMin)))
}

// take gives the server its address, and the client that goes with it.
func (s *Server) take(address string) {
	if s.client != nil {
		_ = s.client.Close() // it has answered none of our clients
	}
	s.address = address
	s.client = redis.NewClient(&redis.Options{
		Addr:                     address,
		ClientName:               "redistest",
		MaxRetries:               -1,
		DialerRetries:            1,
		ContextTimeoutEnabled:    true,
		TLSConfig:                s.settings.tls.config(),
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// up starts the process at the server's address and returns when it is ready.
func (s *Server) up() error {
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.file("log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()                                            //nolint:errcheck // the process has its own
	s.command = exec.Command(s.path, s.arguments(host, port)...) //nolint:noctx // killed by the test or its cleanup
	s.command.Stdout, s.command.Stderr = log, log
	// A test that is ended by force takes its servers with it.
	s.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.command.Start(); err != nil {
		s.command = nil
		return fmt.Errorf("starting redis-server: %w", err)
	}
	s.ended = make(chan struct{})
	go func() {
		s.err = s.command.Wait()
		close(s.ended)
	}()
	if err := s.await("it answers", s.answers); err != nil || !s.settings.cluster || s.settings.member {
		return err
	}
	return s.await("it owns all slots", s.ownsSlots)
}

// arguments are those of the process.
func (s *Server) arguments(host, port string) []string {
	if s.settings.sentinel {
		return []string{s.file("sentinel"), "--sentinel", "--bind", host, "--port", port, "--dir", s.dir}
	}
	args := []string{
		"--bind", host, "--dir", s.dir, "--aclfile", s.file("users"), "--save", "", "--repl-diskless-sync-delay", "0",
		"--replica-announce-ip", host,
		"--slowlog-log-slower-than", strconv.Itoa(int(slowMin.Microseconds())), "--slowlog-max-len", "100000",
	}
	if s.settings.tls == nil {
		args = append(args, "--port", port)
	} else {
		cert, key := s.settings.tls.Issue(s.t, host)
		args = append(args, "--port", "0", "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
			"--tls-ca-cert-file", s.settings.tls.File)
	}
	args = append(args, s.settings.args...)
	if s.settings.cluster {
		args = append(args, "--cluster-announce-ip", host) // alone it would never learn it
	}
	return args
}

// await asks until the answer is no error.
func (s *Server) await(what string, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), readyMax)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.ended:
			if strings.Contains(s.Log(), "Address already in use") {
				return fmt.Errorf("%s: %w", s.address, errAddressTaken)
			}
			return fmt.Errorf("redis-server ended (%w) before %s:\n%s", s.err, what, s.Log())
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w\n%s", what, errors.Join(ctx.Err(), err), s.Log())
		}
	}
}

// answers is an error until the server answers commands, and it is this one and no other at its
// address.
func (s *Server) answers(ctx context.Context) error {
	// the client would write each refusal to standard error
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return err
	}
	_ = conn.Close() // it was only a question
	if err := s.client.Ping(ctx).Err(); err != nil {
		return err
	}
	id, err := s.info(ctx, "server", "process_id")
	if err == nil && id != strconv.Itoa(s.command.Process.Pid) {
		err = fmt.Errorf("process %s answers instead of %d", id, s.command.Process.Pid)
	}
	return err
}

// ownsSlots gives the server all slots, if it does not have them, and is an error until it serves
// them.
func (s *Server) ownsSlots(ctx context.Context) error {
	info, err := s.client.ClusterInfo(ctx).Result()
	switch {
	case err != nil:
		return err
	case strings.Contains(info, "cluster_slots_assigned:0\r"):
		return errors.Join(errors.New("it had no slots"), s.client.ClusterAddSlotsRange(ctx, 0, 16383).Err())
	case !strings.Contains(info, "cluster_state:ok\r"):
		return fmt.Errorf("the cluster is not ready: %s", info)
	}
	return nil
}

// info returns one field of a section of INFO.
func (s *Server) info(ctx context.Context, section, field string) (string, error) {
	text, err := s.client.Info(ctx, section).Result()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			return value, nil
		}
	}
	return "", fmt.Errorf("INFO %s has no %s", section, field)
}

// Kill sends SIGKILL and waits for the end of the process, if it runs.
func (s *Server) Kill() { _ = s.signalAndWait(syscall.SIGKILL) } // that it was killed

// Pause has the process do nothing, as on a machine that hangs, until Resume. Connections stay
// open.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends a pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
	s.t.Helper()
	if err := s.command.Process.Signal(signal); err != nil {
		s.t.Errorf("sending %v: %v", signal, err)
	}
}

// Stop sends SIGTERM and waits until the server has ended of its own accord, if it runs.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.signalAndWait(syscall.SIGTERM); err != nil {
		s.t.Errorf("redis-server ended with %v:\n%s", err, s.Log())
	}
}

func (s *Server) signalAndWait(signal syscall.Signal) error {
	if s.command == nil {
		return nil
	}
	if err := s.command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Errorf("sending %v: %v", signal, err)
	}
	<-s.ended
	s.command = nil
	return s.err
}

// Restart starts the server again at the same address with the same data, and returns when it has
// read them. If it still runs it is killed first, as in a crash.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.up(); err != nil {
		s.t.Fatal(err)
	}
}

// Client returns a client of the server with all rights. It never sends a command twice: what fails
// may have been done. It is closed when the test ends.
func (s *Server) Client() *redis.Client { return s.client }

// Address returns the server's host and port.
func (s *Server) Address() string { return s.address }

// URL returns where clients reach the server, with all rights.
func (s *Server) URL() string {
	if s.settings.tls != nil {
		return "rediss://" + s.address
	}
	return "redis://" + s.address
}

// Log returns what the server has written to its log since it was started last.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.file("log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}
