// Package bench measures a Belfry server from outside: how many jobs it takes and hands out, how
// long a caller waits, how late jobs are handed out, and how much memory a pending job needs.
//
// Closed workloads have a fixed number of callers. Each makes its next call after the answer to the
// last. Their percentiles are what such a caller sees; they hide the delay of callers that do not
// wait. The workloads e2e and lateness are open: calls have a schedule, and a slow answer also
// counts against the calls that it delays. If the server or the consumers cannot keep up with the
// rate, the result says so; its latencies are then those of a backlog.
//
// A run uses queues of its own and deletes them at its end, also if it fails or is interrupted.
//
// The generator often shares the machine with the server, so it avoids work that says nothing about
// the server:
//
//   - It reuses the messages of a batch. They are encoded without delays, and only the time stamps
//     in the bodies change.
//   - From answers to batches it reads only the number of puts and the errors, not ids and times.
//   - The callers of put, batch and pending write to and read from their connections themselves, as
//     wrk does.
//
// The workloads sdk, e2e and lateness do all the work of a user of the SDK.
package bench

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
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
	// URL is the server, and TLS are the settings for https; nil for the system's.
	URL string
	TLS *tls.Config
	// Token is what calls carry; empty for none.
	Token string
	// Workload is one of Workloads.
	Workload string
	// Connections is the number of callers of put, batch and pending, each with a connection of its
	// own.
	Connections int
	// Callers is the number of callers of sdk, and of consumers of e2e and lateness.
	Callers int
	// Batch is the number of jobs of a call in batch and pending.
	Batch int
	// Jobs ends a phase after so many jobs; 0 means that Duration does.
	Jobs uint64
	// Duration ends a phase.
	Duration time.Duration
	// RatePerSecond is how many jobs are put in e2e and lateness.
	RatePerSecond float64
	// Delay is the delay of the jobs of lateness.
	Delay time.Duration
	// BodyBytes is the size of a body.
	BodyBytes int
	// Queues is over how many queues jobs are spread.
	Queues int
	// Keys is over how many keys the jobs of sdk, e2e and lateness are spread, one reserved job each;
	// 0 for jobs without a key.
	Keys int
	// Keep leaves the queues of the run, and the jobs that are left in them.
	Keep bool
	// Memory reads what the server uses; nil if that cannot be known.
	Memory func(context.Context) (Memory, error)
	// Collect runs the server's garbage collector once and returns what that cost; nil if that cannot
	// be done.
	Collect func() Collection
}

// Workloads returns the names of the workloads, each with what it measures.
func Workloads() [][2]string {
	return [][2]string{
		{"put", "single puts, one connection per caller, as curl or a simple client would"},
		{"batch", "puts in batches"},
		{"sdk", "puts by many callers through the SDK, then reserve and ack of all of them"},
		{"e2e", "jobs without a delay at a steady rate; the time from a job's put, as scheduled, to its arrival at a " +
			"consumer"},
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
	check(c.Keys >= 0 && c.Keys <= 10_000_000, "keys must be 0 to 10000000")
	return errors.Join(problems...)
}

// Run measures and returns a result for each phase. On an error it returns the phases that were
// finished. Unless cfg.Keep is set it deletes the queues of the run, which goes on for up to
// cleanupMax after ctx has ended.
func Run(ctx context.Context, cfg Config) ([]Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	server, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("reading the server's address: %w", err)
	}
	r := newRun(cfg, server)
	results, err := r.measure(ctx)
	if !cfg.Keep && len(results) > 0 { // else no put was tried
		err = errors.Join(err, r.removeQueues(ctx, err != nil))
	}
	return results, err
}

// measure makes the connections, carries out the workload, and ends the connections.
func (r *run) measure(ctx context.Context) ([]Result, error) {
	defer r.close()
	defer context.AfterFunc(ctx, r.close)()
	// The SDK waits for a server without limit; a user of bench wants to know at once that there is
	// none.
	admin := belfryv1connect.NewAdminServiceClient(r.wires[0], r.URL, withoutGzip())
	if _, err := admin.ListQueues(ctx, &belfryv1.ListQueuesRequest{PageSize: 1}); err != nil {
		return nil, fmt.Errorf("asking the server before the first job: %w", err)
	}
	switch r.Workload {
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
	server *url.URL
	// Each worker has a connection, which it alone uses.
	wires  []*wire
	queues []belfryv1connect.QueueServiceClient
	// putBatches is PutBatch with a request and an answer of its own.
	putBatches []*connect.Client[batchRequest, batchAnswer]
	names      []string
	body       []byte // without a stamp
	// batches are the requests that each worker uses again and again.
	batches []batchRequest
}

func newRun(cfg Config, server *url.URL) *run {
	r := &run{Config: cfg, server: server, body: filler(cfg.BodyBytes), batches: make([]batchRequest, cfg.Connections)}
	procedure := cfg.URL + belfryv1connect.QueueServicePutBatchProcedure
	for range cfg.Connections {
		w := r.newWire()
		r.wires = append(r.wires, w)
		r.queues = append(r.queues, belfryv1connect.NewQueueServiceClient(w, cfg.URL, withoutGzip()))
		r.putBatches = append(r.putBatches,
			connect.NewClient[batchRequest, batchAnswer](w, procedure, withoutGzip(), connect.WithCodec(codec{})))
	}
	// Names of this run only: jobs that an earlier run left behind must not be taken for its own.
	prefix := "bench/" + strings.ToLower(rand.Text()[:8])
	for i := range cfg.Queues {
		r.names = append(r.names, fmt.Sprintf("%s-%d", prefix, i))
	}
	return r
}

// newWire returns a connection to the server that is not made yet.
func (r *run) newWire() *wire { return &wire{server: r.server, tls: r.TLS, token: r.Token} }

// withoutGzip: answers are too small to be worth compressing.
func withoutGzip() connect.ClientOption { return connect.WithAcceptCompression("gzip", nil, nil) }

// close ends all connections. Any goroutine may call it, more than once.
func (r *run) close() {
	for _, w := range r.wires {
		w.close()
	}
}

// withSDK runs work with a client of the SDK.
func (r *run) withSDK(ctx context.Context,
	work func(context.Context, *client.Client) ([]Result, error)) (results []Result, err error) {
	options := []client.Option{client.WithTLS(r.TLS)}
	if r.Token != "" {
		options = append(options, client.WithToken(r.Token))
	}
	sdk, err := client.New(r.URL, options...) //nolint:contextcheck // the client outlives calls and is closed below
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	defer func() { err = errors.Join(err, sdk.Close()) }()
	if err := r.limitKeys(ctx); err != nil {
		return nil, err
	}
	return work(ctx, sdk)
}
