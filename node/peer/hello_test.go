package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/nodetest/pipetest"
	"github.com/google/go-cmp/cmp"
)

func TestCallsNameWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := startMux(t)
		b := peerOf(t, l, "c", "n2")
		fails := func(from *Mux, server, want string) {
			t.Helper()
			if _, err := from.DialPeer(t.Context(), server); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a call to %s ends with %v, want %q", server, err, want)
			}
		}
		fails(b, "n1.1", "no such group here")
		calls := m.Listen()
		fails(b, "n1.0", "meant for another server")
		fails(peerOf(t, l, "d", "n2"), "n1.1", "another cluster")
		if err := calls.Close(); err != nil {
			t.Error(err)
		}
		fails(b, "n1.1", "no such group here")
	})
}

func TestPeerConnKeepsDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := startMux(t)
		calls := m.Listen()
		near, err := peerOf(t, l, "c", "n2").DialPeer(t.Context(), "n1.1")
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		far, err := calls.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		if name := far.(*Conn).Peer(); name != "n2.1" {
			t.Errorf("the caller is %q", name)
		}
		time.Sleep(time.Hour) // that of the handshake is gone
		for _, conn := range []net.Conn{near, far} {
			start := time.Now()
			if err := conn.SetDeadline(start.Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			_, err := conn.Read(make([]byte, 1))
			if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
				t.Errorf("after %v reading gave %v", time.Since(start), err)
			}
			if _, err := conn.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("writing gave %v", err)
			}
		}
	})
}

func TestDialPeerEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipetest.Listen("pipe")
		go func() { _, _ = l.Accept() }() // and says nothing
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := peerOf(t, l, "c", "n2").connect(ctx, callsGroup, "n1.1")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("after %v the error is %v", time.Since(start), err)
		}
	})
}

func TestHandoverThatNobodyTakesFreesTheHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := startMux(t)
		m.open(callsGroup)
		conn, err := peerOf(t, l, "c", "n2").connect(t.Context(), callsGroup, "n1.1")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("reading gives %v", err)
		}
		synctest.Wait() // the slot is given back after the connection has ended
		if m.handshakes.InUse() != 0 {
			t.Errorf("%d handshakes are under way", m.handshakes.InUse())
		}
	})
}

func TestHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := startMux(t)
		m.cfg.Shards = 6
		got, err := Hello(t.Context(), l.Dial, "")
		if diff := cmp.Diff(Introduction{ClusterID: "c", ServerID: "n1.1", Shards: 6, Format: fsm.FirstFormat},
			got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		synctest.Wait()
		if len(m.conns) != 0 || m.handshakes.InUse() != 0 {
			t.Errorf("the question left %d connections and %d handshakes", len(m.conns), m.handshakes.InUse())
		}
	})
}

// A stranger gets an introduction and nothing else, whatever else it says.
func TestStrangerGetsNothingElse(t *testing.T) {
	stranger := greeting{version: protocolVersion, group: helloGroup}
	tests := []struct {
		name   string
		change func(*greeting)
		want   verdict
	}{
		{"hello", func(*greeting) {}, accepted},
		{"hello with a name", func(g *greeting) { g.sender = "x.1" }, accepted},
		{"a group", func(g *greeting) { g.group = "shard-0" }, refusedCluster},
		{"calls", func(g *greeting) { g.group = callsGroup }, refusedCluster},
		{"a receiver", func(g *greeting) { g.receiver = "n1.1" }, refusedCluster},
		{"another cluster", func(g *greeting) { g.cluster = "d" }, refusedCluster},
		{"a member that says hello to its group", func(g *greeting) { g.cluster, g.sender, g.receiver = "c", "n2.1", "n1.1" },
			refusedGroup},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, l := startMux(t)
				m.open("shard-0")
				m.open(callsGroup)
				conn, err := l.Dial(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				hello := stranger
				tt.change(&hello)
				go func() {
					_ = writeGreeting(conn, hello)
					_, _ = conn.Write([]byte("more")) // it is not read
				}()
				reply, err := readGreeting(conn)
				if err != nil || reply.verdict != tt.want {
					t.Fatalf("verdict is %q, %v, want %q", reply.verdict, err, tt.want)
				}
				rest, err := io.ReadAll(conn)
				if wantRest := map[verdict]int{accepted: frameHead + 3}[tt.want]; err != nil || len(rest) != wantRest {
					t.Errorf("then came %d bytes, %v, want %d and the end", len(rest), err, wantRest)
				}
			})
		})
	}
}

