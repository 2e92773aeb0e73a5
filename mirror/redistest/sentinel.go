package redistest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"testing"
)

// sentinelName is what a Sentinel calls its primary.
const sentinelName = "primary"

// Sentinel starts a Sentinel that watches the server and alone decides that another is the primary,
// once the server was silent for a second. It returns when the Sentinel knows the server's
// replicas, of which there must be one, and the URL under which clients find the primary.
func (s *Server) Sentinel(t testing.TB) (*Server, string) {
	t.Helper()
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	sentinel := prepare(t)
	sentinel.settings.sentinel = true
	text := fmt.Sprintf("sentinel monitor %s %s %s 1\nsentinel down-after-milliseconds %[1]s 1000\nsentinel "+
		"failover-timeout %[1]s 10000\n", sentinelName, host, port)
	if err := os.WriteFile(sentinel.file("sentinel"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel.start()
	err = sentinel.await("it knows a replica", func(ctx context.Context) error {
		found, err := sentinel.client.Do(ctx, "SENTINEL", "REPLICAS", sentinelName).Slice()
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("it knows none")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sentinel, (&url.URL{Scheme: "redis+sentinel", Host: sentinel.address, RawQuery: "master_name=" +
		sentinelName}).String()
}

// Primary waits until the Sentinel says that another server than this one is the primary.
func (s *Server) Primary(is *Server) {
	s.t.Helper()
	err := s.await("it has made "+is.address+" the primary", func(ctx context.Context) error {
		at, err := s.client.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinelName).StringSlice()
		if err == nil && net.JoinHostPort(at[0], at[1]) != is.address {
			err = fmt.Errorf("it is %s", at)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}
