package peer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node/nodetest/pipetest"
)

// provenConn is a connection whose other end has proved a name.
type provenConn struct {
	net.Conn
	name string
}

func (c *provenConn) Proven() string { return c.name }

// provingListener accepts connections of nodes that proved one name.
type provingListener struct {
	*pipetest.Listener
	name string
}

func (l *provingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &provenConn{conn, l.name}, nil
}

// TestPeersAreHeldToTheirProof: a peer that proved to be one node cannot speak for another.
func TestPeersAreHeldToTheirProof(t *testing.T) {
	for _, test := range []struct {
		proven string
		want   verdict
	}{{"n2", accepted}, {"n3", refusedProof}, {"n2.1", refusedProof}, {"", refusedProof}} {
		synctest.Test(t, func(t *testing.T) {
			l := &provingListener{pipetest.Listen("pipe"), test.proven}
			m := New(member(Config{Logger: slog.New(slog.DiscardHandler), Listener: l}, "c", "n1"))
			defer m.Close()
			trans := m.Transport("shard-0")
			defer trans.Close()
			conn, err := l.Dial(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			go func() {
				_ = writeGreeting(conn, greeting{version: protocolVersion, cluster: "c", group: "shard-0", sender: "n2.1",
					receiver: "n1.1"})
			}()
			if reply, err := readGreeting(conn); err != nil || reply.verdict != test.want {
				t.Errorf("n2.1 with the proof of %q: %q, %v; want %q", test.proven, reply.verdict, err, test.want)
			}
		})
	}
}

// TestDialIsHeldToItsProof: a server that proves to be another one is not greeted.
func TestDialIsHeldToItsProof(t *testing.T) {
	l := pipetest.Listen("pipe")
	defer l.Close()
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := l.Dial(ctx, addr)
		return &provenConn{conn, "n3"}, err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = writeGreeting(conn, greeting{version: protocolVersion, cluster: "c", group: helloGroup, sender: "n2.1"})
			_ = conn.Close()
		}
	}()
	m := New(member(Config{Logger: slog.New(slog.DiscardHandler), Dial: dial, Resolve: func(string) ([]string, error) {
		return []string{"pipe"}, nil
	}}, "c", "n1"))
	defer m.Close()
	if _, err := m.connect(t.Context(), "shard-0", "n2.1"); err == nil ||
		!strings.Contains(err.Error(), `its certificate is that of node "n3"`) {
		t.Errorf("connecting to n2.1, where n3 is: %v", err)
	}
}

// TestStrangersAreHeldToTheirProof: a node that asks before there is a cluster cannot speak for
// another, nor can one that answers.
func TestStrangersAreHeldToTheirProof(t *testing.T) {
	for _, test := range []struct {
		name, asker, answers string // what each proved
		wantAsked, wantKnown bool
	}{
		{"both as they say", "n2", "n1", true, true},
		{"another asks", "n3", "n1", false, false},
		{"another answers", "n2", "n3", true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := pipetest.Listen("pipe")
			ctx, cancel := context.WithCancel(t.Context())
			var asked atomic.Bool
			ended := make(chan error, 1)
			go func() {
				ended <- AnswerStrangers(ctx, &strangersListener{provingListener{l, test.asker}}, func(string) Introduction {
					asked.Store(true)
					return Introduction{ServerID: "n1.1", Shards: 1}
				})
			}()
			dial := func(ctx context.Context, addr string) (net.Conn, error) {
				conn, err := l.Dial(ctx, addr)
				return &provenConn{conn, test.answers}, err
			}
			_, err := AskToFound(t.Context(), dial, "pipe", "n2.1")
			if (err == nil) != test.wantKnown || asked.Load() != test.wantAsked {
				t.Errorf("asked: %v, and the answer is %v", asked.Load(), err)
			}
			cancel()
			if err := errors.Join(l.Close(), <-ended); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// strangersListener is a listener whose Accept ends with its Close only.
type strangersListener struct{ provingListener }

func (*strangersListener) SetDeadline(time.Time) error { return nil }
