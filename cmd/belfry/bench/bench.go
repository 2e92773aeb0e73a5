// Package bench measures a Belfry server from outside: how many jobs it takes and hands out, how long a caller waits, how
// late jobs ring, and what a pending job costs in memory.
//
// Closed workloads have a fixed number of callers, each of which makes its next call when the last is answered; their
// percentiles are what such a caller sees, and hide what callers would have seen who do not wait. The lateness
// workload is open: calls are made when they are due, and a slow answer counts against all that it holds up.
package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/client"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// Config says what to measure. Fields that a workload does not use do not count.
type Config struct {
	// URL is the server.
	URL string
	// Workload is one of Workloads.
	Workload string
	// Connections is the number of callers of put, batch and pending, each with a connection of its own.
	Connections int
	// Callers is the number of callers of sdk, of e2e (on each side) and of consumers of lateness.
	Callers int
	// Batch is the number of jobs of a call in batch and pending.
	Batch int
	// Jobs ends a phase after so many jobs; 0 means that Duration does.
	Jobs uint64
	// Duration ends a phase.
	Duration time.Duration
	// RatePerSecond is how many jobs are put in lateness.
	RatePerSecond float64
	// Delay is the delay of the jobs of lateness.
	Delay time.Duration
	// BodyBytes is the size of a body.
	BodyBytes int
	// Queues is over how many queues jobs are spread.
	Queues int
	// Memory reads what the server uses; nil if that cannot be known.
	Memory func(context.Context) (Memory, error)
	// Collect runs the server's garbage collector once and returns what that cost; nil if that cannot be done.
	Collect func() Collection
}

// Workloads returns the names of the workloads, each with what it measures.
func Workloads() [][2]string {
	return [][2]string{
		{"put", "single puts, one connection per caller, as curl or a simple client would"},
		{"batch", "puts in batches"},
		{"sdk", "puts by many callers through the SDK, then reserve and ack of all of them"},
		{"e2e", "producers and consumers together; the time from the put's call to the job's arrival"},
		{"lateness", "jobs with a delay at a steady rate; how long after their due time consumers have them"},
		{"pending", "many jobs far in the future; bytes of memory and collector time for them"},
	}
}

// Validate reports what makes no sense.
func (c Config) Validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	known := slices.ContainsFunc(Workloads(), func(w [2]string) bool { return w[0] == c.Workload })
	check(known, "there is no workload %q", c.Workload)
	check(c.Connections >= 1 && c.Connections <= 4096, "connections must be 1 to 4096")
	check(c.Callers >= 1 && c.Callers <= 65536, "callers must be 1 to 65536")
	check(c.Batch >= 1 && c.Batch <= 1000, "a batch must be 1 to 1000 jobs")
	check(c.Jobs > 0 || c.Duration > 0, "give a number of jobs or a duration")
	check(c.RatePerSecond > 0, "the rate must be above 0")
	check(c.Delay >= 0, "the delay must not be negative")
	check(c.BodyBytes >= stampBytes && c.BodyBytes <= 1<<20, "a body must be %d to %d bytes", stampBytes, 1<<20)
	check(c.Queues >= 1 && c.Queues <= 64, "queues must be 1 to 64")
	return errors.Join(problems...)
}

// Run measures and returns a result for each phase. On an error it returns the phases that were finished.
func Run(ctx context.Context, cfg Config) ([]Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := newRun(cfg)
	defer r.http.CloseIdleConnections()
	// The SDK waits for a server for as long as it takes; whoever benches wants to know at once that there is none.
	admin := belfryv1connect.NewAdminServiceClient(&http.Client{Transport: r.http}, cfg.URL)
	if _, err := admin.ListQueues(ctx, &belfryv1.ListQueuesRequest{PageSize: 1}); err != nil {
		return nil, fmt.Errorf("asking the server before the first job: %w", err)
	}
	switch cfg.Workload {
	case "put":
		return r.put(ctx)
	case "batch":
		return r.batch(ctx)
	case "sdk":
		return r.withSDK(ctx, r.sdk)
	case "e2e":
		return r.withSDK(ctx, r.endToEnd)
	case "lateness":
		return r.withSDK(ctx, r.lateness)
	default:
		return r.pending(ctx)
	}
}

// run is one measurement.
type run struct {
	Config
	http   *http.Transport
	queues belfryv1connect.QueueServiceClient
	names  []string
	body   []byte // without a stamp
	// batches are the messages that each worker uses again and again; only that worker touches them.
	batches [][]*belfryv1.PutRequest
}

func newRun(cfg Config) *run {
	// Plain HTTP/1.1 with a connection for each caller; answers are too small to be worth compressing.
	transport := &http.Transport{MaxIdleConns: 0, MaxIdleConnsPerHost: cfg.Connections, MaxConnsPerHost: cfg.Connections, DisableCompression: true}
	r := &run{
		Config:  cfg,
		body:    filler(cfg.BodyBytes),
		batches: make([][]*belfryv1.PutRequest, cfg.Connections),
		http:    transport,
		queues:  belfryv1connect.NewQueueServiceClient(&http.Client{Transport: transport}, cfg.URL, connect.WithAcceptCompression("gzip", nil, nil)),
	}
	// Names of this run only: jobs that an earlier run left behind must not be taken for its own.
	prefix := "bench/" + strings.ToLower(rand.Text()[:8])
	for i := range cfg.Queues {
		r.names = append(r.names, fmt.Sprintf("%s-%d", prefix, i))
	}
	return r
}

// withSDK runs work with a client of the SDK.
func (r *run) withSDK(ctx context.Context, work func(context.Context, *client.Client) ([]Result, error)) (results []Result, err error) {
	sdk, err := client.New(r.URL) //nolint:contextcheck // the client outlives calls and is closed below
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	defer func() { err = errors.Join(err, sdk.Close()) }()
	return work(ctx, sdk)
}
