package client

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// TestSessionsHaveTheirOwnTLS: a session is asked for while the first call goes by Connect, which
// has the transport change the settings that it has.
func TestSessionsHaveTheirOwnTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	for range 20 {
		c, err := New(server.URL, WithTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}))
		if err != nil {
			t.Fatal(err)
		}
		endpoint := inUse(c)
		var both sync.WaitGroup
		both.Go(func() {
			conn, err := endpoint.sessions.Connect(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
		})
		both.Go(func() {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
			if err != nil {
				t.Error(err)
				return
			}
			response, err := c.idle.(*http.Transport).RoundTrip(request)
			if err != nil {
				t.Error(err)
				return
			}
			_ = response.Body.Close()
		})
		both.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
