package server_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/cmd/belfry/processtest"
	"github.com/belfrydb/belfry/cmd/belfry/server"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
)

// addresses are for servers of which others must know the address before they listen: of all tests,
// as they run side by side.
var addresses processtest.Addresses

// config returns a configuration that works.
func config(t *testing.T, dir string) server.Config {
	t.Helper()
	return server.Config{
		Dir: dir, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
		Fatal: func(err error) { t.Errorf("storage failed: %v", err) },
	}
}

// start starts a server and stops it when the test ends.
func start(t *testing.T, cfg server.Config) *server.Server {
	t.Helper()
	s, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatalf("starting: %v", err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *server.Server) {
	t.Helper()
	if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("stopping: %v", err)
	}
}

func queues(s *server.Server) belfryv1connect.QueueServiceClient {
	return belfryv1connect.NewQueueServiceClient(http.DefaultClient, s.URL())
}

func TestListenAddresses(t *testing.T) {
	for _, test := range []struct {
		name                  string
		listen, peers, gossip string
		insecure              bool
		refused               string
	}{
		{"loopback", "127.0.0.1:0", "", "", false, ""},
		{"loopback by name", "localhost:0", "", "", false, ""},
		{"everything", ":0", "", "", false, "--insecure"},
		{"everything in IPv4", "0.0.0.0:0", "", "", false, "--insecure"},
		{"everything in IPv6", "[::]:0", "", "", false, "--insecure"},
		{"a name", "belfry.example:0", "", "", false, "--insecure"},
		{"everything, and it is meant", "0.0.0.0:0", "", "", true, ""},
		{"no port", "127.0.0.1", "", "", false, `--listen: have "127.0.0.1", want HOST:PORT`},
		{"no such port", "127.0.0.1:99999", "", "", false, "a port of 0 to 65535"},
		{"no such port for gossip", "127.0.0.1:0", "", "127.0.0.1:x", false, `--gossip-listen: have "127.0.0.1:x"`},
		{"other nodes from everywhere", "127.0.0.1:0", "0.0.0.0:0", "", false, "--peer-listen: 0.0.0.0:0 is reachable"},
		{"gossip from everywhere", "127.0.0.1:0", "", "0.0.0.0:0", false, "--insecure"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := config(t, t.TempDir())
			cfg.Listen, cfg.PeerListen, cfg.GossipListen, cfg.Insecure = test.listen, test.peers, test.gossip, test.insecure
			s, err := server.Start(t.Context(), cfg)
			if err == nil {
				stop(t, s)
			}
			bad, isAddress := errors.AsType[*server.ConfigError](err)
			switch {
			case test.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.refused != "" && (!isAddress || !strings.Contains(bad.Error(), test.refused)):
				t.Errorf("got %v, want an ConfigError with %q", err, test.refused)
			}
		})
	}
}

// TestSettingsAreRefusedByTheirFlags before anything is made.
func TestSettingsAreRefusedByTheirFlags(t *testing.T) {
	for _, test := range []struct {
		change func(*server.Config)
		says   string
	}{
		{func(cfg *server.Config) { cfg.NodeID = "a b" }, `--node-id: have "a b", want 1 to 64 letters`},
		{func(cfg *server.Config) {
			cfg.BootstrapExpect, cfg.Join = -1, []string{"127.0.0.1:1"}
		}, "--bootstrap-expect: have -1, want 1 or more"},
		{func(cfg *server.Config) { cfg.Join = []string{"localhost"} }, `--join: have "localhost", want HOST:PORT`},
		{func(cfg *server.Config) { cfg.GossipKeys = filepath.Join(cfg.Dir, "nofile") }, "--gossip-keys: "},
	} {
		cfg := config(t, t.TempDir())
		test.change(&cfg)
		_, err := server.Start(t.Context(), cfg)
		if bad, ok := errors.AsType[*server.ConfigError](err); !ok || !strings.Contains(bad.Error(), test.says) {
			t.Errorf("got %v, want a ConfigError with %q", err, test.says)
		}
	}
}

// TestAdvertisedHostHasAnAddress: the flag is named before anything is made. It is no mistake for
// good, which a supervisor would not start again.
func TestAdvertisedHostHasAnAddress(t *testing.T) {
	cfg := config(t, filepath.Join(t.TempDir(), "data"))
	cfg.Advertise = "n1.invalid" // RFC 6761: never resolves
	_, err := server.Start(t.Context(), cfg)
	if _, final := errors.AsType[*server.ConfigError](err); err == nil || final ||
		!strings.HasPrefix(err.Error(), `--advertise: have "n1.invalid", want a host that has an address: `) {
		t.Errorf("got %v, want an error of --advertise that is no ConfigError", err)
	}
	if _, err := os.Stat(cfg.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data directory: %v", err)
	}
}

