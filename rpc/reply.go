package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/inbound"
)

// reply is the response writer of a call. It keeps promises that Connect's handlers do not keep. An
// error that Connect creates gets a reason, as all others have. An error body ends in a newline. An
// empty refusal gets a body. A slow reader has a deadline.
type reply struct {
	http.ResponseWriter
	request *http.Request
	handler *handler
	// known is set once the caller has shown a valid token, or if calls need none.
	known bool
	// foreign says that the handler speaks another protocol: its errors are sent as they are.
	foreign bool
	// stream has the deadlines of a streamed answer; nil for a unary one.
	stream *inbound.Stream

	// wrote is set once the status is sent.
	wrote bool
	// status and captured buffer an error answer until it is complete.
	status   int
	captured *bytes.Buffer
}

// Unwrap lets http.ResponseController reach the connection.
func (o *reply) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// WriteHeader sends a status, or buffers that of an error.
func (o *reply) WriteHeader(status int) {
	switch {
	case o.wrote || o.captured != nil:
	case status >= 400 && !o.foreign:
		o.status, o.captured = status, &bytes.Buffer{}
	default:
		o.commit(status)
	}
}

// strangerWait is how long a caller that has shown no token may take to read an answer, which is
// short. It is longer than leftoverWait, which may pass before net/http writes an answer.
const strangerWait = 5 * time.Second

// commit sends the status and sets the write deadline, which alone bounds how long the client may
// take to read. On HTTP/2 the server's settings bound writes to the connection, but not the wait
// for the client's flow-control windows.
func (o *reply) commit(status int) {
	o.wrote = true
	o.explainGRPC("")
	if o.stream != nil {
		o.stream.Answering()
	} else {
		wait := o.handler.limits.ResponseWait
		if !o.known {
			wait = min(wait, strangerWait)
		}
		// The owner of a connection without deadlines, such as a test, bounds the write.
		_ = http.NewResponseController(o.ResponseWriter).SetWriteDeadline(time.Now().Add(wait))
	}
	o.ResponseWriter.WriteHeader(status)
}

// Write sends bytes, or buffers those of an error.
func (o *reply) Write(p []byte) (int, error) {
	if o.captured != nil {
		return o.captured.Write(p)
	}
	if !o.wrote {
		o.commit(http.StatusOK)
	}
	if o.stream != nil {
		o.stream.Sending()
	}
	n, err := o.ResponseWriter.Write(p)
	if err != nil {
		return n, fmt.Errorf("answering %s: %w", o.request.RemoteAddr, err)
	}
	return n, nil
}

// Flush sends the bytes written so far. It does not send a buffered error.
func (o *reply) Flush() {
	if o.captured != nil {
		return
	}
	if !o.wrote {
		o.commit(http.StatusOK)
	}
	// If the flush fails, the bytes go out at the end.
	_ = http.NewResponseController(o.ResponseWriter).Flush()
	if o.stream != nil {
		o.stream.Sent()
	}
}

// finish sends a buffered error.
func (o *reply) finish() {
	o.explainGRPC(http.TrailerPrefix)
	if o.captured == nil {
		return
	}
	body := o.captured.Bytes()
	if !describesItself(o.Header().Get("Content-Type"), body) {
		f := o.explain(body)
		if !slices.Contains(refusals(), o.status) {
			o.status = statusOf(f)
		}
		body = connectJSON(f)
		o.Header().Set("Content-Type", "application/json")
	}
	o.Header().Del("Content-Length")
	if len(body) == 0 || body[len(body)-1] != '\n' {
		body = append(body, '\n')
	}
	o.captured = nil
	o.commit(o.status)
	// This fails only if the client is gone.
	_, _ = o.ResponseWriter.Write(body)
}

// describesItself reports whether an answer needs no explanation. That is an error with details, or
// an answer that is no Connect error, such as the list of failed checks of /readyz.
func describesItself(contentType string, body []byte) bool {
	if len(body) == 0 {
		return false
	}
	if !strings.HasPrefix(contentType, "application/json") {
		return true
	}
	var wire struct {
		Details []json.RawMessage `json:"details"`
	}
	return json.Unmarshal(body, &wire) == nil && len(wire.Details) > 0
}

// refusals returns the statuses with which Connect refuses a request without a body. They say more
// than the status of the fault's code.
func refusals() []int {
	return []int{http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusHTTPVersionNotSupported}
}

// explain returns the fault for an answer that Connect created.
func (o *reply) explain(body []byte) *fault.Error {
	switch o.status {
	case http.StatusMethodNotAllowed:
		f := fault.New(belfryv1.Reason_REASON_UNIMPLEMENTED)
		f.Message = o.request.Method + " is not allowed here; use " + o.Header().Get("Allow")
		return f
	case http.StatusUnsupportedMediaType:
		return fault.Invalid("Content-Type", "%s is not taken here; send JSON as application/json",
			fault.Quote([]byte(o.request.Header.Get("Content-Type"))))
	case http.StatusHTTPVersionNotSupported:
		f := fault.New(belfryv1.Reason_REASON_UNIMPLEMENTED)
		f.Message = "this method is a bidirectional stream and needs HTTP/2"
		return f
	}
	var wire struct {
		Code    connect.Code `json:"code"`
		Message string       `json:"message"`
	}
	if json.Unmarshal(body, &wire) != nil {
		return fault.Explain(connect.CodeInvalidArgument, http.StatusText(o.status))
	}
	return fault.Explain(wire.Code, wire.Message)
}

// explainGRPC adds the reason to a gRPC error that Connect created. gRPC sends the error in
// trailers. gRPC-Web sends it in headers if no message was sent before.
func (o *reply) explainGRPC(prefix string) {
	header := o.ResponseWriter.Header()
	status := header.Get(prefix + "Grpc-Status")
	if status == "" || status == "0" || header.Get(prefix+"Grpc-Status-Details-Bin") != "" {
		return
	}
	code, err := strconv.ParseUint(status, 10, 32)
	if err != nil {
		return
	}
	memory := &memoryResponse{header: http.Header{}}
	writeFault(o.handler.errors, memory, o.request,
		fault.Explain(connect.Code(code), header.Get(prefix+"Grpc-Message")).Wire())
	for _, key := range []string{"Grpc-Status", "Grpc-Message", "Grpc-Status-Details-Bin"} {
		if value := memory.header.Get(key); value != "" {
			header.Set(prefix+key, value)
		}
	}
}

// statusOf returns the HTTP status of a fault.
func statusOf(f *fault.Error) int {
	memory := &memoryResponse{header: http.Header{}}
	writeFault(connect.NewErrorWriter(), memory, &http.Request{Method: http.MethodPost, Header: http.Header{}}, f.Wire())
	return memory.status
}

// connectJSON returns a fault as the body of a Connect error.
func connectJSON(f *fault.Error) []byte {
	memory := &memoryResponse{header: http.Header{}}
	writeFault(connect.NewErrorWriter(), memory, &http.Request{Method: http.MethodPost, Header: http.Header{}}, f.Wire())
	return memory.body.Bytes()
}

// memoryResponse is a response that is kept in memory.
type memoryResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (m *memoryResponse) Header() http.Header { return m.header }

// WriteHeader implements http.ResponseWriter.
func (m *memoryResponse) WriteHeader(status int) { m.status = status }

// Write implements http.ResponseWriter.
func (m *memoryResponse) Write(p []byte) (int, error) { return m.body.Write(p) }
