package client

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// A sink answers as a server would that takes no time: what a benchmark at it measures is the
// client, plus the server's side of the protocol.
type sink struct {
	belfryv1connect.UnimplementedQueueServiceHandler
	mu     sync.Mutex
	serial uint64
	calls  int
}

func (s *sink) take(n int) (first uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = s.serial
	s.serial += uint64(n)
	s.calls++
	return first
}

func (s *sink) PutBatch(_ context.Context, req *belfryv1.PutBatchRequest) (*belfryv1.PutBatchResponse, error) {
	first := s.take(len(req.GetJobs()))
	now := timestamppb.Now()
	res := &belfryv1.PutBatchResponse{Results: make([]*belfryv1.PutBatchResult, len(req.GetJobs()))}
	for i := range res.GetResults() {
		res.Results[i] = &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Put{Put: &belfryv1.PutResponse{
			Id: "0-" + strconv.FormatUint(first+uint64(i), 10), DueAt: now, Created: true,
			State: belfryv1.JobState_JOB_STATE_READY, Witness: &belfryv1.Witness{
				Shard: 1, Term: 2, Index: first, Entry: uint32(i), Time: now,
			},
		}}}
	}
	return res, nil
}

func (s *sink) Reserve(_ context.Context, req *belfryv1.ReserveRequest) (*belfryv1.ReserveResponse, error) {
	n := int(req.GetMaxJobs())
	first := s.take(n)
	now := timestamppb.Now()
	until := timestamppb.New(now.AsTime().Add(30 * time.Second))
	body := make([]byte, 100)
	res := &belfryv1.ReserveResponse{Jobs: make([]*belfryv1.Job, n)}
	for i := range res.GetJobs() {
		id := strconv.FormatUint(first+uint64(i), 10)
		res.Jobs[i] = &belfryv1.Job{
			Queue: "orders", Id: "0-" + id, Lease: "AQZvcmRlcnMAgICAgICAgICAgICAgICAgICAgICA" + id, Fence: first, Attempt: 1,
			DueAt: now, LeaseUntil: until, Body: &belfryv1.Job_Data{Data: body}, State: belfryv1.JobState_JOB_STATE_RESERVED,
			Ttr: durationpb.New(30 * time.Second), MaxAttempts: 16, CreatedAt: now, FirstDueAt: now, BodyBytes: 100,
			Witness: &belfryv1.Witness{Shard: 1, Term: 2, Index: first, Entry: uint32(i), Time: now},
		}
	}
	return res, nil
}

func (s *sink) AckBatch(_ context.Context, req *belfryv1.AckBatchRequest) (*belfryv1.AckBatchResponse, error) {
	first := s.take(len(req.GetLeases()))
	now := timestamppb.Now()
	res := &belfryv1.AckBatchResponse{Results: make([]*belfryv1.AckBatchResult, len(req.GetLeases()))}
	for i := range res.GetResults() {
		res.Results[i] = &belfryv1.AckBatchResult{Result: &belfryv1.AckBatchResult_Ack{
			Ack: &belfryv1.AckResponse{Witness: &belfryv1.Witness{Shard: 1, Term: 2, Index: first, Entry: uint32(i), Time: now}},
		}}
	}
	return res, nil
}

// serveSocket serves h at a loopback port and makes a client for it.
func serveSocket(tb testing.TB, h http.Handler, opts ...Option) *Client {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	server := &http.Server{
		Handler: h, Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 4096},
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	tb.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	c, err := New(l.Addr().String(), opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// benchCallers runs op from a number of concurrent callers, and reports the CPU of client and
// server side together.
func benchCallers(b *testing.B, callers int, op func(c *Client) error) {
	for _, inFlight := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("callers=%d/inflight=%d", callers, inFlight), func(b *testing.B) {
			s := &sink{}
			mux := http.NewServeMux()
			mux.Handle(belfryv1connect.NewQueueServiceHandler(s))
			c := serveSocket(b, mux, Coalescing{InFlight: inFlight})
			b.ReportAllocs()
			before := cpuTime(b)
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					for n := i; n < b.N; n += callers {
						if err := op(c); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
			b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(b.N)/float64(s.calls), "ops/call")
		})
	}
}

// cpuTime is what this process has used so far.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkPut puts jobs of 100 bytes by single calls.
func BenchmarkPut(b *testing.B) {
	body := make([]byte, 100)
	put := func(c *Client) error {
		_, err := c.Put(b.Context(), "orders", body, In(time.Minute))
		return err
	}
	benchCallers(b, 512, put)
	benchCallers(b, 64, put)
	benchCallers(b, 1, put)
}

// BenchmarkReserveAck reserves and acks jobs of 100 bytes one by one.
func BenchmarkReserveAck(b *testing.B) {
	benchCallers(b, 512, func(c *Client) error {
		jobs, err := c.Reserve(b.Context(), ReserveOptions{Queues: []string{"orders"}, Wait: time.Second})
		if err != nil {
			return err
		}
		return jobs[0].Ack(b.Context())
	})
}
