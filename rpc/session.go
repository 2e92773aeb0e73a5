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
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/frame"
)

const (
	// sessionSilence is how long a session may say nothing: clients ask for a sign of life more often.
	sessionSilence = 45 * time.Second
	// sessionCallsMax bounds the calls of one session that are under way.
	sessionCallsMax = 8192
	// callWaitMax bounds what a client says of how long it waits, so that no figure overflows.
	callWaitMax = time.Hour
	// sessionBuffer is the size of the buffer that frames are read through.
	sessionBuffer = 64 << 10
)

// sessions are the upgraded connections of a server, which net/http knows nothing of. The zero value is ready for use.
type sessions struct {
	mu   sync.Mutex
	open map[*session]struct{}
	none chan struct{} // closed when there are none; nil if nobody waits for that
}

func (all *sessions) add(s *session) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.open == nil {
		all.open = map[*session]struct{}{}
	}
	all.open[s] = struct{}{}
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

// wait waits until all have ended, as they do once the server drains, or ctx ends; then it closes them.
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
	for s := range all.open {
		_ = s.conn.Close() // its calls end
	}
	return fmt.Errorf("ending sessions: %w", context.Cause(ctx))
}

// session is one connection that carries calls as frames.
type session struct {
	handler *handler
	conn    net.Conn
	in      *bufio.Reader
	out     *frame.Writer
	ctx     context.Context //nolint:containedctx // of the session, which is longer than any function
	end     context.CancelCauseFunc

	mu      sync.Mutex
	calls   map[uint32]context.CancelFunc // those that were not answered
	working int                           // calls whose goroutines have not ended
	leaving bool

	answering sync.WaitGroup
}

// serveSession upgrades a connection, and carries out its calls until it ends.
func (h *handler) serveSession(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), frame.Protocol) || !headerHas(r.Header, "Connection", "upgrade") || r.ProtoMajor != 1 {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", frame.Protocol)
		http.Error(w, "this path is for sessions of Belfry's SDK", http.StatusUpgradeRequired)
		return
	}
	if h.drain.isBegun() {
		h.writeFault(w, r, fault(belfryv1.Reason_REASON_SHUTTING_DOWN))
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		h.writeFault(w, r, faultOfError(fmt.Errorf("upgrading a connection: %w", err)))
		return
	}
	ctx, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
	s := &session{
		handler: h, conn: conn, in: bufio.NewReaderSize(io.MultiReader(io.LimitReader(buffered, int64(buffered.Reader.Buffered())), conn), sessionBuffer),
		out: frame.NewWriter(conn, h.limits.ResponseWait), ctx: ctx, end: end, calls: map[uint32]context.CancelFunc{},
	}
	s.run(w.Header())
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

// run answers the upgrade and serves the session.
func (s *session) run(header http.Header) {
	defer s.conn.Close() //nolint:errcheck // whatever comes of it
	if err := s.welcome(header); err != nil {
		return
	}
	s.handler.sessions.add(s)
	defer s.handler.sessions.remove(s)
	var writing sync.WaitGroup
	writing.Go(func() {
		if err := s.out.Run(); !errors.Is(err, errSessionOver) {
			s.end(err)
			_ = s.conn.Close() // ends the reader
		}
	})
	stop := make(chan struct{})
	writing.Go(func() {
		select {
		case <-s.handler.drain.begun:
			s.leave()
		case <-stop:
		}
	})
	err := s.read()
	close(stop)
	s.end(err)
	s.answering.Wait()
	if errors.Is(context.Cause(s.ctx), errSessionOver) {
		_ = s.out.Send(s.ctx, frame.Header{Kind: frame.Bye}, nil) // if not, the client takes what is out for unknown
	}
	s.out.Close(errSessionOver)
	writing.Wait()
}

