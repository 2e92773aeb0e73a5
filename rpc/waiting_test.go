package rpc

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestWaitingHandler answers everything but /livez with what is waited for, in the form of the
// request.
func TestWaitingHandler(t *testing.T) {
	const why = "no node that was seen has a cluster"
	h := NewWaitingHandler("n1", slog.New(slog.DiscardHandler), func() string { return why })
	for _, test := range []struct {
		method, path, kind string
		status             int
		answer             string // content type
	}{
		{http.MethodPost, "/v1/put", "", http.StatusServiceUnavailable, "application/json"},
		{http.MethodPost, "/v1/put", "application/x-www-form-urlencoded", http.StatusServiceUnavailable, "application/json"},
		{http.MethodPost, "/belfry.v1.QueueService/Put", "application/proto", http.StatusServiceUnavailable,
			"application/json"},
		{http.MethodPost, "/belfry.v1.QueueService/Work", "application/connect+json", http.StatusOK,
			"application/connect+json"},
		{http.MethodPost, "/q/orders", "application/grpc", http.StatusServiceUnavailable, "application/json"},
		{http.MethodGet, "/q/orders?wait=20s", "", http.StatusServiceUnavailable, "application/json"},
		{http.MethodGet, "/metrics", "", http.StatusServiceUnavailable, "application/json"},
		{http.MethodGet, "/readyz", "", http.StatusServiceUnavailable, "text/plain; charset=utf-8"},
		// it knows no checks yet
		{http.MethodGet, "/readyz?verbose&exclude=shard-9", "", http.StatusServiceUnavailable, "text/plain; charset=utf-8"},
		{http.MethodGet, "/livez", "", http.StatusOK, "text/plain; charset=utf-8"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), test.method, test.path, strings.NewReader("{}"))
		r.Header.Set("Content-Type", test.kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		body := w.Body.String()
		if w.Code != test.status || w.Header().Get("Content-Type") != test.answer ||
			w.Header().Get("Belfry-Served-By") != "n1" {
			t.Errorf("%s %s: %d %v %s", test.method, test.path, w.Code, w.Header(), body)
		}
		if strings.Contains(body, why) != (test.path != "/livez") || !strings.HasSuffix(body, "\n") &&
			test.status != http.StatusOK {
			t.Errorf("%s %s: %q", test.method, test.path, body)
		}
		if test.answer == "application/json" &&
			(!json.Valid([]byte(body)) || !strings.Contains(body, "NO_LEADER") || !strings.Contains(body, `"unavailable"`)) {
			t.Errorf("%s %s: %s", test.method, test.path, body)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/belfry.v1.QueueService/Put", http.NoBody)
	r.Header.Set("Content-Type", "application/grpc")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if got := w.Result(); got.Trailer.Get("Grpc-Status") != "14" && got.Header.Get("Grpc-Status") != "14" {
		t.Errorf("gRPC: %v, trailer %v", got.Header, got.Trailer)
	}
}