// TestAddressInUseNamesItsFlag: the two addresses without a flag are found from the one with a
// flag.
func TestAddressInUseNamesItsFlag(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	for says, change := range map[string]func(*server.Config){
		"at --listen: ": func(cfg *server.Config) { cfg.Listen = address },
		"at --peer-listen, by default the port after that of --listen: ": func(cfg *server.Config) {
			cfg.PeerListen = address
		},
		"at --gossip-listen, by default the second port after that of --listen: ": func(cfg *server.Config) {
			cfg.GossipListen = address
		},
	} {
		cfg := config(t, t.TempDir())
		change(&cfg)
		if _, err := server.Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), says) ||
			!errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

// TestStartIsQuick asks for readiness within a second. The machine may be busy with other tests, so
// one of the starts of some minutes is enough; a start that takes long by itself never passes.
func TestStartIsQuick(t *testing.T) {
	var took []time.Duration
	for first := time.Now(); time.Since(first) < 2*time.Minute; {
		began := time.Now()
		s := start(t, config(t, t.TempDir()))
		response, err := http.Get(s.URL() + "/readyz") //nolint:noctx // the test has a time limit of its own
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("after the start the server answers %s", response.Status)
		}
		last := time.Since(began)
		if last <= time.Second {
			return
		}
		stop(t, s)
		took = append(took, last)
	}
	t.Errorf("the server was ready after %v, want a second", took)
}

// TestJobsSurviveAStop puts jobs and configures a queue, starts again on the same directory, and
// finds both.
func TestJobsSurviveAStop(t *testing.T) {
	dir := t.TempDir()
	first := start(t, config(t, dir))
	if _, err := queues(first).Put(t.Context(), &belfryv1.PutRequest{
		Queue: "orders", Id: "order-42", When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Hour)},
		Body: &belfryv1.PutRequest_Text{Text: "close"},
	}); err != nil {
		t.Fatal(err)
	}
	admin := belfryv1connect.NewAdminServiceClient(http.DefaultClient, first.URL())
	if _, err := admin.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{
		Queue: "many", Partitions: 3, Settings: &belfryv1.QueueSettings{Ttr: durationpb.New(7 * time.Second)},
	}); err != nil {
		t.Fatal(err)
	}
	_, err := admin.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "many"})
	if connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("creating a queue twice: %v, want already_exists", err)
	}
	_, err = admin.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "orders"})
	if connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("creating a queue that a put made: %v, want already_exists", err)
	}
	stop(t, first)

	again := start(t, config(t, dir))
	got, err := queues(again).Get(t.Context(), &belfryv1.GetRequest{Queue: "orders", Id: "order-42"})
	if err != nil || string(got.GetJob().GetData())+got.GetJob().GetText() != "close" ||
		got.Job.State != belfryv1.JobState_JOB_STATE_DELAYED {
		t.Errorf("after the restart: %v, %v; want the delayed job", got, err)
	}
	admin = belfryv1connect.NewAdminServiceClient(http.DefaultClient, again.URL())
	queue, err := admin.GetQueue(t.Context(), &belfryv1.GetQueueRequest{Queue: "many"})
	if err != nil || queue.Queue.Partitions != 3 || queue.Queue.Settings.Ttr.AsDuration() != 7*time.Second {
		t.Errorf("after the restart: %v, %v; want 3 partitions and a TTR of 7 s", queue, err)
	}
	updated, err := admin.UpdateQueue(t.Context(), &belfryv1.UpdateQueueRequest{
		Queue: "many", Settings: &belfryv1.QueueSettings{Paused: new(true)},
	})
	if err != nil || !updated.Settings.GetPaused() {
		t.Errorf("pausing: %v, %v; want a paused queue", updated, err)
	}
	if _, err := admin.DeleteQueue(t.Context(), &belfryv1.DeleteQueueRequest{Queue: "many"}); err != nil {
		t.Errorf("deleting: %v", err)
	}
	if _, err := admin.GetQueue(t.Context(),
		&belfryv1.GetQueueRequest{Queue: "many"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("after deleting: %v, want not_found", err)
	}
}

// TestStopAnswersWaitingPolls stops a server at which a consumer waits for a minute.
func TestStopAnswersWaitingPolls(t *testing.T) {
	s := start(t, config(t, t.TempDir()))
	type answer struct {
		response *belfryv1.ReserveResponse
		err      error
	}
	answers := make(chan answer, 1)
	go func() {
		response, err := queues(s).Reserve(t.Context(), &belfryv1.ReserveRequest{
			Queues: []string{"orders"}, Wait: durationpb.New(time.Minute),
		})
		answers <- answer{response, err}
	}()
	waitForWaiters(t, s, 1)
	began := time.Now()
	stop(t, s)
	got := <-answers
	if got.err != nil || len(got.response.Jobs) != 0 {
		t.Errorf("the poll ended with %v, %v; want an empty answer", got.response, got.err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("stopping took %v", took)
	}
}

// waitForWaiters returns when so many calls wait for a job.
func waitForWaiters(t *testing.T, s *server.Server, want int) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for s.Waiting() < want {
		select {
		case <-t.Context().Done():
			t.Fatal("nobody came to wait")
		case <-ticker.C:
		}
	}
}