// welcome answers the upgrade.
func (s *session) welcome(header http.Header) error {
	var b strings.Builder
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + frame.Protocol + "\r\nDate: " + s.handler.queues.now().UTC().Format(http.TimeFormat) + "\r\n")
	for _, name := range []string{"Belfry-Served-By", "X-Request-Id"} {
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

// read takes frames until the connection ends, or the client breaks the rules.
func (s *session) read() error {
	var extended time.Time
	for {
		if now := time.Now(); now.Sub(extended) > time.Second {
			if err := s.conn.SetReadDeadline(now.Add(sessionSilence)); err != nil {
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
				if err := s.conn.SetReadDeadline(time.Now().Add(s.handler.limits.BodyWait)); err != nil {
					return err
				}
				extended = time.Time{}
			}
			if err := s.take(h); err != nil {
				return err
			}
		case frame.Cancel:
			s.cancel(h.ID)
		case frame.Ping:
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

// take reads a call and has it carried out.
func (s *session) take(h frame.Header) error {
	limits := &s.handler.limits
	method := s.handler.sessionMethods[h.Method]
	inFlight := &s.handler.bodyBytesInFlight
	size := int64(h.Size)
	var refused *Fault
	switch {
	case method.call == nil:
		return fmt.Errorf("a client called method %d", h.Method)
	case size > int64(limits.MessageBytesMax):
		refused = tooLarge("request", int(size), limits.MessageBytesMax)
	case inFlight.Add(size) > bodyBytesInFlightMax:
		refused = fault(belfryv1.Reason_REASON_OVERLOADED)
		inFlight.Add(-size)
	}
	if refused == nil {
		ctx, f := s.begin(h)
		if f == nil {
			return s.carryOut(ctx, h, method)
		}
		inFlight.Add(-size)
		refused = f
	}
	if _, err := s.in.Discard(int(h.Size)); err != nil {
		return err
	}
	return s.fail(h.ID, refused.wire())
}

// begin registers a call. forget must be called before it is answered, and finish afterwards.
func (s *session) begin(h frame.Header) (context.Context, *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch _, used := s.calls[h.ID]; {
	case used:
		return nil, invalid("call", "a call with the number %d is under way", h.ID)
	case s.leaving:
		return nil, fault(belfryv1.Reason_REASON_SHUTTING_DOWN)
	case s.working >= sessionCallsMax:
		f := fault(belfryv1.Reason_REASON_OVERLOADED)
		f.Message = "more than " + itoa(sessionCallsMax) + " calls of a session are under way, which is the limit"
		return nil, f
	}
	ctx, cancel := s.ctx, context.CancelFunc(nil)
	if h.Number > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(min(h.Number, callWaitMax.Milliseconds()))*time.Millisecond)
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	s.calls[h.ID] = cancel
	s.working++
	return ctx, nil
}

// forget lets the client use the number of a call again.
func (s *session) forget(id uint32) {
	s.cancel(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, id)
}

// finish notes that a call has been answered.
func (s *session) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.working--
	s.hangUpIfIdle()
}

// messageBuffers holds the memory of requests and answers that are done with, up to messageBufferMax each.
var messageBuffers = sync.Pool{New: func() any { return new([]byte) }}

const messageBufferMax = 256 << 10

// newMessageBuffer returns size bytes with any content.
func newMessageBuffer(size int) *[]byte {
	b, ok := messageBuffers.Get().(*[]byte)
	if !ok || cap(*b) < size {
		b = new(make([]byte, size))
	}
	*b = (*b)[:size]
	return b
}

func freeMessageBuffer(b *[]byte) {
	if cap(*b) <= messageBufferMax {
		messageBuffers.Put(b)
	}
}

// carryOut reads the request of a call, and has it answered in a goroutine of its own.
func (s *session) carryOut(ctx context.Context, h frame.Header, method sessionMethod) error {
	request := newMessageBuffer(int(h.Size))
	if _, err := io.ReadFull(s.in, *request); err != nil {
		s.handler.bodyBytesInFlight.Add(-int64(h.Size))
		s.forget(h.ID)
		s.finish()
		return err
	}
	s.answering.Go(func() { s.answer(ctx, h, method, request) })
	return nil
}

// answer carries out a call and answers it.
func (s *session) answer(ctx context.Context, h frame.Header, method sessionMethod, request *[]byte) {
	defer s.finish()
	answer := newMessageBuffer(0)
	var err error
	*answer, err = s.handler.sessionCall(ctx, method, *request, *answer)
	s.handler.bodyBytesInFlight.Add(-int64(h.Size))
	freeMessageBuffer(request)
	s.forget(h.ID)
	if err != nil {
		err = s.fail(h.ID, err)
	} else {
		err = s.out.Send(s.ctx, frame.Header{Kind: frame.Answer, ID: h.ID, Number: s.handler.queues.now().UnixMilli()}, *answer)
	}
	if err != nil {
		s.end(err)
	}
	freeMessageBuffer(answer)
}

// fail answers a call with an error.
func (s *session) fail(id uint32, err error) error {
	payload, encodeErr := proto.Marshal(statusOfError(err))
	if encodeErr != nil {
		return encodeErr
	}
	return s.out.Send(s.ctx, frame.Header{Kind: frame.Failure, ID: id, Number: s.handler.queues.now().UnixMilli()}, payload)
}

// statusOfError converts an error of the edge.
func statusOfError(err error) *status.Status {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		wire = faultOfError(err).wire()
	}
	out := &status.Status{Code: int32(wire.Code()), Message: wire.Message()} //nolint:gosec // below 17
	for _, detail := range wire.Details() {
		out.Details = append(out.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + detail.Type(), Value: detail.Bytes()})
	}
	return out
}

