package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/nodetest/pipetest"
)

// answering returns a listener whose first caller gets an answer to its greeting, and is then
// handed to behave.
func answering(t *testing.T, answer func(hello greeting) greeting, behave func(net.Conn)) *pipetest.Listener {
	t.Helper()
	l := pipetest.Listen("pipe")
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		hello, err := readGreeting(conn)
		if err != nil {
			t.Error(err)
			return
		}
		_ = writeGreeting(conn, answer(hello)) // the caller may hang up before all is said
		behave(inFrames(conn))
	}()
	return l
}

// always is the same answer to every greeting, but for a change.
func always(answer greeting, change func(*greeting)) func(greeting) greeting {
	change(&answer)
	return func(greeting) greeting { return answer }
}

func plentyOfRoom() uint64 { return 1 << 40 }

// member completes the configuration of server name.1 of a cluster.
func member(cfg Config, cluster, name string) Config {
	cfg.ClusterID, cfg.Self, cfg.Shards = cluster, name+".1", 1
	cfg.Room, cfg.Full, cfg.RaftLogger = plentyOfRoom, func() bool { return false }, hclog.NewNullLogger()
	if cfg.Resolve == nil {
		cfg.Resolve = func(serverID string) ([]string, error) {
			return nil, fmt.Errorf("no address is known for server %q", serverID)
		}
	}
	return cfg
}

// startMux returns a mux for server n1.1 of cluster c, listening on the returned listener, that
// ends with the test.
func startMux(t *testing.T) (*Mux, *pipetest.Listener) {
	t.Helper()
	l := pipetest.Listen("pipe")
	cfg := Config{Listener: l, Logger: slog.New(slog.DiscardHandler), Resolve: func(string) ([]string, error) {
		return []string{""}, nil
	}, Dial: l.Dial}
	m := New(member(cfg, "c", "n1"))
	t.Cleanup(m.Close)
	return m, l
}

// peerOf returns a mux for another server of the cluster, whose dials reach l.
func peerOf(t *testing.T, l *pipetest.Listener, cluster, name string) *Mux {
	t.Helper()
	cfg := Config{Logger: slog.New(slog.DiscardHandler), Dial: l.Dial, Resolve: func(string) ([]string, error) {
		return []string{""}, nil
	}}
	m := New(member(cfg, cluster, name))
	t.Cleanup(m.Close)
	return m
}

// echo answers every AppendEntries of a transport with its own term.
func echo(t *testing.T, trans *Transport) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		for {
			select {
			case rpc := <-trans.Consumer():
				req := rpc.Command.(*raft.AppendEntriesRequest)
				rpc.Respond(&raft.AppendEntriesResponse{Term: req.Term, Success: true}, nil)
			case <-done:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		if err := trans.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestTransportCarriesEachGroupToItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := startMux(t)
		for number, group := range []string{"shard-0", "shard-1"} {
			serve(t, m.Transport(group), func(rpc raft.RPC) {
				rpc.Respond(&raft.AppendEntriesResponse{Term: rpc.Command.(*raft.AppendEntriesRequest).Term,
					LastLog: uint64(number), Success: true}, nil)
			})
		}
		peer := peerOf(t, l, "c", "n2")
		for term, group := range []string{"shard-0", "shard-1"} {
			trans := peer.Transport(group)
			var resp raft.AppendEntriesResponse
			req := raft.AppendEntriesRequest{Term: uint64(term) + 7, PrevLogEntry: 1}
			if err := trans.AppendEntries("n1.1", "n1.1", &req, &resp); err != nil || resp.Term != uint64(term)+7 ||
				resp.LastLog != uint64(term) {
				t.Errorf("%s was asked, and this is the answer: %+v, %v", group, resp, err)
			}
			if got := trans.LocalAddr(); got != "n2.1" {
				t.Errorf("local address is %q, want the server id n2.1", got)
			}
			if err := trans.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestTransportRefusesHandshakes(t *testing.T) {
	good := greeting{version: protocolVersion, cluster: "c", group: "shard-0", sender: "n2.1", receiver: "n1.1"}
	tests := []struct {
		name   string
		change func(*greeting)
		want   verdict
	}{
		{"good", func(*greeting) {}, accepted},
		{"another cluster", func(g *greeting) { g.cluster = "d" }, refusedCluster},
		{"wrong receiver", func(g *greeting) { g.receiver = "n1.2" }, refusedReceiver},
		{"own id as sender", func(g *greeting) { g.sender = "n1.1" }, refusedSender},
		{"no sender", func(g *greeting) { g.sender = "" }, refusedSender},
		{"wrong group", func(g *greeting) { g.group = "shard-9" }, refusedGroup},
		{"earlier version", func(g *greeting) { g.version = 1 }, refusedVersion},
		{"later version", func(g *greeting) { g.version = 3 }, refusedVersion},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, l := startMux(t)
				echo(t, m.Transport("shard-0"))
				hello := good
				tt.change(&hello)
				conn, err := l.Dial(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				go func() { _ = writeGreeting(conn, hello) }() // a later version is hung up on before it has said all
				reply, err := readGreeting(conn)
				if err != nil || reply.verdict != tt.want {
					t.Fatalf("verdict is %q, %v, want %q", reply.verdict, err, tt.want)
				}
				if tt.want == accepted {
					return
				}
				if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Errorf("after a refusal reading gives %v, want the end of the connection", err)
				}
			})
		})
	}
}

