package rpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/rpc/auth"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/frame"
)

const (
	// sessionSilence is how long a session may be silent: clients send a Ping more often.
	sessionSilence = 45 * time.Second
	// sessionCallsMax bounds the calls of one session that are in flight.
	sessionCallsMax = 8192
	// callWaitMax bounds the timeout of a client's call, so that no number overflows.
	callWaitMax = time.Hour
	// sessionLinger is how long a session that said Bye waits for the client to close.
	sessionLinger = time.Second
	// sessionBuffer is the size of the buffer that frames are read through.
	sessionBuffer = 64 << 10
)

// sessions are the upgraded connections of a server, which net/http no longer tracks. The zero
// value is ready for use.
type sessions struct {
	mu   sync.Mutex
	open map[*session]net.Conn // nil until the connection is hijacked
	over bool                  // hijacked connections are closed
	idle atomic.Int64          // goroutines of all sessions that have no call
	none chan struct{}         // closed when there are no sessions; nil while wait is not called
}

// add counts a session before its connection is hijacked, while net/http still tracks it. So a stop
// misses no session.
func (all *sessions) add(s *session) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.open == nil {
		all.open = map[*session]net.Conn{}
	}
	all.open[s] = nil
}

// connected records the connection of a session.
func (all *sessions) connected(s *session, conn net.Conn) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.open[s] = conn
	if all.over {
		_ = conn.Close() // its calls end
	}
}

func (all *sessions) remove(s *session) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.open, s)
	if len(all.open) == 0 && all.none != nil {
		close(all.none)
		all.none = nil
	}
}

// wait waits until all sessions have ended, as they do once the server drains. When ctx ends, it
// closes the others.
func (all *sessions) wait(ctx context.Context) error {
	all.mu.Lock()
	if len(all.open) == 0 {
		all.mu.Unlock()
		return nil
	}
	if all.none == nil {
		all.none = make(chan struct{})
	}
	none := all.none
	all.mu.Unlock()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.over = true
	for _, conn := range all.open {
		if conn != nil {
			_ = conn.Close() // its calls end
		}
	}
	return fmt.Errorf("ending sessions: %w", context.Cause(ctx))
}

// session is one connection that carries calls as frames.
type session struct {
	handler *handler
	conn    net.Conn
	address string // of the client
	id      string // names its calls in the log
	in      *bufio.Reader
	out     *frame.Writer
	ctx     context.Context //nolint:containedctx // of the session, which is longer than any function
	cancel  context.CancelFunc

	mu      sync.Mutex
	calls   map[uint32]context.CancelFunc // the calls without an answer
	working int                           // calls whose goroutines have not ended
	leaving bool
	over    bool // it ended by a drain, and every call that was read has its answer

	work      chan func() // takes a call while a goroutine has none
	answering sync.WaitGroup
}

// serveSession upgrades a connection, and carries out its calls until it ends.
func (h *handler) serveSession(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || !strings.EqualFold(r.Header.Get("Upgrade"), frame.Protocol) || !headerHas(r.Header, "Connection", "upgrade") {
		if r.ProtoMajor == 1 { // these headers make an answer over HTTP/2 malformed
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", frame.Protocol)
		}
		http.Error(w, "this path is for sessions of Belfry's SDK", http.StatusUpgradeRequired)
		return
	}
	if h.drain.hasStarted() {
		h.writeFault(w, r, fault.New(belfryv1.Reason_REASON_SHUTTING_DOWN))
		return
	}
	s := &session{handler: h, address: r.RemoteAddr, id: r.Header.Get(auth.CallIDHeader), calls: map[uint32]context.CancelFunc{}}
	h.sessions.add(s)
	defer h.sessions.remove(s)
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		h.writeFault(w, r, fault.Of(fmt.Errorf("upgrading a connection: %w", err)))
		return
	}
	s.in = bufio.NewReaderSize(io.MultiReader(io.LimitReader(buffered, int64(buffered.Reader.Buffered())), conn), sessionBuffer)
	s.run(context.WithoutCancel(r.Context()), conn, w.Header())
}

