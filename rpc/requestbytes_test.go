package rpc

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/stream"
)

// wantRequestBytes fails the test unless the metrics have so many requests of a procedure with so
// many bytes.
func wantRequestBytes(t *testing.T, page, procedure string, requests, bytes int) {
	t.Helper()
	for suffix, n := range map[string]int{"count": requests, "sum": bytes} {
		if line := fmt.Sprintf("belfry_request_bytes_%s{procedure=%q} %d\n", suffix, procedure, n); !strings.Contains(page,
			line) {
			t.Errorf("%q is not in the metrics", line)
		}
	}
}

// TestRequestsAreMeasured: by what they take on the wire, refused or not; what asks for no
// procedure is not.
func TestRequestsAreMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := serve(t, func(c *Config) { c.Registry = registry })
	put, bad, raw := `{"queue":"a"}`, `{"queue":"a","delay":"-1s"}`, "seven b"
	s.post("/v1/put", put)
	s.post(belfryv1connect.QueueServicePutProcedure, bad)
	s.post("/q/a", raw)
	s.post("/v1/list", "")
	s.post("/no/such/path", put)
	page := s.send("GET", "/metrics", "").body
	wantRequestBytes(t, page, belfryv1connect.QueueServicePutProcedure, 2, len(put)+len(bad))
	wantRequestBytes(t, page, rawPrefix, 1, len(raw))
	if got := strings.Count(page, "belfry_request_bytes_count{"); got != 2 {
		t.Errorf("%d procedures are measured", got)
	}

	w := s.work(s.workClients()["Connect"], 1, "a")
	opening := credits(1)
	opening.Credits.Ttr = durationpb.New(time.Minute)
	w.receive() // a job of those above: the message was read
	wantRequestBytes(t, s.send("GET", "/metrics", "").body, belfryv1connect.QueueServiceWorkProcedure, 1,
		len(framed(t, opening)))
	if err := w.end(); err != nil {
		t.Error(err)
	}
}

// TestRequestsOfSessionsAreMeasured like all others.
func TestRequestsOfSessionsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		var answer belfryv1.PutBatchResponse
		k.call(1, stream.PutBatch, putIn("q"))
		k.answer(1, &answer)
		families, err := k.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var sum float64
		for _, family := range families {
			if family.GetName() == "belfry_request_bytes" && len(family.GetMetric()) == 1 {
				sum = family.GetMetric()[0].GetHistogram().GetSampleSum()
			}
		}
		if want := proto.Size(putIn("q")); int(sum) != want {
			t.Errorf("%v bytes were measured, want %d", sum, want)
		}
	})
}
