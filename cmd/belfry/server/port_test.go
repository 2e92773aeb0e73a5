package server

import (
	"strings"
	"testing"
)

// TestPortOfAServerThatStarts: of a server that answered nothing a moment ago, and does now, is not
// said that it does not speak HTTP. A call to it may have been carried out.
func TestPortOfAServerThatStarts(t *testing.T) {
	for answer, want := range map[string]PortKind{
		"HTTP/1.0 200 OK\r\n\r\n": PortSilent, "HT": PortSilent, "SSH-2.0-x\r\n": PortOther,
	} {
		l := listening(t)
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
		if got := FindPort(t.Context(), l.Addr().String()); got.Kind != want {
			t.Errorf("where %q comes last: %+v, want %d", answer, got, want)
		}
	}
}