// headerHas reports whether a header that is a list has a token.
func headerHas(header http.Header, name, token string) bool {
	for _, value := range header.Values(name) {
		for part := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

var errSessionOver = errors.New("the session is over")

// run answers the upgrade of a connection and serves the session.
func (s *session) run(ctx context.Context, conn net.Conn, header http.Header) {
	s.conn, s.out, s.work = conn, frame.NewWriter(conn, s.handler.limits.ResponseWait), make(chan func())
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.handler.sessions.connected(s, conn)
	defer s.cancel()
	defer s.conn.Close() //nolint:errcheck // the error does not matter
	if err := s.acceptUpgrade(header); err != nil {
		return
	}
	var writing sync.WaitGroup
	writing.Go(func() {
		if err := s.out.Run(); !errors.Is(err, errSessionOver) {
			s.cancel()
			_ = s.conn.Close() // ends the reader
		}
	})
	writing.Go(func() {
		select {
		case <-s.handler.drain.started:
			s.sendLeave()
		case <-s.ctx.Done():
		}
	})
	_ = s.read() //nolint:contextcheck // calls have the session's; the error needs no handling: the client left, or broke the protocol
	s.cancel()
	close(s.work) // the reader alone sends
	s.answering.Wait()
	left := s.left()
	if left {
		_ = s.out.Offer(frame.Header{Kind: frame.Bye}) // without it, the client takes its open calls for unknown
	}
	s.out.Close(errSessionOver)
	writing.Wait()
	if left && s.conn.SetReadDeadline(time.Now().Add(sessionLinger)) == nil {
		_, _ = io.Copy(io.Discard, s.conn) // until the client closes: if this side closed first, unread calls could reset the connection before Bye arrives
	}
}

// left reports whether the session ended by a drain, so that every call that was read has its
// answer.
func (s *session) left() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// acceptUpgrade answers the upgrade request.
func (s *session) acceptUpgrade(header http.Header) error {
	var b strings.Builder
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + frame.Protocol + "\r\nDate: " + s.handler.queues.now().UTC().Format(http.TimeFormat) + "\r\n")
	for _, name := range []string{"Belfry-Served-By", auth.CallIDHeader} {
		b.WriteString(name + ": " + header.Get(name) + "\r\n")
	}
	b.WriteString("\r\n")
	if err := s.conn.SetDeadline(time.Now().Add(s.handler.limits.ResponseWait)); err != nil {
		return err
	}
	if _, err := s.conn.Write([]byte(b.String())); err != nil {
		return err
	}
	return s.conn.SetDeadline(time.Time{})
}

// read reads frames until the connection ends, or until the client breaks the protocol.
func (s *session) read() error {
	var extended time.Time
	for {
		if now := time.Now(); now.Sub(extended) > time.Second {
			if err := s.extend(sessionSilence); err != nil {
				return err
			}
			extended = now
		}
		h, err := frame.ReadHeader(s.in)
		if err != nil {
			return err
		}
		switch h.Kind {
		case frame.Call:
			if uint64(s.in.Buffered()) < uint64(h.Size) {
				if err := s.extend(s.handler.limits.BodyWait); err != nil {
					return err
				}
				extended = time.Time{}
			}
			if err := s.readCall(h); err != nil {
				return err
			}
		case frame.Cancel:
			s.cancelCall(h.ID)
		case frame.Ping:
			if f := s.handler.authorizer.Authorize(s.ctx, frame.Path); f != nil {
				return f // its token has ended; clients send a Ping every few seconds
			}
			if err := s.out.Send(s.ctx, frame.Header{Kind: frame.Pong}, nil); err != nil {
				return err
			}
		case frame.Pong:
		default:
			return fmt.Errorf("a client sent a frame of kind %d", h.Kind)
		}
		if h.Kind != frame.Call && h.Size > 0 {
			return fmt.Errorf("a client sent a frame of kind %d with %d bytes", h.Kind, h.Size)
		}
	}
}

// extend sets how long the reader waits. It fails if the session has ended: the end of a session
// sets the deadline too, and may have done so before.
func (s *session) extend(wait time.Duration) error {
	if err := s.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	return s.ctx.Err()
}

// cancelCall ends a call that the client no longer waits for.
func (s *session) cancelCall(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel, ok := s.calls[id]; ok {
		cancel()
	}
}

// sendLeave tells the client that the server stops, and ends the session when the calls under way
// have their answers.
func (s *session) sendLeave() {
	if s.out.Send(s.ctx, frame.Header{Kind: frame.Leave}, nil) != nil {
		return // it has ended
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
	s.stopReadingIfIdle()
}

// stopReadingIfIdle ends the reader of a session that drains once no call is under way. Answers that are
// queued are still written. s.mu is held.
func (s *session) stopReadingIfIdle() {
	if !s.leaving || s.working > 0 || s.ctx.Err() != nil {
		return
	}
	s.over = true
	s.cancel()
	_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // a connection that takes none has ended
}
