package rpc

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
)

// The benchmarks of the methods that a server of many small jobs spends its time in: 100 jobs of
// 100 bytes in a call, through the whole edge, without a socket, by processor time. With an instant
// node what is left is the cost of the edge; with a real one, on the disk of the temporary
// directory, all that there is counts.
const benchJobs = 100

// benchNode returns an instant node.
func benchNode() backend.Node {
	return backendtest.InstantNode{Node: backendtest.NewNode(6), Grant: benchReserved}
}

// benchReserved are the jobs of a Reserve as a node answers them.
func benchReserved(queue string) []fsm.Job {
	jobs := make([]fsm.Job, benchJobs)
	body := bytes.Repeat([]byte("x"), benchJobs*100)
	for i := range jobs {
		jobs[i] = fsm.Job{
			Queue: queue, Serial: 1<<20 + uint64(i), ID: "0-1048576", Generated: true, State: fsm.Reserved, Due: 1e18,
			FirstDue: 1e18, Created: 1e18,
			TTR: time.Minute, MaxAttempts: 16, Body: body[i*100 : (i+1)*100], BodyBytes: 100, Attempt: 1, Fence: 1 << 21,
			Until: 2e18,
		}
	}
	return jobs
}

// binaryRequest returns a request of a method and a body to send again and again.
func binaryRequest(b *testing.B, method string, m proto.Message) (*http.Request, []byte) {
	b.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "/belfry.v1.QueueService/"+method, http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/proto")
	return r, body
}

// benchServer returns a server over a node.
func benchServer(b testing.TB, n backend.Node) *Server {
	b.Helper()
	s, err := newTestServer(Config{
		Node: n, Catalog: backendtest.NewCatalog(), Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// serveOnce sends a body as a request and returns the answer.
func serveOnce(b *testing.B, s *Server, r *http.Request, body []byte) *memoryResponse {
	again := *r
	again.Body = io.NopCloser(bytes.NewReader(body))
	w := &memoryResponse{header: http.Header{}}
	s.Handler().ServeHTTP(w, &again)
	if w.status != http.StatusOK {
		b.Fatal(w.status, w.body.String())
	}
	return w
}

// benchmarkHot is one request again and again.
func benchmarkHot(b *testing.B, s *Server, method string, m proto.Message) {
	b.Helper()
	r, body := binaryRequest(b, method, m)
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		serveOnce(b, s, r, body)
	}
	b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N)/benchJobs, "cpu-ns/job")
}

// benchPuts is a batch of puts; id, if it is not nil, makes their ids.
func benchPuts(id func(i int) string) *belfryv1.PutBatchRequest {
	batch := &belfryv1.PutBatchRequest{RequestId: "r"}
	for i := range benchJobs {
		put := &belfryv1.PutRequest{Queue: "bench", Body: &belfryv1.PutRequest_Data{Data: bytes.Repeat([]byte("x"), 100)}}
		if id != nil {
			put.Id, put.When = id(i), &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Minute)}
		}
		batch.Jobs = append(batch.Jobs, put)
	}
	return batch
}

func BenchmarkPutBatch(b *testing.B) {
	b.Run("plain", func(b *testing.B) {
		benchmarkHot(b, benchServer(b, benchNode()), "PutBatch", benchPuts(nil))
	})
	b.Run("ids", func(b *testing.B) {
		ids := benchPuts(func(i int) string { return "order-" + strconv.Itoa(i) })
		benchmarkHot(b, benchServer(b, benchNode()), "PutBatch", ids)
	})
}

func BenchmarkAckBatch(b *testing.B) {
	batch := &belfryv1.AckBatchRequest{RequestId: "r"}
	for i := range uint64(benchJobs) {
		batch.Leases = append(batch.Leases, wire.FormatLease(fsm.Ref{Queue: "bench", Serial: 1<<20 + i, Fence: 1<<21 + i}))
	}
	benchmarkHot(b, benchServer(b, benchNode()), "AckBatch", batch)
}

func BenchmarkReserveMany(b *testing.B) {
	req := &belfryv1.ReserveRequest{
		Queues: []string{"bench"}, MaxJobs: benchJobs, Ttr: durationpb.New(time.Minute), RequestId: "r",
	}
	benchmarkHot(b, benchServer(b, benchNode()), "Reserve", req)
}

// BenchmarkBytes is the same from bytes to bytes, without Connect.
func BenchmarkBytes(b *testing.B) {
	leases := &belfryv1.AckBatchRequest{RequestId: "r"}
	for i := range uint64(benchJobs) {
		leases.Leases = append(leases.Leases, wire.FormatLease(fsm.Ref{Queue: "bench", Serial: 1<<20 + i, Fence: 1<<21 + i}))
	}
	s := benchServer(b, benchNode()).handler.queues
	for _, c := range []struct {
		name    string
		request proto.Message
		call    func(ctx context.Context, request, dst []byte) ([]byte, error)
	}{
		{"put", benchPuts(nil), s.PutBatchBytes},
		{"reserve", &belfryv1.ReserveRequest{Queues: []string{"bench"}, MaxJobs: benchJobs}, s.ReserveBytes},
		{"ack", leases, s.AckBatchBytes},
	} {
		b.Run(c.name, func(b *testing.B) {
			_, body := binaryRequest(b, "", c.request)
			var answer []byte
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				var err error
				if answer, err = c.call(b.Context(), body, answer[:0]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N)/benchJobs, "cpu-ns/job")
		})
	}
}

// BenchmarkJobs puts jobs into a real node, takes them and acks them, a batch at a time, and
// reports the processor time of each of the three.
func BenchmarkJobs(b *testing.B) {
	n, err := node.Open(b.Context(),
		node.Config{Dir: b.TempDir(), Shards: 1, Logger: slog.New(slog.DiscardHandler), Fatal: func(err error) {
			b.Error(err)
		}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := n.Close(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
	}()
	s := benchServer(b, &soleNode{Node: n})
	puts := benchPuts(nil)
	puts.RequestId = "" // else only the first call would do something
	put, putBody := binaryRequest(b, "PutBatch", puts)
	reserve, reserveBody := binaryRequest(b, "Reserve", &belfryv1.ReserveRequest{
		Queues: []string{"bench"}, MaxJobs: benchJobs,
	})
	ack, _ := binaryRequest(b, "AckBatch", nil)
	var spent [3]time.Duration
	timed := func(phase int, r *http.Request, body []byte) *memoryResponse {
		before := processorTime(b)
		w := serveOnce(b, s, r, body)
		spent[phase] += processorTime(b) - before
		return w
	}
	for !n.Serves(0) {
		runtime.Gosched()
	}
	b.ReportAllocs()
	for b.Loop() {
		timed(0, put, putBody)
		taken, leases := &belfryv1.ReserveResponse{}, &belfryv1.AckBatchRequest{}
		if err := proto.Unmarshal(timed(1, reserve, reserveBody).body.Bytes(), taken); err != nil ||
			len(taken.GetJobs()) != benchJobs {
			b.Fatal(len(taken.GetJobs()), err)
		}
		for _, job := range taken.GetJobs() {
			leases.Leases = append(leases.Leases, job.GetLease())
		}
		body, err := proto.Marshal(leases)
		if err != nil {
			b.Fatal(err)
		}
		timed(2, ack, body)
	}
	for phase, name := range []string{"put", "reserve", "ack"} {
		b.ReportMetric(float64(spent[phase].Nanoseconds())/float64(b.N)/benchJobs, name+"-cpu-ns/job")
	}
}

// processorTime returns what this process has used so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