func TestTransportHangsUpOnStrangers(t *testing.T) {
	tests := []struct {
		name string
		send []byte
	}{
		{"silence", nil},
		{"garbage", []byte("GET / HTTP/1.1\r\nHost: belfry\r\n\r\n")},
		{"half a greeting", []byte("BLFY\x02\x00\x05abc")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, l := startMux(t)
				echo(t, m.Transport("shard-0"))
				conn, err := l.Dial(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				go func() { _, _ = conn.Write(tt.send) }() // may be cut off
				start := time.Now()
				if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Errorf("reading gives %v, want the end of the connection", err)
				}
				if waited := time.Since(start); waited > handshakeTimeout {
					t.Errorf("the stranger was kept for %v, want at most %v", waited, handshakeTimeout)
				}
			})
		})
	}
}

// TestSilenceKeepsNobodyOut: of more connections than there are handshakes at one time those that
// have been silent for longest end, and a peer that comes then is answered at once.
func TestSilenceKeepsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := startMux(t)
		m.open(callsGroup)
		var silent []net.Conn
		for range handshakesMax + 12 {
			conn, err := l.Dial(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			silent = append(silent, conn)
		}
		start := time.Now()
		conn, err := peerOf(t, l, "c", "n2").connect(t.Context(), callsGroup, "n1.1")
		if err != nil || time.Since(start) != 0 {
			t.Fatalf("a peer among the silent: %v after %v", err, time.Since(start))
		}
		defer conn.Close()
		for i, conn := range silent {
			_, err := conn.Read(make([]byte, 1))
			if !errors.Is(err, io.EOF) || (time.Since(start) == 0) != (i <= 12) {
				t.Fatalf("silent connection %d ends with %v after %v; the first 13 are to end at once", i, err, time.Since(start))
			}
		}
	})
}

