package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestExitCodesOfTheWire checks the code and the words for each kind of answer that is no success.
func TestExitCodesOfTheWire(t *testing.T) {
	for _, test := range []struct {
		reason string
		code   connect.Code
		want   int
	}{
		{"INVALID", connect.CodeInvalidArgument, 2},
		{"TOO_LARGE", connect.CodeInvalidArgument, 2},
		{"JOB_NOT_FOUND", connect.CodeNotFound, 3},
		{"QUEUE_NOT_FOUND", connect.CodeNotFound, 3},
		{"SHUTTING_DOWN", connect.CodeUnavailable, 4},
		{"CLOCK_AHEAD", connect.CodeUnavailable, 4},
		{"SCHEDULE_NOT_FOUND", connect.CodeNotFound, 3},
		{"VERSION_CHANGED", connect.CodeFailedPrecondition, 6},
		{"STALE_LEASE", connect.CodeFailedPrecondition, 6},
		{"JOB_RESERVED", connect.CodeFailedPrecondition, 6},
		{"JOB_EXISTS", connect.CodeAlreadyExists, 6},
		{"QUEUE_EXISTS", connect.CodeAlreadyExists, 6},
		{"QUEUE_CHANGED", connect.CodeAborted, 6},
		{"QUEUE_FULL", connect.CodeResourceExhausted, 7},
		{"DISK_FULL", connect.CodeResourceExhausted, 7},
		{"MEMORY_FULL", connect.CodeResourceExhausted, 7},
		{"UNAUTHENTICATED", connect.CodeUnauthenticated, 8},
		{"FORBIDDEN", connect.CodePermissionDenied, 8},
		{"UNIMPLEMENTED", connect.CodeUnimplemented, 1},
		{"INTERNAL", connect.CodeInternal, 5}, // a server that broke does not know what it did
	} {
		t.Run(test.reason, func(t *testing.T) {
			h := newHarness(t, clitest.Refuse(test.code, test.reason, "the server's words"))
			got := h.Run("nack", "lease")
			if got.Code != test.want {
				t.Errorf("exit code %d, want %d", got.Code, test.want)
			}
			if got.Out != "" || !strings.Contains(got.Err, "belfry: "+test.reason+": the server's words") {
				t.Errorf("printed %q and said %q, want nothing and the reason with the server's words", got.Out, got.Err)
			}
		})
	}
}

// usageError is a command line and what is said of it.
type usageError struct {
	name string
	args string
	says string
}

