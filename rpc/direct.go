package rpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/rpc/auth"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/http1"
	"github.com/belfrydb/belfry/rpc/inbound"
)

// The headers that direct calls get from package http1, by their index.
const (
	headerContentType = iota
	headerAuthorization
	headerCallID
	headerRequestID
	headerClient
	headerAcceptEncoding
	headerProtocolVersion
	headerTimeout
)

// directConfig returns the settings of the server of direct calls.
func directConfig(h *handler, logger *slog.Logger, secure *tls.Config) http1.Config {
	d := newDirectCalls(h)
	return http1.Config{
		Handler: d, Paths: d.paths, TLS: secure, Logger: logger,
		Headers: []string{
			"Content-Type", "Authorization", auth.CallIDHeader, requestIDHeader, auth.ClientHeader, "Accept-Encoding",
			"Connect-Protocol-Version", "Connect-Timeout-Ms",
		},
		Ignored: []string{
			"User-Agent", "Accept", "Accept-Language", "Accept-Charset", "Cache-Control", "Pragma", "Traceparent",
			"Tracestate", "Baggage", "B3", "Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port",
			"X-Forwarded-Proto", "X-Real-Ip",
		},
		HeadWait: headWait, IdleWait: idleWait, ResponseWait: h.limits.ResponseWait,
		Hold: h.holdBody, Release: func(bytes int64) { h.bodyBytesInFlight.Add(-bytes) },
	}
}

// holdBody counts bytes of bodies. It returns false if there are too many.
func (h *handler) holdBody(bytes int64) bool {
	if h.bodyBytesInFlight.Add(bytes) > inbound.BytesInFlightMax {
		h.bodyBytesInFlight.Add(-bytes)
		return false
	}
	return true
}

// directCalls carries out calls of the hot methods that need nothing of net/http and Connect. It
// leaves all others to them, and also each request that the server must refuse before the method
// sees it. So it makes no refusals of its own.
type directCalls struct {
	*handler
	paths   []string
	methods []directMethod // by the index of the path
	formats map[string]directFormat
	gzips   sync.Pool
}

// directMethod is a method that can be called directly.
type directMethod struct {
	procedure string
	call      directCall
}

// directCall carries out a request. readable is false if the codec cannot read the request.
type directCall func(d *directCalls, c *http1.Conn, answer *directAnswer) (readable bool, err error)

// directAnswer is the body of an answer. It has no memory before the method is done.
type directAnswer struct {
	pool   *codec.Buffers
	buffer *[]byte
}

// write sets the body to what a function appends.
func (a *directAnswer) write(to func(dst []byte) ([]byte, error)) (err error) {
	a.buffer = a.pool.Get()
	body, err := to(*a.buffer)
	if err == nil {
		*a.buffer = body
	}
	return err
}

// release returns the memory of the body.
func (a *directAnswer) release() {
	if a.buffer != nil {
		a.pool.Put(a.buffer)
	}
}

// directFormat is how the bodies of a content type are read and written.
type directFormat struct {
	answers string // the content type of answers
	codec   codecAppender
	binary  bool
}

// codecAppender is a codec that appends.
type codecAppender interface {
	Unmarshal(data []byte, message any) error
	MarshalAppend(dst []byte, message any) ([]byte, error)
}

// directState is what a connection has for its direct calls.
type directState struct {
	address string
	bounded *boundedConn
	// host is the Host that was accepted last.
	host string
	// busy is set while the connection has a call.
	busy bool

	// These belong to the request: its id, its caller, how long it may take, or 0, its format, the
	// request id in its header, and whether its answer may be compressed.
	callID    string
	ctx       context.Context //nolint:containedctx // of the request
	timeout   time.Duration
	format    directFormat
	requestID string
	gzip      bool
}

// newDirectCalls returns the direct calls of a handler.
func newDirectCalls(h *handler) *directCalls {
	const utf8 = "application/json; charset=utf-8"
	binary := codec.Binary{Bounds: codec.NewBounds(&h.limits), Buffers: h.buffers}
	text, _ := codec.NewJSON(codec.NameJSON, binary.Bounds).(codecAppender)
	plain := directFormat{"application/json", text, false}
	d := &directCalls{handler: h, formats: map[string]directFormat{
		"": plain, "application/x-www-form-urlencoded": plain, "application/json": plain, utf8: {utf8, text, false},
		"application/proto": {"application/proto", binary, true},
	}}
	const (
		put, puts    = belfryv1connect.QueueServicePutProcedure, belfryv1connect.QueueServicePutBatchProcedure
		ack, acks    = belfryv1connect.QueueServiceAckProcedure, belfryv1connect.QueueServiceAckBatchProcedure
		nack, extend = belfryv1connect.QueueServiceNackProcedure, belfryv1connect.QueueServiceExtendProcedure
	)
	d.add(put, directly(put, h.queues.Put, nil))
	d.add(puts, directly(puts, h.queues.PutBatch, h.queues.PutBatchBytes))
	d.add(ack, directly(ack, h.queues.Ack, nil))
	d.add(acks, directly(acks, h.queues.AckBatch, h.queues.AckBatchBytes))
	d.add(nack, directly(nack, h.queues.Nack, nil))
	d.add(belfryv1connect.QueueServiceReleaseProcedure,
		directly(belfryv1connect.QueueServiceReleaseProcedure, h.queues.Release, nil))
	d.add(extend, directly(extend, h.queues.Extend, nil))
	d.add(belfryv1connect.QueueServiceReserveProcedure, reserveDirectly)
	return d
}