func TestHelloIsNotMisled(t *testing.T) {
	good := greeting{version: protocolVersion, cluster: "c", group: helloGroup, sender: "n1.1"}
	tests := []struct {
		name    string
		change  func(*greeting)
		rest    string
		problem string
	}{
		{"good", func(*greeting) {}, "\x00\x06\x01", ""},
		{"refused", func(g *greeting) { g.verdict = refusedCluster }, "", "another cluster"},
		{"a later version", func(g *greeting) { g.version = 3 }, "", "version 3"},
		{"another group", func(g *greeting) { g.group = "shard-0" }, "\x00\x06\x01", "makes no sense"},
		{"no shards", func(*greeting) {}, "\x00\x00\x01", "makes no sense"},
		{"no format", func(*greeting) {}, "\x00\x06\x00", "makes no sense"},
		{"a later format", func(*greeting) {}, "\x00\x06\xff", ""}, // the caller decides
		{"half an answer", func(*greeting) {}, "\x00", "number of shards"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := answering(t, always(good, tt.change), func(conn net.Conn) { _, _ = conn.Write([]byte(tt.rest)) })
				_, err := Hello(t.Context(), l.Dial, "somewhere")
				if tt.problem == "" && err != nil || tt.problem != "" &&
					(err == nil || !strings.Contains(err.Error(), tt.problem)) {
					t.Errorf("error is %v, want one that says %q", err, tt.problem)
				}
			})
		})
	}
}

func TestHelloToASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipetest.Listen("pipe")
		go func() { _, _ = l.Accept() }()
		start := time.Now()
		if _, err := Hello(t.Context(), l.Dial, "somewhere"); !errors.Is(err, os.ErrDeadlineExceeded) ||
			time.Since(start) != handshakeTimeout {
			t.Errorf("after %v the error is %v", time.Since(start), err)
		}
	})
}

// A peer that keeps connecting ends only its own oldest connections.
func TestConnectionsPerPeerAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := startMux(t)
		s := m.open(callsGroup)
		go func() {
			for {
				if _, err := s.next(); err != nil {
					return
				}
			}
		}()
		other, err := peerOf(t, l, "c", "n3").connect(t.Context(), callsGroup, "n1.1")
		if err != nil {
			t.Fatal(err)
		}
		peer := peerOf(t, l, "c", "n2")
		var conns []*framedConn
		for range 3 * connsPeerMax {
			conn, err := peer.connect(t.Context(), callsGroup, "n1.1")
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if got := len(m.conns); got != connsPeerMax+1 {
			t.Errorf("%d connections are open, want %d and the other peer's", got, connsPeerMax)
		}
		for i, conn := range append(conns, other) {
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond)) // fails if the connection was ended
			_, err := conn.Read(make([]byte, 1))
			if open := errors.Is(err, os.ErrDeadlineExceeded); open != (i >= len(conns)-connsPeerMax) {
				t.Errorf("connection %d of %d: %v", i, len(conns), err)
			}
		}
	})
}

func TestConnectionsPerStreamAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := startMux(t)
		s := m.open(callsGroup)
		go func() {
			for {
				if _, err := s.next(); err != nil {
					return
				}
			}
		}()
		for i := range connsStreamMax {
			if _, err := peerOf(t, l, "c", fmt.Sprintf("x%d", i)).connect(t.Context(), callsGroup, "n1.1"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		_, err := peerOf(t, l, "c", "n2").connect(t.Context(), callsGroup, "n1.1")
		if err == nil || !strings.Contains(err.Error(), "too many connections") {
			t.Errorf("one connection too many: %v", err)
		}
		if _, err := peerOf(t, l, "c", "x7").connect(t.Context(), callsGroup, "n1.1"); err == nil {
			t.Error("a known peer got a connection above the bound of the stream")
		}
	})
}