// cancel ends a call that nobody waits for any more.
func (s *session) cancel(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel, ok := s.calls[id]; ok {
		cancel()
	}
}

// leave tells the client that the server stops, and ends the session when the calls under way are answered.
func (s *session) leave() {
	if s.out.Send(s.ctx, frame.Header{Kind: frame.Leave}, nil) != nil {
		return // it has ended
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
	s.hangUpIfIdle()
}

// hangUpIfIdle ends the reader of a session that takes no calls any more once none is under way. What was answered is still written. s.mu is held.
func (s *session) hangUpIfIdle() {
	if !s.leaving || s.working > 0 {
		return
	}
	s.end(errSessionOver)
	_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // a connection that takes none has ended
}

// sessionMethod is a method that sessions carry. It appends the answer to dst, and keeps nothing of the request.
type sessionMethod struct {
	procedure string
	call      func(ctx context.Context, request, dst []byte) (answer []byte, err error)
}

// sessionMethodOf makes one of a method of the contract.
func sessionMethodOf[Q, R any](codec binaryCodec, procedure string, call func(context.Context, *Q) (*R, error)) sessionMethod {
	return sessionMethod{procedure, func(ctx context.Context, request, dst []byte) ([]byte, error) {
		q := new(Q)
		if err := codec.Unmarshal(request, q); err != nil {
			if _, ours := FaultOf(err); ours {
				return nil, err
			}
			return nil, explain(connect.CodeInvalidArgument, err.Error())
		}
		answer, err := call(ctx, q)
		if err != nil {
			return nil, err
		}
		return codec.MarshalAppend(dst, answer)
	}}
}

// sessionCall carries out a call as the interceptors of Connect's do.
func (h *handler) sessionCall(ctx context.Context, method sessionMethod, request, dst []byte) (answer []byte, err error) {
	started := time.Now()
	defer func() {
		if p := recover(); p != nil {
			answer, err = dst, h.edge.panicked(method.procedure, p)
		}
		h.edge.traffic.observe(method.procedure, err, time.Since(started))
	}()
	answer, err = method.call(ctx, request, dst)
	if err != nil {
		return dst, h.edge.wire(method.procedure, err)
	}
	return answer, nil
}

// mountSessions names the methods that sessions carry.
func (h *handler) mountSessions() {
	codec := binaryCodec{bounds: newBounds(&h.limits)}
	h.sessionMethods = map[frame.Method]sessionMethod{
		frame.PutBatch: sessionMethodOf(codec, belfryv1connect.QueueServicePutBatchProcedure, h.queues.PutBatch),
		frame.AckBatch: sessionMethodOf(codec, belfryv1connect.QueueServiceAckBatchProcedure, h.queues.AckBatch),
		frame.Reserve:  sessionMethodOf(codec, belfryv1connect.QueueServiceReserveProcedure, h.queues.Reserve),
	}
}