func TestDiallerRefusesAnswers(t *testing.T) {
	good := greeting{version: protocolVersion, cluster: "c", group: "shard-0", sender: "n1.1", receiver: "n2.1"}
	tests := []struct {
		name    string
		change  func(*greeting)
		problem string
	}{
		{"good", func(*greeting) {}, ""},
		{"refused", func(g *greeting) { g.verdict = refusedGroup }, "no such group here"},
		{"another cluster", func(g *greeting) { g.cluster = "d" }, "the answer is"},
		{"another server", func(g *greeting) { g.sender = "n1.2" }, "the answer is"},
		{"another group", func(g *greeting) { g.group = "shard-1" }, "the answer is"},
		{"meant for another", func(g *greeting) { g.receiver = "n3.1" }, "the answer is"},
		{"another version", func(g *greeting) { g.version = 9 }, "the answer is version 9"},
		{"refused by an earlier version", func(g *greeting) { g.version, g.verdict = 1, refusedVersion },
			"another protocol version: by version 1, this program speaks 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := answering(t, always(good, tt.change), func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
				conn, err := peerOf(t, l, "c", "n2").connect(t.Context(), "shard-0", "n1.1")
				if err == nil {
					conn.Close()
				}
				if tt.problem == "" && err != nil || tt.problem != "" &&
					(err == nil || !strings.Contains(err.Error(), tt.problem)) {
					t.Errorf("error is %v, want one that says %q", err, tt.problem)
				}
			})
		})
	}
}

func TestDiallerGivesUpOnASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipetest.Listen("pipe")
		go func() { _, _ = l.Accept() }()
		start := time.Now()
		_, err := peerOf(t, l, "c", "n2").connect(t.Context(), "shard-0", "n1.1")
		if err == nil || time.Since(start) > handshakeTimeout {
			t.Errorf("after %v the error is %v", time.Since(start), err)
		}
	})
}

func TestDiallerWithoutAddress(t *testing.T) {
	m := New(member(Config{Logger: slog.New(slog.DiscardHandler)}, "c", "n2"))
	defer m.Close()
	if _, err := m.connect(t.Context(), "shard-0", "n9.1"); err == nil || !strings.Contains(err.Error(), `"n9.1"`) {
		t.Errorf("error is %v, want one that names the server", err)
	}
}

func TestGreetingRoundTrip(t *testing.T) {
	want := greeting{version: protocolVersion, verdict: refusedGroup, cluster: "c",
		group: strings.Repeat("g", greetingText), sender: "s", receiver: ""}
	var buf bytes.Buffer
	if err := writeGreeting(&buf, want); err != nil {
		t.Fatal(err)
	}
	buf.WriteString("rest")
	got, err := readGreeting(&buf)
	if err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if buf.String() != "rest" {
		t.Errorf("reading a greeting left %q, want what followed it", buf.String())
	}
	want.group += "g"
	if err := writeGreeting(&buf, want); err == nil {
		t.Error("a name of 256 bytes was sent")
	}
}

func FuzzReadGreeting(f *testing.F) {
	var buf bytes.Buffer
	if err := writeGreeting(&buf, greeting{version: protocolVersion, cluster: "c", group: "g", sender: "s",
		receiver: "r"}); err != nil {
		f.Fatal(err)
	}
	f.Add(buf.Bytes())
	f.Add([]byte("BLFY"))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := readGreeting(bytes.NewReader(data))
		if err != nil || g.version != protocolVersion {
			return
		}
		var out bytes.Buffer
		if err := writeGreeting(&out, g); err != nil || !bytes.HasPrefix(data, out.Bytes()) {
			t.Errorf("%q reads as %v, which is written as %q (%v)", data, g, out.Bytes(), err)
		}
	})
}

// countingHandler counts the messages that are logged.
type countingHandler struct {
	slog.Handler
	logged, warnings atomic.Int64
}

func (h *countingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *countingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h *countingHandler) Handle(_ context.Context, r slog.Record) error {
	h.logged.Add(1)
	if r.Level >= slog.LevelWarn {
		h.warnings.Add(1)
	}
	return nil
}

// If the listener is closed before the Mux, nothing is logged.
func TestClosedListenerIsNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, counts := pipetest.Listen("pipe"), &countingHandler{Handler: slog.DiscardHandler}
		m := New(member(Config{Logger: slog.New(counts), Listener: listener}, "c", "n"))
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		m.Close()
		if n := counts.logged.Load(); n != 0 {
			t.Errorf("%d messages were logged", n)
		}
	})
}
