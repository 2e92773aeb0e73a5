package rpc

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// BenchmarkListQueues is a page of 1,000 of 10,000 queues, with 100 jobs each, as the dashboard reads
// it.
func BenchmarkListQueues(b *testing.B) {
	const queues, jobs, page = 10_000, 100, 1000
	s, err := newTestServer(Config{
		Node: backendtest.NewNode(node.DefaultShards), Catalog: backendtest.NewCatalog(),
		Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Now: time.Now,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Drain)
	call := func(path string, request, answer proto.Message) {
		body, err := proto.Marshal(request)
		if err != nil {
			b.Fatal(err)
		}
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://belfry/v1/"+path, bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/proto")
		res, err := inProcess{s.Handler()}.RoundTrip(r)
		if err != nil {
			b.Fatal(err)
		}
		var got bytes.Buffer
		if _, err := got.ReadFrom(res.Body); err != nil || res.StatusCode != http.StatusOK || res.Body.Close() != nil {
			b.Fatal(res.StatusCode, err)
		}
		if err := proto.Unmarshal(got.Bytes(), answer); err != nil {
			b.Fatal(err)
		}
	}
	for first := 0; first < queues*jobs; first += 1000 {
		batch := &belfryv1.PutBatchRequest{}
		for i := first; i < first+1000; i++ {
			delay := durationpb.New(time.Duration(i%jobs) * 8 * time.Hour)
			batch.Jobs = append(batch.Jobs, &belfryv1.PutRequest{Queue: fmt.Sprintf("queue-%05d", i/jobs),
				When: &belfryv1.PutRequest_Delay{Delay: delay}})
		}
		call("put-batch", batch, &belfryv1.PutBatchResponse{})
	}
	b.ReportAllocs()
	for b.Loop() {
		list := &belfryv1.ListQueuesResponse{}
		call("list-queues", &belfryv1.ListQueuesRequest{PageSize: page}, list)
		if len(list.Queues) != page || list.NextPageToken == "" {
			b.Fatal(len(list.Queues))
		}
	}
}
