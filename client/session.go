package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/client/internal/requestid"
	"github.com/belfrydb/belfry/rpc/frame"
)

// A session is a connection to a server that carries many calls at once, as frames. It ends when
// the connection ends, when the server leaves, or when it was idle for long.
type session struct {
	conn    *activityConn
	out     *frame.Writer
	clock   *requestid.Clock
	answers *sync.Pool // of *[]byte whose content was decoded

	mu    sync.Mutex
	calls map[uint32]*sessionCall
	last  uint32    // the number of the newest call
	used  time.Time // when a call was made last
	asked time.Time // when the last ping was sent
	err   error     // why no more calls are taken
}

// An activityConn records when the peer last sent something.
type activityConn struct {
	net.Conn
	began time.Time
	heard atomic.Int64 // nanoseconds after began
}

// Read implements net.Conn.
func (c *activityConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(int64(time.Since(c.began)))
	}
	return n, err
}

// openSessions are the sessions of a client that have not ended.
type openSessions struct {
	mu      sync.Mutex
	all     map[*session]struct{}
	closed  bool
	running sync.WaitGroup // the sessions' goroutines; grows under mu only

	answers, requests sync.Pool // of *[]byte that are free
}

// start runs a session over an upgraded connection. The session reads the connection through in.
// The result is nil if the client is closed.
func (o *openSessions) start(conn *activityConn, in *bufio.Reader, clock *requestid.Clock) *session {
	s := &session{
		conn: conn, out: frame.NewWriter(conn, attemptTimeout), clock: clock, answers: &o.answers, calls: make(map[uint32]*sessionCall), used: time.Now(),
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	if o.all == nil {
		o.all = make(map[*session]struct{})
	}
	o.all[s] = struct{}{}
	ended := make(chan struct{})
	o.running.Go(func() { s.close(s.out.Run()) })
	o.running.Go(func() {
		s.close(s.read(in))
		close(ended)
		o.remove(s)
	})
	o.running.Go(func() { s.watch(ended) })
	return s
}

func (o *openSessions) remove(s *session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, s)
}

// isClosed reports whether there will be no more sessions.
func (o *openSessions) isClosed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed
}

// close permanently ends all sessions, and waits for their goroutines.
func (o *openSessions) close() {
	o.mu.Lock()
	o.closed = true
	for s := range o.all {
		s.close(net.ErrClosed)
	}
	o.mu.Unlock()
	o.running.Wait()
}

// A sessionCall waits for its answer.
type sessionCall struct {
	sent   time.Time
	answer chan sessionAnswer // takes one value
}

// A sessionAnswer is the answer to a call. Its receiver gives the payload back.
type sessionAnswer struct {
	failed  bool
	payload *[]byte
	err     error // the session ended
}

var (
	errLeft = errors.New("the server is stopping")
	errBye  = errors.New("the server stopped before it read the call")
	errIdle = errors.New("the session was not used")
	errMute = errors.New("the server gave no sign of life")
)

// sessionIdle is how long an unused session is kept.
const sessionIdle = 2 * time.Minute

// sessionBuffer is the size of the buffer that frames are read through.
const sessionBuffer = 64 << 10

// close ends the session at once.
func (s *session) close(err error) {
	s.end(err)
	_ = s.conn.Close() // ends the reader
}

// takes reports whether the session takes calls.
func (s *session) takes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil
}

// leave makes the session take no more calls. The server answers the calls in flight, and says Bye.
func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = errLeft
	}
}

// end makes the session take no more calls. The calls in flight fail.
func (s *session) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.out.Close(err)
	for id, c := range s.calls {
		delete(s.calls, id)
		c.answer <- sessionAnswer{err: err}
	}
}

// register gives a call a number.
func (s *session) register(c *sessionCall) (id uint32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, notSent(s.err)
	}
	for {
		s.last++
		if _, used := s.calls[s.last]; !used {
			break
		}
	}
	s.calls[s.last] = c
	s.used = c.sent
	return s.last, nil
}

// unregister takes a call back. It reports false if its answer has come.
func (s *session) unregister(id uint32) bool {
	_, waits := s.take(id)
	return waits
}

// take removes and returns the call that an answer is for, if it still waits.
func (s *session) take(id uint32) (*sessionCall, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, waits := s.calls[id]
	delete(s.calls, id)
	return c, waits
}

// An unsentError says that no part of a call was sent, or that the server did not read what was
// sent.
type unsentError struct{ cause error }

func (e *unsentError) Error() string { return e.cause.Error() }
func (e *unsentError) Unwrap() error { return e.cause }

// notSent makes an unsentError.
func notSent(cause error) error { return &unsentError{lost(cause)} }