// usageErrors are the command lines that are refused before anything is asked of a server.
func usageErrors() []usageError {
	return []usageError{
		{"unknown command", "putt orders", `unknown command "putt" of "belfry"; did you mean "put"?`},
		{"unknown subcommand", "queue sohw orders", `unknown command "sohw" of "belfry queue"; did you mean "show"?`},
		{"unknown subcommand with a flag", "schedule crate reports nightly --cron x",
			`unknown command "crate" of "belfry schedule"`},
		{"a command that is like no other", "xyzzyxyzzy", `unknown command "xyzzyxyzzy" of "belfry"` + "\n"},
		{"the word of another queue for a put", "enqueue orders x",
			`unknown command "enqueue" of "belfry"; did you mean "put"?`},
		{"the word of another queue for a reserve", "pop orders",
			`unknown command "pop" of "belfry"; did you mean "reserve"?`},
		{"the word of another queue that is a subcommand", "queue remove orders",
			`unknown command "remove" of "belfry queue"; did you mean "delete"?`},
		{"unknown flag", "put orders --dealy 3s", `unknown flag --dealy; did you mean "--delay"?`},
		{"the body as a flag", "put orders --text x", "unknown flag --text; the body is an argument: belfry put QUEUE BODY"},
		{"half of a flag", "cluster settings --factor 5", `unknown flag --factor; did you mean "--replication-factor"?`},
		{"no voters", "cluster settings --replication-factor 0", "--replication-factor: have 0, want 1, 3, 5 or 7"},
		{"an even replication factor", "serve --replication-factor 4",
			"--replication-factor: have 4, want an odd number, 1 to 7"},
		{"a short grace period", "serve --grace-period 1ms", "--grace-period: have 1ms, want 1s to 720h0m0s"},
		{"unknown short flag", "put orders -z", "unknown flag -z"},
		{"missing argument", "cancel orders", "missing argument: ID"},
		{"missing arguments", "get", "missing argument: QUEUE, ID"},
		{"too many arguments", "get orders a b", `one argument too many: "b"`},
		{"an argument for serve", "serve /var/lib/belfry", `one argument too many: "/var/lib/belfry"`},
		{"an argument for recover", "recover /var/lib/belfry", `one argument too many: "/var/lib/belfry"`},
		{"an argument for demo", "demo fast", `one argument too many: "fast"`},
		{"an argument for version", "version x", `one argument too many: "x"`},
		{"an argument for health", "health 127.0.0.1:7410", `one argument too many: "127.0.0.1:7410"`},
		{"an argument for cluster status", "cluster status n1", `one argument too many: "n1"`},
		{"put without a queue", "put", "missing argument: QUEUE"},
		{"put of an empty standard input", "put orders -",
			"nothing was put, because standard input is empty; if the body is to be empty, write '' instead of -"},
		{"bad duration", "put orders --delay soon", `--delay: have "soon", want a duration such as "300s"`},
		{"bad duration in a list", "put orders --retry-delays 1s,x",
			`--retry-delays: have "1s,x", want a duration such as "300s"`},
		{"bad number", "put orders --priority x", `--priority: have "x", want a whole number` + "\n"},
		{"bad number of nothing", "reserve orders -n -1", `--max: have "-1", want a whole number, 0 to 4294967295` + "\n"},
		{"number out of range", "serve --shards 99999999999999999999",
			`--shards: have "99999999999999999999", want a whole number; it is out of range`},
		{"bad share", "bench lateness --rate fast", `--rate: have "fast", want a number` + "\n"},
		{"bad large number", "demo --seed 1.5", `--seed: have "1.5", want a whole number, 0 or more` + "\n"},
		{"neither true nor false", "queue delete orders --yes=maybe", `--yes: have "maybe", want true or false` + "\n"},
		{"bad time", "put orders --at tomorrow", "want a time such as"},
		{"two due times", "put orders --delay 1s --at 2030-01-31T09:00:00Z", "exclude each other"},
		{"bad header", "put orders -H novalue", "want name=value"},
		{"bad choice", "list orders --state redy",
			`--state: have "redy", want one of delayed, ready, reserved, dead; did you mean "ready"?`},
		{"fewer than none", "list orders -n -1", `--max: have "-1", want a whole number, 0 or more`},
		{"fewer keys than none", "keys list orders -n -1", `--max: have "-1", want a whole number, 0 or more`},
		{"bad output", "list orders -o yaml", `--output: have "yaml", want one of table, json`},
		{"bad server", "list orders --server ftp://x", "want http://HOST:PORT"},
		{"reschedule to nothing", "reschedule orders a", "missing --delay or --at"},
		{"redrive of nothing", "redrive orders", "name the jobs or give --max"},
		{"two servers to measure", "bench put --server n1,n2", "this command takes one server"},
		{"redrive of none", "redrive orders --max 0", "--max must be 1 to 100000"},
		{"redrive of both", "redrive orders a --max 1", "name the jobs or give --max"},
		{"set of nothing", "queue set orders", "no setting given"},
		{"pause twice", "queue pause orders --for 1m --until 2030-01-31T09:00:00Z", "exclude each other"},
		{"options with a file", "put orders --file x --ttr 1s", "--ttr does not go with --file"},
		{"purge of an unknown state", "queue purge orders --state gone --yes", `--state: have "gone", want one of`},
		{"purge where nobody can answer", "queue purge orders", "say --yes if it is meant"},
	}
}

func TestUsageErrors(t *testing.T) {
	for _, test := range usageErrors() {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, clitest.Always(&belfryv1.GetQueueResponse{Queue: &belfryv1.Queue{}}))
			got := h.Run(strings.Fields(test.args)...)
			if got.Code != cli.CodeUsage || !strings.Contains(got.Err, test.says) ||
				!strings.Contains(got.Err, "--help' for usage.") {
				t.Errorf("exit code %d, want 2; said %q, want %q and where the help is", got.Code, got.Err, test.says)
			}
			for _, request := range h.Requests {
				if _, ok := request.(*belfryv1.GetQueueRequest); !ok {
					t.Errorf("the server was sent %v", request)
				}
			}
		})
	}
}