func TestDirectoryIsLocked(t *testing.T) {
	dir := t.TempDir()
	start(t, config(t, dir))
	s, err := server.Start(t.Context(), config(t, dir))
	if err == nil {
		stop(t, s)
		t.Fatal("a second server started on the same directory")
	}
	if !strings.Contains(err.Error(), dir) {
		t.Errorf("the error %q does not name the directory", err)
	}
}

func TestAddressInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	cfg := config(t, t.TempDir())
	cfg.Listen = listener.Addr().String()
	if s, err := server.Start(t.Context(), cfg); err == nil {
		stop(t, s)
		t.Error("two servers listen at one address")
	} else if !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v, want that the address is in use", err)
	}
}

func TestMetricsTellOfTheProcess(t *testing.T) {
	s := start(t, config(t, t.TempDir()))
	response, err := http.Get(s.URL() + "/metrics") //nolint:noctx // the test has a time limit of its own
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"process_resident_memory_bytes", "go_goroutines", "go_build_info", "belfry_"} {
		if !strings.Contains(string(text), "\n"+name) {
			t.Errorf("/metrics lacks %s", name)
		}
	}
}

// TestStopIsDone: the server says that it no longer serves, and stopping twice changes nothing.
func TestStopIsDone(t *testing.T) {
	s := start(t, config(t, t.TempDir()))
	select {
	case <-s.Done():
		t.Error("a server that serves is done")
	default:
	}
	stop(t, s)
	<-s.Done()
	stop(t, s)
	if _, err := http.Get(s.URL() + "/livez"); err == nil { //nolint:noctx,bodyclose // there is no answer
		t.Error("a server that has stopped answers")
	}
}

// TestDirectoryKeepsItsShape refuses to start a directory as something else than it is.
func TestDirectoryKeepsItsShape(t *testing.T) {
	dir := t.TempDir()
	cfg := config(t, dir)
	cfg.NodeID, cfg.Shards = "north", 2
	first := start(t, cfg)
	if status := first.Status(); status.Name != "north" || len(status.Shards) != 2 {
		t.Errorf("the node is %q with %d shards, want north with 2", status.Name, len(status.Shards))
	}
	stop(t, first)

	other := config(t, dir)
	other.NodeID = "gong"
	if s, err := server.Start(t.Context(), other); err == nil {
		stop(t, s)
		t.Error("the directory of one node was started as another")
	} else if !strings.Contains(err.Error(), "north") {
		t.Errorf("the error %q does not say whose directory it is", err)
	}
	more := config(t, dir)
	more.Shards = 6
	if s, err := server.Start(t.Context(), more); err == nil {
		stop(t, s)
		t.Error("a directory of 2 shards was started with 6")
	} else if !strings.Contains(err.Error(), "has 2 shards, not 6") {
		t.Errorf("the error %q does not say how many shards there are", err)
	}

	again := start(t, config(t, dir)) // without a name it has the one it had
	if status := again.Status(); status.Name != "north" || len(status.Shards) != 2 {
		t.Errorf("later the node is %q with %d shards, want north with 2", status.Name, len(status.Shards))
	}
}

// TestNoDirectory starts where no directory can be made.
func TestNoDirectory(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := server.Start(t.Context(), config(t, file)); err == nil {
		stop(t, s)
		t.Error("a file was taken for a directory")
	} else if !strings.Contains(err.Error(), file) {
		t.Errorf("the error %q does not name the path", err)
	}
}

// TestStartThatIsCancelled leaves nothing behind: the directory can be used at once.
func TestStartThatIsCancelled(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := server.Start(ctx, config(t, dir)); err == nil {
		stop(t, s)
		t.Fatal("a start that was cancelled succeeded")
	}
	start(t, config(t, dir))
}

// TestImpossibleSettingsAreNamed: the answer names the field and what it may be.
func TestImpossibleSettingsAreNamed(t *testing.T) {
	t.Parallel()
	cfg := config(t, t.TempDir())
	cfg.Alone = true
	s := start(t, cfg)
	for want, request := range map[string]*belfryv1.UpdateClusterRequest{
		"replicationFactor: have 4, want an odd number, 1 to 7": {ReplicationFactor: 4},
		"gracePeriod: have 500ms, want 1s to 720h0m0s":          {GracePeriod: durationpb.New(500 * time.Millisecond)},
	} {
		_, err := admin(s).UpdateCluster(t.Context(), request)
		fault, ok := fault.FromConnect(err)
		if !ok || !strings.HasPrefix(fault.Message, want) || !strings.HasPrefix(want, fault.Field+":") {
			t.Errorf("%v, want %q with its field", err, want)
		}
	}
}
