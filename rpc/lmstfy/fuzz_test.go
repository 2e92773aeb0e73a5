package lmstfy

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// FuzzHandler: no request makes the handler panic, and each answer has a status of the protocol and,
// unless it is empty, JSON. No call names a queue of another namespace.
func FuzzHandler(f *testing.F) {
	for _, path := range []string{
		"/api/ns/q", "/api/ns/q/bulk", "/api/ns/q/job/0-1", "/api/ns/q/peek", "/api/ns/q/size", "/api/ns/a,b",
		"/api/ns/q/deadletter", "/api/ns/q/deadletter/size", "/token/ns", "/token/ns/t", "/info", "/api//../x",
	} {
		f.Add("PUT", path, "delay=1&ttl=2&tries=3&limit=4", "[1]", "t")
		f.Add("GET", path, "ttr=1&timeout=2&count=3", "", "default:t")
		f.Add("DELETE", path, "limit=%zz", "", "p:t")
		f.Add("POST", path, "description=x&token=y", "description=z", "")
	}
	f.Fuzz(func(t *testing.T, method, path, query, body, token string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", strings.NewReader(body))
		r.Method, r.URL = method, &url.URL{Path: path, RawQuery: query}
		r.Header = http.Header{"X-Token": {token}, "Enable-Job-Version": {"YES"}, "Job-Attr-A": {token}}
		s := newServices()
		w := httptest.NewRecorder()
		s.handler(t).ServeHTTP(w, r)
		switch w.Code {
		case 200, 201, 400, 404, 413, 501:
			if !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s %q: %d %q", method, path, w.Code, w.Body)
			}
		case 204:
			if w.Body.Len() > 0 {
				t.Errorf("%s %q: %d %q", method, path, w.Code, w.Body)
			}
		case 301, 307, 308: // the path was not clean
		default:
			t.Errorf("%s %q: %d %q", method, path, w.Code, w.Body)
		}
		checkNamespaces(t, path, s.calls)
	})
}

// checkNamespaces checks that calls are about queues of the namespace in the path.
func checkNamespaces(t *testing.T, path string, calls []any) {
	t.Helper()
	for _, call := range calls {
		named, ok := call.(interface{ GetQueue() string })
		if !ok {
			continue
		}
		namespace, queue, _ := strings.Cut(named.GetQueue(), "/")
		if !strings.HasPrefix(path, "/api/"+namespace+"/") || !isName(namespace) || !isName(queue) {
			t.Errorf("%q calls for %q", path, named.GetQueue())
		}
	}
}
