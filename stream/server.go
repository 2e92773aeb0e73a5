package stream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ServerConfig has the form and the limits of the serving side of a protocol.
type ServerConfig struct {
	// Protocol is the name of the protocol. Headers are those of the answer to a request for a stream.
	Protocol string
	Headers  []string
	// Stops says that the protocol has the kind Stop.
	Stops bool
	// Leaving is closed when the server stops.
	Leaving <-chan struct{}
	// Now is the clock that answers carry.
	Now func() time.Time
	// Silence is how long a caller may be silent. RequestWait is how long a request may take to
	// arrive.
	Silence, RequestWait time.Duration
	// Write bounds the time of a write.
	Write Limit
	// CallsMax bounds the calls of one stream that are under way, RequestBytesMax a request, and
	// UnwrittenBytesMax the answers of one stream that wait because the caller does not read. A call
	// beyond one of them is refused.
	CallsMax, RequestBytesMax int
	UnwrittenBytesMax         int64
}

// A Host carries out the calls of one stream. Its methods are called by many goroutines.
type Host interface {
	// Knows reports whether there is a method. A call of any other ends the stream.
	Knows(m Method) bool
	// Allowed returns nil if the caller may go on. Each ping asks.
	Allowed(ctx context.Context) error
	// Hold asks for memory for bytes of a request that arrive, Release gives it back.
	Hold(bytes int64) bool
	Release(bytes int64)
	// Buffer returns memory for a request or an answer, and Recycle takes it back.
	Buffer() *[]byte
	Recycle(buffer *[]byte)
	// Do carries out a call and appends the answer to dst. The request's memory is recycled when it
	// returns.
	Do(ctx context.Context, t *Task, dst []byte) ([]byte, error)
	// Failure encodes why a call failed: an error of Do, or a *Refusal.
	Failure(err error) ([]byte, error)
}

// A Server has the streams of the serving side, which net/http no longer tracks. NewServer makes a
// Server.
type Server struct {
	config *ServerConfig
	idle   atomic.Int64 // goroutines of all streams that have no call

	mu   sync.Mutex
	open map[*serving]net.Conn // nil until the connection is hijacked
	over bool                  // hijacked connections are closed
	none chan struct{}         // closed when there are no streams; nil while Wait is not called
}

// NewServer returns a server without streams.
func NewServer(config *ServerConfig) *Server {
	return &Server{config: config, open: map[*serving]net.Conn{}}
}

// Serve takes over the connection of a request for a stream, and has host carry out its calls until
// it ends. After an error the request is still to be answered.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, host Host) error {
	x := s.add(host) // while net/http still tracks the connection, so that a stop misses no stream
	defer s.remove(x)
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("upgrading a connection: %w", err)
	}
	rest := io.LimitReader(buffered, int64(buffered.Reader.Buffered()))
	x.in = bufio.NewReaderSize(io.MultiReader(rest, conn), bufferBytes)
	x.run(context.WithoutCancel(r.Context()), conn, w.Header())
	return nil
}

// add makes a stream and counts it.
func (s *Server) add(host Host) *serving {
	x := &serving{server: s, config: s.config, host: host, calls: map[uint32]*Task{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[x] = nil
	return x
}

// connected records the connection of a stream.
func (s *Server) connected(x *serving, conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[x] = conn
	if s.over {
		_ = conn.Close() // its calls end
	}
}

func (s *Server) remove(x *serving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, x)
	if len(s.open) == 0 && s.none != nil {
		close(s.none)
		s.none = nil
	}
}

// Wait waits until all streams have ended, as they do once the server leaves. When ctx ends, it
// closes the others.
func (s *Server) Wait(ctx context.Context) error {
	s.mu.Lock()
	if len(s.open) == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.none == nil {
		s.none = make(chan struct{})
	}
	none := s.none
	s.mu.Unlock()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, conn := range s.open {
		if conn != nil {
			_ = conn.Close() // its calls end
		}
	}
	return context.Cause(ctx)
}