// add routes a procedure under both of its paths.
func (d *directCalls) add(procedure string, call directCall) {
	m := directMethod{procedure, call}
	for path, c := range d.handler.calls {
		if c.method.procedure == procedure {
			d.paths, d.methods = append(d.paths, path), append(d.methods, m)
		}
	}
}

// message is a generated message of type M.
type message[M any] interface {
	*M
	proto.Message
}

// directly returns the call of a method on generated messages. fast, if it is not nil, carries out
// binary requests by their bytes.
func directly[M, A any, P message[M], Q message[A]](procedure string, method func(context.Context, *M) (*A, error),
	fast func(ctx context.Context, request, dst []byte) ([]byte, error)) directCall {
	return func(d *directCalls, c *http1.Conn, answer *directAnswer) (readable bool, err error) {
		s := stateOf(c)
		if fast != nil && s.format.binary && s.requestID == "" {
			return true, d.runDirect(s.ctx, s, procedure, func(ctx context.Context) error {
				return answer.write(func(dst []byte) ([]byte, error) { return fast(ctx, c.Body(), dst) })
			})
		}
		req := P(new(M))
		if s.format.codec.Unmarshal(c.Body(), req) != nil {
			return false, nil
		}
		return true, d.runDirect(s.ctx, s, procedure, func(ctx context.Context) error {
			if f := takeRequestID(req.ProtoReflect(), s.requestID); f != nil {
				return f
			}
			got, err := method(ctx, req)
			if err != nil {
				return err
			}
			return answer.write(func(dst []byte) ([]byte, error) { return s.format.codec.MarshalAppend(dst, Q(got)) })
		})
	}
}

// reserveDirectly is the call of Reserve. While it waits, the connection has no memory for the
// request.
func reserveDirectly(d *directCalls, c *http1.Conn, answer *directAnswer) (readable bool, err error) {
	s, req := stateOf(c), &belfryv1.ReserveRequest{}
	if s.format.codec.Unmarshal(c.Body(), req) != nil {
		return false, nil
	}
	if req.GetWait().AsDuration() > 0 {
		c.Park()
	}
	return true, d.runDirect(s.ctx, s, belfryv1connect.QueueServiceReserveProcedure, func(ctx context.Context) error {
		if f := takeRequestID(req.ProtoReflect(), s.requestID); f != nil {
			return f
		}
		if s.format.binary {
			return d.queues.Reserved(ctx, req, answer.write)
		}
		got, err := d.queues.Reserve(ctx, req)
		if err != nil {
			return err
		}
		return answer.write(func(dst []byte) ([]byte, error) { return s.format.codec.MarshalAppend(dst, got) })
	})
}

// runDirect makes a call by the interceptor, within its time.
func (d *directCalls) runDirect(ctx context.Context, s *directState, procedure string,
	call func(context.Context) error) error {
	if s.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		ctx = limited
	}
	return d.interceptor.run(ctx, &auth.Call{Procedure: procedure, Address: s.address, ID: s.callID},
		func() error { return call(ctx) })
}

// stateOf returns the state of a connection.
func stateOf(c *http1.Conn) *directState {
	s, ok := c.Local.(*directState)
	if !ok {
		s = &directState{address: c.NetConn().RemoteAddr().String(), bounded: boundedOf(c.NetConn())}
		c.Local = s
	}
	return s
}

// Admit implements http1.Handler. It makes the checks that come before the body of a request is
// read.
func (d *directCalls) Admit(c *http1.Conn) bool {
	s := stateOf(c)
	if c.BodyBytes() > d.limits.MessageBytesMax {
		return false
	}
	if d.local && string(c.Host()) != s.host {
		if !d.unclaimed(string(c.Host())) {
			return false
		}
		s.host = string(c.Host())
	}
	ok := false
	if s.format, ok = d.formats[string(c.Value(headerContentType))]; !ok {
		return false
	}
	if version := c.Value(headerProtocolVersion); version != nil && string(version) != "1" {
		return false
	}
	if s.timeout, ok = directTimeout(c.Value(headerTimeout)); !ok {
		return false
	}
	s.callID = correlation(string(c.Value(headerCallID)))
	s.requestID = string(c.Value(headerRequestID))
	s.gzip = acceptsGzip(c.Value(headerAcceptEncoding))
	if s.ctx, ok = d.authorizer.Known(c.Context(), string(c.Value(headerAuthorization)), s.address, s.callID); !ok {
		return false
	}
	if d.methods[c.Path()].procedure == belfryv1connect.QueueServiceReserveProcedure {
		ctx, f := auth.ClientContext(s.ctx, string(c.Value(headerClient)), s.address)
		if f != nil {
			return false
		}
		s.ctx = ctx
	}
	if s.bounded != nil {
		s.bounded.beginCall()
	}
	s.busy = true
	return true
}

