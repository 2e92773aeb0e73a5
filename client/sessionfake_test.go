package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/stream"
)

// A sessionServer serves sessions over a fake, and all else by Connect.
type sessionServer struct {
	*Fake

	mu sync.Mutex
	// refuse, if not 0, is the status with which upgrades are refused.
	refuse int
	// accepts, if not nil, is asked about each frame; true means that the frame was dealt with.
	accepts func(s *serverSession, h stream.Header) bool
	asked   int // for sessions
	open    []*serverSession
}

// A serverSession is one that a sessionServer has.
type serverSession struct {
	conn net.Conn
	out  *stream.Writer
}

func (s *sessionServer) sessions() []*serverSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*serverSession(nil), s.open...)
}

func (s *sessionServer) set(change func(s *sessionServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *sessionServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// ServeHTTP implements http.Handler.
func (s *sessionServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != stream.SessionPath {
		s.Handler().ServeHTTP(w, r)
		return
	}
	s.mu.Lock()
	s.asked++
	refuse := s.refuse
	s.mu.Unlock()
	if refuse != 0 {
		w.WriteHeader(refuse)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if _, err := io.WriteString(conn,
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+stream.SessionProtocol+
			"\r\n\r\n"); err != nil {
		return
	}
	session := &serverSession{conn: conn, out: stream.NewWriter(conn, stream.Limit{Wait: time.Minute})}
	s.set(func(s *sessionServer) { s.open = append(s.open, session) })
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		_ = session.out.Run()
		_ = conn.Close()
	})
	s.read(ctx, session, buffered.Reader, &running)
	cancel()
	session.out.Close(net.ErrClosed)
	running.Wait()
}

// read takes frames until the connection ends.
func (s *sessionServer) read(ctx context.Context, session *serverSession, in *bufio.Reader, running *sync.WaitGroup) {
	calls := map[uint32]context.CancelFunc{}
	for {
		h, err := stream.ReadHeader(in)
		if err != nil {
			return
		}
		payload := make([]byte, h.Size)
		if _, err := io.ReadFull(in, payload); err != nil {
			return
		}
		s.mu.Lock()
		accepts := s.accepts
		s.mu.Unlock()
		switch {
		case accepts != nil && accepts(session, h):
		case h.Kind == stream.Call:
			ctx, cancel := context.WithCancel(ctx)
			calls[h.ID] = cancel
			running.Go(func() { session.answer(ctx, s.Fake, h, payload) })
		case h.Kind == stream.Cancel:
			calls[h.ID]()
		case h.Kind == stream.Ping:
			_ = session.send(stream.Header{Kind: stream.Pong}, nil)
		}
	}
}

func (s *serverSession) send(h stream.Header, payload []byte) error {
	_, err := s.out.Send(context.Background(), h, payload)
	return err
}

// answer carries out a call.
func (s *serverSession) answer(ctx context.Context, f *Fake, h stream.Header, payload []byte) {
	var res proto.Message
	var err error
	switch h.Method {
	case stream.PutBatch:
		res, err = carry(ctx, payload, &belfryv1.PutBatchRequest{}, f.PutBatch)
	case stream.AckBatch:
		res, err = carry(ctx, payload, &belfryv1.AckBatchRequest{}, f.AckBatch)
	case stream.Reserve:
		res, err = carry(ctx, payload, &belfryv1.ReserveRequest{}, f.Reserve)
	}
	kind := stream.Answer
	if err != nil {
		kind, res = stream.Failure, statusOf(err)
	}
	data, err := proto.Marshal(res)
	if err != nil {
		panic(err)
	}
	_ = s.send(stream.Header{Kind: kind, ID: h.ID, Number: time.Now().UnixMilli()}, data)
}

func carry[Q proto.Message, R proto.Message](ctx context.Context, payload []byte, req Q,
	call func(context.Context, Q) (R, error)) (proto.Message, error) {
	if err := proto.Unmarshal(payload, req); err != nil {
		return nil, err
	}
	return call(ctx, req)
}

func statusOf(err error) *status.Status {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return &status.Status{Code: int32(connect.CodeUnknown), Message: err.Error()}
	}
	out := &status.Status{Code: int32(wire.Code()), Message: wire.Message()}
	for _, detail := range wire.Details() {
		out.Details = append(out.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + detail.Type(), Value: detail.Bytes()})
	}
	return out
}

// startSessions makes a client with the package's own transport for servers at n1, n2, … over a
// network in memory.
func startSessions(t testing.TB, n *pipeNet, opts []Option, servers ...http.Handler) *Client {
	t.Helper()
	var addrs []string
	for i, server := range servers {
		host := "n" + string(rune('1'+i)) + ":7400"
		addrs = append(addrs, "http://"+host)
		if server != nil {
			n.serve(t, host, server)
		}
	}
	c, err := New(strings.Join(addrs, ","), opts...)
	if err != nil {
		t.Fatal(err)
	}
	transport := c.idle.(*http.Transport)
	transport.Proxy, transport.DialContext = nil, n.dial
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (n *pipeNet) dialed() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}