// TestRefusedFieldIsNamedAsItsFlag: the error names the flag that was typed, not the field behind
// it.
func TestRefusedFieldIsNamedAsItsFlag(t *testing.T) {
	const settings = "cluster settings --replication-factor 4"
	for _, test := range []struct{ field, args, want string }{
		{"replicationFactor", settings, "belfry: INVALID: --replication-factor: have 4\n"},
		{"unknownField", settings, "belfry: INVALID: unknownField: have 4\n"},
		{"name", "cluster drain n2", "belfry: INVALID: have 4\n"}, // the argument
	} {
		refused := connect.NewError(connect.CodeInvalidArgument, errors.New(test.field+": have 4"))
		detail, err := connect.NewErrorDetail(&errdetails.ErrorInfo{
			Reason: "INVALID", Domain: "belfry", Metadata: map[string]string{"field": test.field},
		})
		if err != nil {
			t.Fatal(err)
		}
		refused.AddDetail(detail)
		h := newHarness(t, func(proto.Message) (proto.Message, error) { return nil, refused })
		if got := h.Run(strings.Fields(test.args)...); got.Code != cli.CodeUsage || got.Err != test.want {
			t.Errorf("%+v, want %q", got, test.want)
		}
	}
}

// TestReserveWarnsWhileItWaits: who mistyped a queue is told before the wait is over, and once.
func TestReserveWarnsWhileItWaits(t *testing.T) {
	looked := make(chan struct{})
	h := newHarness(t, func(request proto.Message) (proto.Message, error) {
		switch request.(type) {
		case *belfryv1.GetQueueRequest:
			close(looked)
			return nil, clitest.WireError(connect.CodeNotFound, "QUEUE_NOT_FOUND", "there is no such queue")
		case *belfryv1.ListQueuesRequest:
			return &belfryv1.ListQueuesResponse{}, nil
		default:
			select {
			case <-looked:
			case <-t.Context().Done():
			}
			return &belfryv1.ReserveResponse{}, nil
		}
	})
	want := clitest.Left(cli.CodeNothing, "nothing to reserve\n", "belfry: warning: there is no queue \"ordesr\"\n")
	if got := h.Run("reserve", "ordesr", "--wait", "20s", "--timeout", "10s"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNothingToReserve(t *testing.T) {
	h := newHarness(t, clitest.Always(&belfryv1.ReserveResponse{}))
	if got := h.Run("reserve", "orders"); got.Code != cli.CodeNothing || got.Out != "nothing to reserve\n" ||
		got.Err != "" {
		t.Errorf("got %+v, want exit code 10 and one line", got)
	}
	if got := h.Run("reserve", "orders", "-o", "json"); got.Code != cli.CodeNothing ||
		got.Out != `{"jobs":[],"witnesses":[]}`+"\n" {
		t.Errorf("got %+v, want exit code 10 and empty lists", got)
	}
}

func TestAckBatchTellsWhatFailed(t *testing.T) {
	h := newHarness(t, clitest.Always(&belfryv1.AckBatchResponse{Results: []*belfryv1.AckBatchResult{
		{Result: &belfryv1.AckBatchResult_Ack{Ack: &belfryv1.AckResponse{}}},
		{Result: &belfryv1.AckBatchResult_Error{Error: &belfryv1.EntryError{
			Code: "failed_precondition", Reason: belfryv1.Reason_REASON_STALE_LEASE, Message: "it lapsed",
			Outcome: belfryv1.Outcome_OUTCOME_NOT_APPLIED,
		}}},
	}}))
	got := h.Run("ack", "A", "B")
	if got.Code != cli.CodeConflict || !strings.Contains(got.Out, "B      STALE_LEASE: it lapsed") ||
		!strings.Contains(got.Err, "1 of 2 leases were not acked") {
		t.Errorf("got %+v, want exit code 6 and which lease it was", got)
	}
}

// TestRedriveTellsWhatIsNotDead: a mistyped id is noticed, in a script too. An id that is named twice
// counts once.
func TestRedriveTellsWhatIsNotDead(t *testing.T) {
	h := newHarness(t, clitest.Always(&belfryv1.RedriveResponse{Moved: 1}))
	want := clitest.Left(cli.CodeNotFound, "1 job made ready\n",
		"belfry: 1 of 2 named jobs are not dead, or do not exist\n")
	if got := h.Run("redrive", "orders", "a", "b", "a"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	h.Run("redrive", "orders", "a", "a").Holds(t, cli.CodeOK, "1 job made ready")
}

func TestNoServer(t *testing.T) {
	const address = "127.0.0.1:1" // a port that was free a moment ago may be another test's now
	h := newHarness(t, nil)
	got := h.Run("put", "orders", "x", "--server", address)
	if got.Code != cli.CodeUnavailable || !strings.Contains(got.Err, "no server answers at "+address) ||
		!strings.Contains(got.Err, "belfry serve") {
		t.Errorf("got %+v, want exit code 4 and what to do", got)
	}
}

// TestFailedHandshakeSendsNothing: without TLS on both sides no call leaves, so none has an unknown
// outcome.
func TestFailedHandshakeSendsNothing(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it is told that its certificate is refused
	secure.StartTLS()
	t.Cleanup(secure.Close)
	h := newHarness(t, clitest.Always(&belfryv1.PutResponse{}))
	plain := strings.Replace(h.URL, "http:", "https:", 1)
	jobs := clitest.WriteFile(t, "jobs.ndjson", "{}\n")
	for _, test := range []struct {
		name, server, says string
		args               []string
	}{
		{"https to plain http", plain, "write http://", []string{"put", "orders", "x"}},
		{"https to plain http, from a file", plain, "write http://", []string{"put", "orders", "--file", jobs}},
		{"https to plain http, health", plain, "write http://", []string{"health"}},
		{"an unknown certificate", secure.URL, "certificate is not accepted", []string{"put", "orders", "x"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := h.Run(append(test.args, "--server", test.server)...)
			if got.Code != cli.CodeUnavailable || !strings.Contains(got.Err, test.says) ||
				strings.Contains(got.Err, "--request-id") {
				t.Errorf("got %+v, want exit code 4, %q and no request id", got, test.says)
			}
		})
	}
}

func TestTimeoutIsAnUnknownOutcome(t *testing.T) {
	t.Parallel() // it waits for most of its time: so long that the call has left before, however busy the machine is
	release := make(chan struct{})
	h := newHarness(t, func(proto.Message) (proto.Message, error) {
		<-release
		return nil, clitest.WireError(connect.CodeInternal, "INTERNAL", "too late")
	})
	t.Cleanup(func() { close(release) })
	got := h.Run("put", "orders", "x", "--timeout", "10s")
	if got.Code != cli.CodeUnknown || !strings.Contains(got.Err, "no answer within 10s") ||
		!strings.Contains(got.Err, "--request-id "+clitest.FirstRequestID) {
		t.Errorf("got %+v, want exit code 5 and the request id", got)
	}
}

func TestConnectionThatBreaksIsAnUnknownOutcome(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 1)) //nolint:errcheck // whatever came, the connection breaks
			conn.Close()
		}
	}()
	h := newHarness(t, nil)
	if got := h.Run("put", "orders", "x", "--server", listener.Addr().String()); got.Code != cli.CodeUnknown ||
		!strings.Contains(got.Err, clitest.FirstRequestID) {
		t.Errorf("got %+v, want exit code 5 and the request id", got)
	}
}

