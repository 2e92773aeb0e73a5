package routing

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/stream"
)

// streamHost executes the calls in a stream from another node.
type streamHost struct {
	peers  *Peers
	host   waitingHost
	caller string // server id
}

// newStreamServer returns what serves streams of other nodes.
func (p *Peers) newStreamServer() *stream.Server {
	return stream.NewServer(&stream.ServerConfig{
		Protocol: peerProtocol, Stops: true, Leaving: p.closing, Now: time.Now,
		Silence: peerPingAfter + peerPingWait, RequestWait: stallTimeout, Write: streamLimit(),
		CallsMax: peerCallsMax, RequestBytesMax: streamRequestMax + 3*binary.MaxVarintLen64, UnwrittenBytesMax: peerBytesMax,
	})
}

// serveStream answers the calls in a stream until it ends.
func (p *Peers) serveStream(w http.ResponseWriter, r *http.Request, host waitingHost) {
	if !stream.Asked(w, r, peerProtocol, "this path is for streams between nodes") {
		return
	}
	if isClosed(p.closing) {
		writePeerError(w, node.ErrShuttingDown)
		return
	}
	from, _ := r.Context().Value(peerKey{}).(string)
	if err := p.serving.Serve(w, r, &streamHost{peers: p, host: host, caller: from}); err != nil {
		writePeerError(w, fmt.Errorf("%w: %w", node.ErrOverloaded, err))
	}
}

// Knows implements stream.Host.
func (s *streamHost) Knows(m stream.Method) bool { return m == streamDo || m == streamReserve }

// Allowed implements stream.Host. Each call checks anew that its node is a member.
func (s *streamHost) Allowed(context.Context) error { return nil }

// Hold implements stream.Host: requests are small.
func (s *streamHost) Hold(int64) bool { return true }

// Release implements stream.Host.
func (s *streamHost) Release(int64) {}

// Buffer implements stream.Host. A node may keep parts of a request.
func (s *streamHost) Buffer() *[]byte { return new([]byte) }

// Recycle implements stream.Host.
func (s *streamHost) Recycle(*[]byte) {}

// Failure implements stream.Host.
func (s *streamHost) Failure(err error) ([]byte, error) {
	if refused, ok := errors.AsType[*stream.Refusal](err); ok {
		switch refused.Reason {
		case stream.ServerLeaves:
			err = node.ErrShuttingDown
		case stream.TooLarge, stream.NumberInUse:
			err = fmt.Errorf("%w: %w", node.ErrCanceled, err)
		case stream.TooManyCalls, stream.TooManyAnswers, stream.NoRequestMemory:
			err = fmt.Errorf("%w: too many calls from %s: %w", node.ErrOverloaded, s.caller, err)
		}
	}
	return namePeerError(err), nil
}

// Do implements stream.Host.
func (s *streamHost) Do(ctx context.Context, t *stream.Task, dst []byte) ([]byte, error) {
	reply, format, err := s.execute(ctx, t)
	if err != nil {
		return dst, err
	}
	return streamReply(&reply, format, dst, peerBytesMax)
}

// streamReply appends an answer. An answer of more than most bytes becomes an error: it would end
// the stream.
func streamReply(reply *node.Reply, format fsm.Format, dst []byte, most int) ([]byte, error) {
	if dst = appendReply(dst, reply, heldBy(reply), format); len(dst) > most {
		return nil, fmt.Errorf("%w: the answer is larger than %d bytes", node.ErrUnknownOutcome, most)
	}
	return dst, nil
}

// execute executes a call. It also returns the format of the request.
func (s *streamHost) execute(ctx context.Context, t *stream.Task) (_ node.Reply, format fsm.Format, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: a panic", node.ErrUnknownOutcome)
			// net/http logs a panic in a request of its own in the same way.
			s.peers.server.ErrorLog.Printf("a panic in a call of %s: %v\n%s", s.caller, p, debug.Stack())
		}
	}()
	if err := s.peers.admits(s.caller); err != nil {
		return node.Reply{}, 0, err
	}
	var fields [3]uint64 // shard, retry budget, wait
	n, content := 2, t.Request
	if t.Method == streamReserve {
		n = 3
	}
	for i := range n {
		v, size := binary.Uvarint(content)
		if size <= 0 || v > 1<<62 {
			return node.Reply{}, 0, fmt.Errorf("%w: a call in a stream is cut off", node.ErrCanceled)
		}
		fields[i], content = v, content[size:]
	}
	req, err := parseForwarded(content, s.host.Format())
	if err != nil {
		return node.Reply{}, 0, err
	}
	format = fsm.FormatOf(content)
	shard, host := uint32(fields[0]), s.host //nolint:gosec // an unknown shard is refused
	if fields[1] > 0 {
		host.most = min(time.Duration(fields[1]), LeaderWait) //nolint:gosec // checked above
	}
	if t.Method == streamDo {
		reply, err := host.Do(ctx, shard, req)
		return reply, format, err
	}
	wait := node.Wait{For: time.Duration(fields[2]), Stop: t.Stop} //nolint:gosec // checked above
	reply, err := host.Reserve(ctx, shard, req, wait)
	if err == nil && wait.For > 0 && t.CutShort() && !decided(&reply) {
		err = node.ErrShuttingDown // its wait was cut short
	}
	return reply, format, err
}
