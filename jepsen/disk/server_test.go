//go:build fuse

package disk

import (
	"bufio"
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
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// look is the time between two looks at a condition.
const look = 50 * time.Millisecond

// program builds the server and returns where it is.
func program(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "belfry")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", name, "github.com/belfrydb/belfry/cmd/belfry")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the server: %v\n%s", err, out)
	}
	return name
}

// server is `belfry serve` on a disk of its own. It is for the test's own goroutine, except kill
// and what asks it.
type server struct {
	t       *testing.T
	disk    *Disk
	program string
	listen  string
	args    []string
	log     string

	mu      sync.Mutex
	process *os.Process
	ended   chan struct{}

	queues belfryv1connect.QueueServiceClient
	admin  belfryv1connect.AdminServiceClient
}

// newServers returns servers that found a cluster together, none of which runs yet. Servers of one
// process with the same offset may not run at the same time.
func newServers(t *testing.T, program string, n, offset int) []*server {
	t.Helper()
	servers := make([]*server, n)
	var gossip []string
	for i := range servers {
		gossip = append(gossip, address(offset+i, 2))
	}
	for i := range servers {
		s := &server{t: t, disk: mounted(t), program: program, listen: address(offset+i, 0),
			log: filepath.Join(t.TempDir(), "log")}
		s.args = []string{
			"serve", "--data", filepath.Join(s.disk.Mountpoint(), "data"), "--node-id", fmt.Sprintf("n%d", i), "--shards",
			"2", "--listen", s.listen,
			"--peer-listen", address(offset+i, 1), "--gossip-listen", gossip[i], "--print-addresses",
		}
		if n > 1 {
			s.args = append(s.args, "--bootstrap-expect", fmt.Sprint(n), "--join", strings.Join(gossip, ","))
		}
		s.queues = belfryv1connect.NewQueueServiceClient(http.DefaultClient, "http://"+s.listen)
		s.admin = belfryv1connect.NewAdminServiceClient(http.DefaultClient, "http://"+s.listen)
		t.Cleanup(func() { // before the disk is closed
			s.disk.SetHook(nil)
			s.disk.Release()
			s.kill()
			s.wait()
			if text, err := os.ReadFile(s.log); t.Failed() {
				t.Logf("the log of %s ends with (%v):\n%s", s.listen, err, text[max(0, len(text)-3000):])
			}
		})
		servers[i] = s
	}
	return servers
}

// address returns an address on a host that belongs to this process: all of 127.0.0.0/8 is loopback
// on Linux.
func address(node, port int) string {
	id := os.Getpid()
	return net.JoinHostPort(fmt.Sprintf("127.%d.%d.%d", 192+id>>16&31, id>>8&255, id&255), fmt.Sprint(10_000+10*node+port))
}

// start runs the server and returns when it serves.
func (s *server) start() {
	s.t.Helper()
	serves := s.launch()
	if err := <-serves; err != nil {
		s.t.Fatalf("%s ended before it served: %v", s.listen, err)
	}
}

// startAll runs servers that wait for each other.
func startAll(t *testing.T, servers []*server) {
	t.Helper()
	var serve []<-chan error
	for _, s := range servers {
		serve = append(serve, s.launch())
	}
	for i, c := range serve {
		if err := <-c; err != nil {
			t.Fatalf("%s ended before it served: %v", servers[i].listen, err)
		}
	}
}

func (s *server) launch() <-chan error {
	s.t.Helper()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(s.t, err)
	defer log.Close()                       // the process has its own
	c := exec.Command(s.program, s.args...) //nolint:noctx // killed by the test or its cleanup
	c.Stderr = log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	must(s.t, err)
	must(s.t, c.Start())
	ended, serves := make(chan struct{}), make(chan error, 1)
	s.mu.Lock()
	s.process, s.ended = c.Process, ended
	s.mu.Unlock()
	go func() {
		lines := bufio.NewReader(out)
		_, err := lines.ReadString('\n') // the addresses, once it serves
		serves <- err
		_, _ = io.Copy(io.Discard, lines) // until the process ends
		_ = c.Wait()                      // it was killed
		close(ended)
	}()
	return serves
}

// kill sends SIGKILL, if the server was started.
func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return
	}
	if err := s.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Errorf("killing %s: %v", s.listen, err)
	}
}

// wait returns when the process has ended, if there is one.
func (s *server) wait() {
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// await repeats a question until the answer is nil.
func await(t *testing.T, what string, question func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		err := question(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s: %w", what, err)
		}
	}
}

// awaitHealthy waits until every shard has a leader and as many voters as there are servers.
func awaitHealthy(t *testing.T, servers []*server) {
	t.Helper()
	must(t, await(t, "a healthy cluster", func(ctx context.Context) error {
		answer, err := servers[0].admin.GetCluster(ctx, &belfryv1.GetClusterRequest{})
		if err != nil {
			return err
		}
		for _, shard := range answer.GetShards() {
			if shard.GetLeader() == "" || len(shard.GetVoters()) != len(servers) {
				return fmt.Errorf("shard %d is led by %q and has the voters %v", shard.GetShard(), shard.GetLeader(),
					shard.GetVoters())
			}
		}
		if len(answer.GetShards()) == 0 || len(answer.GetNodes()) != len(servers) {
			return fmt.Errorf("%d shards on %d nodes", len(answer.GetShards()), len(answer.GetNodes()))
		}
		return nil
	}))
}
