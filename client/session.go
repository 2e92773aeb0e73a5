package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/rpc/frame"
)

// A session is a connection to a server that carries many calls at once, as frames. It ends when the connection does, when the server leaves, or when it was idle for long.
type session struct {
	conn  net.Conn
	out   *frame.Writer
	clock *requestClock

	mu    sync.Mutex
	calls map[uint32]*sessionCall
	last  uint32    // the number of the newest call
	used  time.Time // when a call was made last
	heard time.Time // when the server said something last
	asked time.Time // when it was asked for a sign of life that has not come
	err   error     // why no more calls are taken
}

// A sessionCall waits for its answer.
type sessionCall struct {
	sent   time.Time
	answer chan sessionAnswer // takes one value
}

// A sessionAnswer is what came for a call. Whoever takes it gives the payload back.
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

// sessionIdle is how long a session is kept that nobody uses.
const sessionIdle = 2 * time.Minute

// sessionBuffer is the size of the buffer that frames are read through.
const sessionBuffer = 64 << 10

// newSession makes a session of an upgraded connection. in reads from it.
func newSession(conn net.Conn, in *bufio.Reader, clock *requestClock) *session {
	now := time.Now()
	s := &session{conn: conn, out: frame.NewWriter(conn, attemptTimeout), clock: clock, calls: make(map[uint32]*sessionCall), used: now, heard: now}
	ended := make(chan struct{})
	go func() {
		s.close(s.out.Run())
	}()
	go func() {
		s.close(s.read(in))
		close(ended)
	}()
	go s.watch(ended)
	return s
}

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

// end has the session take no more calls. Those under way fail, unless the server left: then it answers them.
func (s *session) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.out.Close(err)
	if errors.Is(err, errLeft) {
		return
	}
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
		return 0, &unsentError{s.err}
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

// take takes the call that an answer is for, if it still waits.
func (s *session) take(id uint32) (*sessionCall, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, waits := s.calls[id]
	delete(s.calls, id)
	return c, waits
}

// noWait is a context for what is sent only if it need not wait.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// An unsentError says that nothing of a call was sent, or that what was sent was not read.
type unsentError struct{ cause error }

func (e *unsentError) Error() string { return e.cause.Error() }
func (e *unsentError) Unwrap() error { return e.cause }

// call makes one call and has its answer decoded. The request may be used again when it returns.
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
		return &unsentError{err}
	}
	select {
	case got := <-c.answer:
		return got.decode(answer)
	case <-ctx.Done():
	}
	if !s.unregister(id) {
		return (<-c.answer).decode(answer)
	}
	_ = s.out.Send(noWait, frame.Header{Kind: frame.Cancel, ID: id}, nil) // if not, the server will not notice that nobody waits
	return context.Cause(ctx)
}

// answers holds the memory of answers that were decoded, up to answerBytesMax each.
var answers = sync.Pool{New: func() any { return new([]byte) }}

const answerBytesMax = 256 << 10

// decode reads what came for a call, and gives its memory back.
func (a sessionAnswer) decode(answer wireDecoder) error {
	if a.err != nil {
		if errors.Is(a.err, errBye) {
			return &unsentError{a.err}
		}
		return connect.NewError(connect.CodeUnavailable, a.err)
	}
	defer func() {
		if cap(*a.payload) <= answerBytesMax {
			answers.Put(a.payload)
		}
	}()
	if !a.failed {
		return answer.decodeWire(*a.payload)
	}
	var said status.Status
	if err := proto.Unmarshal(*a.payload, &said); err != nil {
		return fmt.Errorf("decoding an error: %w", err)
	}
	wire := connect.NewWireError(connect.Code(said.GetCode()), errors.New(said.GetMessage())) //nolint:gosec // one that is unknown stays so
	for _, detail := range said.GetDetails() {
		if known, err := detail.UnmarshalNew(); err == nil { // one of a later version says nothing that this one knows
			if d, err := connect.NewErrorDetail(known); err == nil {
				wire.AddDetail(d)
			}
		}
	}
	return wire
}

// read takes what the server sends, until the connection ends.
func (s *session) read(in *bufio.Reader) error {
	for {
		h, err := frame.ReadHeader(in)
		if err != nil {
			return err
		}
		now := time.Now()
		s.mu.Lock()
		s.heard = now
		s.mu.Unlock()
		switch h.Kind {
		case frame.Answer, frame.Failure:
			if err := s.deliver(in, h); err != nil {
				return err
			}
			continue
		case frame.Leave:
			s.end(errLeft)
		case frame.Bye:
			return errBye
		case frame.Ping:
			err = s.out.Send(noWait, frame.Header{Kind: frame.Pong}, nil)
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

// deliver hands an answer to the call that waits for it.
func (s *session) deliver(in *bufio.Reader, h frame.Header) error {
	c, waits := s.take(h.ID)
	if !waits {
		_, err := in.Discard(int(h.Size))
		return err
	}
	payload, _ := answers.Get().(*[]byte)
	if cap(*payload) < int(h.Size) {
		*payload = make([]byte, h.Size)
	}
	*payload = (*payload)[:h.Size]
	if _, err := io.ReadFull(in, *payload); err != nil {
		c.answer <- sessionAnswer{err: err}
		return err
	}
	if s.clock.due() {
		s.clock.learn(c.sent, time.UnixMilli(h.Number), time.Millisecond)
	}
	c.answer <- sessionAnswer{failed: h.Kind == frame.Failure, payload: payload}
	return nil
}

// watch asks for a sign of life where the server has been silent, and ends a session that gives none, or that nobody uses.
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
			err = s.out.Send(noWait, frame.Header{Kind: frame.Ping}, nil)
		}
		if err != nil {
			s.close(err)
			return
		}
		timer.Reset(next)
	}
}

// look says when to look again, and whether to ask for a sign of life; an error ends the session.
func (s *session) look(now time.Time) (next time.Duration, ask bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := now.Sub(s.heard)
	switch {
	case len(s.calls) == 0 && now.Sub(s.used) >= sessionIdle:
		return 0, false, errIdle
	case silent < pingAfter:
		return pingAfter - silent, false, nil
	case s.asked.After(s.heard) && now.Sub(s.asked) >= pingTimeout:
		return 0, false, errMute
	case s.asked.After(s.heard):
		return pingTimeout - now.Sub(s.asked), false, nil
	default:
		s.asked = now
		return pingTimeout, true, nil
	}
}