// lost wraps the error that ended a call in an error with the Connect code for it.
func lost(cause error) error {
	code := connect.CodeUnavailable
	switch {
	case errors.Is(cause, context.Canceled):
		code = connect.CodeCanceled
	case errors.Is(cause, context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded
	}
	return connect.NewError(code, cause)
}

// call makes one call and decodes its answer. The request's memory may be reused when it returns.
func (s *session) call(ctx context.Context, method frame.Method, request []byte, answer wireDecoder) error {
	c := &sessionCall{sent: time.Now(), answer: make(chan sessionAnswer, 1)}
	id, err := s.register(c)
	if err != nil {
		return err
	}
	h := frame.Header{Kind: frame.Call, Method: method, ID: id}
	if deadline, ok := ctx.Deadline(); ok {
		h.Number = max(1, time.Until(deadline).Milliseconds())
	}
	if err := s.out.Send(ctx, h, request); err != nil {
		s.unregister(id)
		return notSent(err)
	}
	select {
	case got := <-c.answer:
		return s.decode(got, answer)
	case <-ctx.Done():
	}
	if !s.unregister(id) {
		return s.decode(<-c.answer, answer)
	}
	_ = s.out.Offer(frame.Header{Kind: frame.Cancel, ID: id}) // else the server does not learn that the caller left
	return lost(context.Cause(ctx))
}

// answerBytesMax is the size up to which the memory of an answer is reused.
const answerBytesMax = 256 << 10

// decode decodes the answer to a call, and gives its memory back.
func (s *session) decode(a sessionAnswer, answer wireDecoder) error {
	if a.err != nil {
		if errors.Is(a.err, errBye) {
			return notSent(a.err)
		}
		return lost(a.err)
	}
	defer func() {
		if cap(*a.payload) <= answerBytesMax {
			s.answers.Put(a.payload)
		}
	}()
	var err error
	var said status.Status
	if a.failed {
		err = proto.Unmarshal(*a.payload, &said)
	} else {
		err = answer.decodeWire(*a.payload)
	}
	if err != nil {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("decoding an answer: %w", err)) // it would be the same again
	}
	if !a.failed {
		return nil
	}
	wire := connect.NewWireError(connect.Code(said.GetCode()), errors.New(said.GetMessage())) //nolint:gosec // one that is unknown stays so
	for _, detail := range said.GetDetails() {
		if known, err := detail.UnmarshalNew(); err == nil { // this version cannot use a detail of a later one
			if d, err := connect.NewErrorDetail(known); err == nil {
				wire.AddDetail(d)
			}
		}
	}
	return wire
}

// read handles the server's frames until the connection ends.
func (s *session) read(in *bufio.Reader) error {
	for {
		h, err := frame.ReadHeader(in)
		if err != nil {
			return err
		}
		switch h.Kind {
		case frame.Answer, frame.Failure:
			if err := s.deliver(in, h); err != nil {
				return err
			}
			continue
		case frame.Leave:
			s.leave()
		case frame.Bye:
			return errBye
		case frame.Ping:
			err = s.out.Offer(frame.Header{Kind: frame.Pong})
		case frame.Pong:
		default:
			return fmt.Errorf("the server sent a frame of kind %d", h.Kind)
		}
		if err != nil {
			return err
		}
		if h.Size > 0 {
			return fmt.Errorf("the server sent a frame of kind %d with %d bytes", h.Kind, h.Size)
		}
	}
}

// deliver passes an answer to the call that waits for it.
func (s *session) deliver(in *bufio.Reader, h frame.Header) error {
	s.mu.Lock()
	c, waits := s.calls[h.ID] // the caller may leave while the payload comes
	s.mu.Unlock()
	if !waits {
		_, err := in.Discard(int(h.Size))
		return err
	}
	payload, ok := s.answers.Get().(*[]byte)
	if !ok {
		payload = new([]byte)
	}
	*payload = (*payload)[:0]
	for have, size := 0, int(h.Size); have < size; have = len(*payload) {
		piece := frame.Piece(have, size)
		*payload = slices.Grow(*payload, piece)[:have+piece]
		if _, err := io.ReadFull(in, (*payload)[have:]); err != nil {
			return err
		}
	}
	if _, waits := s.take(h.ID); !waits {
		return nil
	}
	s.clock.Learn(c.sent, time.UnixMilli(h.Number), time.Millisecond)
	c.answer <- sessionAnswer{failed: h.Kind == frame.Failure, payload: payload}
	return nil
}

// watch pings the server when either side has been silent; servers too end a session whose client
// is silent. It closes a session that gives no sign of life, or that is unused.
func (s *session) watch(ended <-chan struct{}) {
	timer := time.NewTimer(pingAfter)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ended:
			return
		}
		next, ask, err := s.look(time.Now())
		if err == nil && ask {
			err = s.out.Offer(frame.Header{Kind: frame.Ping})
		}
		if err != nil {
			s.close(err)
			return
		}
		timer.Reset(next)
	}
}

// look returns when to look again, and whether to ping. An error ends the session.
func (s *session) look(now time.Time) (next time.Duration, ask bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	heard := s.conn.began.Add(time.Duration(s.conn.heard.Load()))
	said := s.used
	if s.asked.After(said) {
		said = s.asked
	}
	silent := max(now.Sub(heard), now.Sub(said))
	switch {
	case len(s.calls) == 0 && now.Sub(s.used) >= sessionIdle:
		s.err = errIdle // no call comes in between
		return 0, false, errIdle
	case silent < pingAfter:
		return pingAfter - silent, false, nil
	case s.out.Writing():
		s.asked = time.Time{} // a ping would wait behind the present write, whose time is limited
		return pingTimeout, false, nil
	case s.asked.After(heard) && now.Sub(s.asked) >= pingTimeout:
		return 0, false, errMute
	case s.asked.After(heard):
		return pingTimeout - now.Sub(s.asked), false, nil
	default:
		s.asked = now
		return pingTimeout, true, nil
	}
}
