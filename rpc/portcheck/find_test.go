package portcheck

import (
	"context"
	"net"
	"strings"
	"testing"
)

// TestPortOfAServerThatStarts: of a server that answered nothing a moment ago, and does now, is not
// said that it does not speak HTTP. A call to it may have been carried out.
func TestPortOfAServerThatStarts(t *testing.T) {
	noNode := Probes{
		Peer:   func(context.Context, string) (string, bool) { return "", false },
		Gossip: func(context.Context, string) bool { return false },
	}
	for answer, want := range map[string]Kind{"HTTP/1.0 200 OK\r\n\r\n": Silent, "HT": Silent, "SSH-2.0-x\r\n": Other} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				request := make([]byte, 1024)
				n, _ := conn.Read(request)
				if strings.Contains(string(request[:n]), "HTTP/1.0") { // the last question
					conn.Write([]byte(answer)) //nolint:errcheck // the reader sees
				}
				conn.Close()
			}
		}()
		if got := noNode.Find(t.Context(), l.Addr().String()); got.Kind != want {
			t.Errorf("where %q comes last: %+v, want %d", answer, got, want)
		}
	}
}