func TestInterruptedCommand(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	release := make(chan struct{})
	h := newHarness(t, func(proto.Message) (proto.Message, error) {
		cancel(cli.Interruption{Signal: syscall.SIGINT})
		<-release
		return &belfryv1.ReserveResponse{}, nil
	})
	t.Cleanup(func() { close(release) })
	if got := h.RunContext(ctx, "reserve", "orders", "--wait", "20s"); got.Code != 130 || got.Out != "" || got.Err != "" {
		t.Errorf("got %+v, want exit code 130 and silence", got)
	}
}

// TestCallIsRepeated shows that an unknown outcome is asked for again, with the same request id.
func TestCallIsRepeated(t *testing.T) {
	for _, reason := range []string{"UNKNOWN_OUTCOME", "NO_LEADER", "NOT_LEADER"} {
		t.Run(reason, func(t *testing.T) {
			calls := 0
			h := newHarness(t, func(proto.Message) (proto.Message, error) {
				if calls++; calls == 1 {
					return nil, clitest.WireError(connect.CodeUnavailable, reason, "not now")
				}
				return &belfryv1.PutResponse{Id: "0-1", Created: true, DueAt: clitest.At(time.Second)}, nil
			})
			if got := h.Run("put", "orders", "x"); got.Code != cli.CodeOK {
				t.Fatalf("got %+v, want success", got)
			}
			puts := clitest.Sent[*belfryv1.PutRequest](h)
			if len(puts) != 2 || puts[0].RequestId != puts[1].RequestId || puts[0].RequestId == "" {
				t.Errorf("sent %v, want two puts with one request id", puts)
			}
		})
	}
}

// TestBackupThatIsRefused says what the server said, and nothing of a file that never began.
func TestBackupThatIsRefused(t *testing.T) {
	h := newHarness(t, nil) // which has no backups
	if got := h.Run("backup", filepath.Join(t.TempDir(), "b")); got.Code != cli.CodeError ||
		!strings.HasPrefix(got.Err, "belfry: belfry.v1.AdminService.Backup is not implemented") {
		t.Errorf("%+v", got)
	}
}
