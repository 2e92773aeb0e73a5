package rpc

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/wire"
)

// BenchmarkPut is one put of 100 bytes through the whole edge, without a socket.
func BenchmarkPut(b *testing.B) {
	s, err := newTestServer(Config{
		Node: benchNode(), Catalog: backendtest.NewCatalog(), Logger: slog.New(slog.DiscardHandler),
		Registry: prometheus.NewRegistry(), Now: time.Now,
	})
	if err != nil {
		b.Fatal(err)
	}
	put := &belfryv1.PutRequest{Queue: "bench", Body: &belfryv1.PutRequest_Data{Data: bytes.Repeat([]byte("x"), 100)}}
	binary, err := proto.Marshal(put)
	if err != nil {
		b.Fatal(err)
	}
	text, err := codec.JSON().Marshal(put)
	if err != nil {
		b.Fatal(err)
	}
	lenient := bytes.Replace(text, []byte(`{"queue"`), []byte(`{"delay":"5m","queue"`), 1)
	for _, c := range []struct {
		name, path, kind string
		body             []byte
	}{
		{"proto", "/belfry.v1.QueueService/Put", "application/proto", binary},
		{"json", "/v1/put", "application/json", text},
		{"json-lenient", "/v1/put", "", lenient},
		{"raw", "/q/bench", "", bytes.Repeat([]byte("x"), 100)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, c.path, bytes.NewReader(c.body))
				r.Header.Set("Content-Type", c.kind)
				w := httptest.NewRecorder()
				s.Handler().ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}

// BenchmarkLease is a token there and back.
func BenchmarkLease(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.ParseLease(wire.FormatLease(fsm.Ref{
			Queue: "orders", Serial: 1 << 40, Fence: 1 << 41,
		})); err != nil {
			b.Fatal(err)
		}
	}
}