// timeoutDigitsMax bounds the digits of Connect-Timeout-Ms, as Connect does.
const timeoutDigitsMax = 10

// directTimeout parses Connect-Timeout-Ms; it returns 0 if the header is absent.
func directTimeout(value []byte) (timeout time.Duration, ok bool) {
	if value == nil {
		return 0, true
	}
	millis := int64(0)
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		millis = 10*millis + int64(c-'0')
		if len(value) > timeoutDigitsMax {
			return 0, false
		}
	}
	return time.Duration(millis) * time.Millisecond, millis > 0
}

// acceptsGzip reports whether Connect would compress for this value of Accept-Encoding.
func acceptsGzip(value []byte) bool {
	for len(value) > 0 {
		end := 0
		for end < len(value) && value[end] != ',' && value[end] != ' ' {
			end++
		}
		if string(value[:end]) == "gzip" {
			return true
		}
		value = value[min(end+1, len(value)):]
	}
	return false
}

// Idle implements http1.Handler.
func (d *directCalls) Idle(c *http1.Conn) {
	s := stateOf(c)
	s.ctx = nil
	if s.busy && s.bounded != nil {
		s.bounded.setBusy(false)
	}
	s.busy = false
}

// Serve implements http1.Handler.
func (d *directCalls) Serve(c *http1.Conn) bool {
	size := int64(len(c.Body()))
	if !d.holdBody(size) {
		return false
	}
	defer d.bodyBytesInFlight.Add(-size)
	method, answer := &d.methods[c.Path()], directAnswer{pool: d.buffers}
	defer answer.release()
	readable, err := method.call(d, c, &answer)
	switch {
	case !readable:
		return false
	case err != nil:
		d.writeError(c, err)
	default:
		d.writeAnswer(c, *answer.buffer)
	}
	d.requestBytes.observe(method.procedure, size)
	return true
}

// writeAnswer writes an answer as net/http writes those of Connect.
func (d *directCalls) writeAnswer(c *http1.Conn, body []byte) {
	s, out := stateOf(c), c.Out()
	dst := append(*out, "HTTP/1.1 200 OK\r\nAccept-Encoding: gzip\r\nBelfry-Served-By: "...)
	dst = append(append(dst, d.name...), "\r\n"...)
	if s.gzip && len(body) >= compressBytesMin {
		if packed, ok := d.compress(body); ok {
			body = packed
			dst = append(dst, "Content-Encoding: gzip\r\n"...)
		}
	}
	dst = append(append(dst, "Content-Type: "...), s.format.answers...)
	dst = append(append(dst, "\r\nDate: "...), d.date.at(d.now())...)
	dst = append(append(dst, "\r\nX-Request-Id: "...), s.callID...)
	*out = appendEnd(dst, c, body)
}

// appendEnd appends the headers that net/http sets, and the body.
func appendEnd(dst []byte, c *http1.Conn, body []byte) []byte {
	dst = strconv.AppendInt(append(dst, "\r\nContent-Length: "...), int64(len(body)), 10)
	if c.Closes() {
		dst = append(dst, "\r\nConnection: close"...)
	}
	return append(append(dst, "\r\n\r\n"...), body...)
}

// compress returns body in gzip. ok is false if that failed.
func (d *directCalls) compress(body []byte) (packed []byte, ok bool) {
	gzip, ok := d.gzips.Get().(connect.Compressor)
	if !ok {
		gzip = codec.NewGzip()
	}
	defer d.gzips.Put(gzip)
	out := &memoryResponse{}
	gzip.Reset(out)
	if _, err := gzip.Write(body); err != nil || gzip.Close() != nil {
		return nil, false
	}
	return out.body.Bytes(), true
}

// writeError writes the error of a call as Connect does.
func (d *directCalls) writeError(c *http1.Conn, err error) {
	s, memory := stateOf(c), &memoryResponse{header: http.Header{}}
	memory.header.Set("Accept-Encoding", "gzip")
	memory.header.Set("Belfry-Served-By", d.name)
	memory.header.Set("Date", d.date.at(d.now()))
	memory.header.Set(auth.CallIDHeader, s.callID)
	request := &http.Request{Method: http.MethodPost, RemoteAddr: s.address, Header: http.Header{}}
	request.Header.Set("Content-Type", s.format.answers)
	answer := &reply{ResponseWriter: memory, request: request, handler: d.handler, known: true}
	writeFault(d.errors, answer, request, err)
	answer.finish()
	out := c.Out()
	dst := append(strconv.AppendInt(append(*out, "HTTP/1.1 "...), int64(memory.status), 10), ' ')
	dst = append(dst, http.StatusText(memory.status)...)
	fields := bytes.NewBuffer(append(dst, "\r\n"...))
	_ = memory.header.Write(fields) // it never fails
	*out = appendEnd(bytes.TrimSuffix(fields.Bytes(), []byte("\r\n")), c, memory.body.Bytes())
}
