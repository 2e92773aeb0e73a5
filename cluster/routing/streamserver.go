package routing

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// streamDrainWait is how long a node that stops still reads a stream, to refuse the calls that
// were sent before the other node knew of the stop.
const streamDrainWait = 250 * time.Millisecond

// streamCloseDelay is how long a stream stays unchanged when its node stops. Meanwhile the
// connection sends its own GOAWAY. The other side closes a connection at once if its last call
// ends after the GOAWAY. If the last call ended before it, the connection stays open until this
// node's time limit.
const streamCloseDelay = 5 * time.Millisecond

// streamIdleMax bounds the idle goroutines of a stream. A new goroutine starts with a small stack,
// and growing that costs as much as the call.
const streamIdleMax = 64

// streamServer executes the calls in a stream from another node.
type streamServer struct {
	peers       *Peers
	host        waitingHost
	caller      string // server id
	ctx         context.Context
	wake        chan struct{} // wakes writeMessages
	idleWorkers chan func()   // calls for idle goroutines
	readDone    chan struct{} // closed when no more calls arrive

	workers sync.WaitGroup

	mu         sync.Mutex
	idle       int
	out        []byte // messages to write
	calls      map[uint64]*serverCall
	closing    bool
	writesDone bool // writeMessages ends when out is written
}

// serverCall is a call under way.
type serverCall struct {
	cancel context.CancelFunc
	stop   chan struct{} // closed when the call must not wait any longer
	waits  bool
	// stopped: the caller sent streamStop; stopClosed: stop is closed.
	stopped, stopClosed bool
}

// serveStream answers the calls in a stream until it ends.
func (p *Peers) serveStream(w http.ResponseWriter, r *http.Request, host waitingHost) {
	from, _ := r.Context().Value(peerKey{}).(string)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s := newStreamServer(ctx, p, host, from)
	control := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	_ = control.Flush() // a lost caller shows when the body is read
	var writing sync.WaitGroup
	writing.Go(func() { s.writeMessages(w, control.Flush) })
	writing.Go(func() {
		select {
		case <-p.closing:
			select {
			case <-time.After(streamCloseDelay):
			case <-s.readDone:
				return
			}
			s.drain()
			_ = control.SetReadDeadline(time.Now().Add(streamDrainWait)) // HTTP/2 has deadlines
		case <-s.readDone:
		}
	})
	body := bufio.NewReaderSize(r.Body, streamBufferBytes)
	for {
		// Closing the body, unlike a deadline, also works when the request has ended.
		m, err := readStreamMessage(body, streamRequestMax+3*binary.MaxVarintLen64, func() { _ = r.Body.Close() })
		if err == nil {
			s.handleMessage(m) //nolint:contextcheck // the calls use the stream's context
			continue
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel() // no caller is left for the answers
		}
		break
	}
	close(s.readDone)
	s.workers.Wait()
	s.finishWrites()
	writing.Wait()
}

func newStreamServer(ctx context.Context, p *Peers, host waitingHost, from string) *streamServer {
	return &streamServer{
		peers: p, host: host, caller: from, ctx: ctx, wake: make(chan struct{}, 1),
		idleWorkers: make(chan func()), readDone: make(chan struct{}), calls: map[uint64]*serverCall{},
	}
}

// startWorker runs a call in an idle goroutine, or in a new one.
func (s *streamServer) startWorker(call func()) {
	select {
	case s.idleWorkers <- call:
	default:
		s.workers.Go(func() {
			for call != nil {
				call()
				call = s.nextCall()
			}
		})
	}
}

// nextCall waits for the next call. It returns nil if this goroutine must end.
func (s *streamServer) nextCall() (call func()) {
	s.mu.Lock()
	if s.idle >= streamIdleMax {
		s.mu.Unlock()
		return nil
	}
	s.idle++
	s.mu.Unlock()
	select {
	case call = <-s.idleWorkers:
	case <-s.readDone:
	}
	s.mu.Lock()
	s.idle--
	s.mu.Unlock()
	return call
}

// handleMessage handles a message from the caller.
func (s *streamServer) handleMessage(m streamMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := s.calls[m.id]
	switch {
	case m.kind == streamCancel && call != nil:
		call.cancel()
	case m.kind == streamStop && call != nil:
		call.stopped = true
		call.stopWaiting()
	case m.kind != streamDo && m.kind != streamReserve || call != nil:
		// Its call was answered meanwhile, or no member sends such a message.
	case s.closing:
		s.queueMessage(streamRefusal, m.id, namePeerError(node.ErrShuttingDown))
	case len(s.calls) >= peerCallsMax || len(s.out) > peerBytesMax:
		// Queued answers count also when their callers have left.
		err := fmt.Errorf("%w: %d calls from %s, %d bytes of answers",
			node.ErrOverloaded, len(s.calls), s.caller, len(s.out))
		s.queueMessage(streamRefusal, m.id, namePeerError(err))
	default:
		ctx, cancel := context.WithCancel(s.ctx)
		call = &serverCall{cancel: cancel, stop: make(chan struct{})}
		s.calls[m.id] = call
		s.startWorker(func() {
			defer cancel()
			reply, err := s.execute(ctx, m, call)
			kind, content := streamReply(&reply, err, peerBytesMax)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.calls, m.id)
			s.queueMessage(kind, m.id, content)
		})
	}
}

// streamReply returns the message that ends a call. An answer of more than most bytes becomes an
// error: it would end the stream.
func streamReply(reply *node.Reply, err error, most int) (kind byte, content []byte) {
	if err == nil {
		if content = appendReply(nil, reply, heldBy(reply), fsm.FirstFormat); len(content) <= most {
			return streamAnswer, content
		}
		err = fmt.Errorf("%w: the answer is larger than %d bytes", node.ErrUnknownOutcome, most)
	}
	return streamRefusal, namePeerError(err)
}

// stopWaiting closes stop. streamServer.mu is held.
func (c *serverCall) stopWaiting() {
	if !c.stopClosed {
		c.stopClosed = true
		close(c.stop)
	}
}

// execute executes a call.
func (s *streamServer) execute(ctx context.Context, m streamMessage, call *serverCall) (_ node.Reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: a panic", node.ErrUnknownOutcome)
			// net/http logs a panic in a request of its own in the same way.
			s.peers.server.ErrorLog.Printf("a panic in a call of %s: %v\n%s", s.caller, p, debug.Stack())
		}
	}()
	if err := s.peers.admits(s.caller); err != nil {
		return node.Reply{}, err
	}
	var fields [3]uint64 // shard, retry budget, wait
	n, content := 2, m.content
	if m.kind == streamReserve {
		n = 3
	}
	for i := range n {
		v, size := binary.Uvarint(content)
		if size <= 0 || v > 1<<62 {
			return node.Reply{}, fmt.Errorf("%w: a call in a stream is cut off", node.ErrCanceled)
		}
		fields[i], content = v, content[size:]
	}
	req, err := parseForwarded(content, s.host.Format())
	if err != nil {
		return node.Reply{}, err
	}
	shard, host := uint32(fields[0]), s.host //nolint:gosec // an unknown shard is refused
	if fields[1] > 0 {
		host.most = min(time.Duration(fields[1]), LeaderWait) //nolint:gosec // checked above
	}
	if m.kind == streamDo {
		return host.Do(ctx, shard, req)
	}
	wait := node.Wait{For: time.Duration(fields[2]), Stop: call.stop} //nolint:gosec // checked above
	s.setWaits(call, wait.For > 0)
	reply, err := host.Reserve(ctx, shard, req, wait)
	if err == nil && s.cutShort(call) && !granted(&reply) {
		err = node.ErrShuttingDown // its wait was cut short
	}
	return reply, err
}

// setWaits records whether a call waits.
func (s *streamServer) setWaits(call *serverCall, does bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call.waits = does; does && s.closing {
		call.stopWaiting()
	}
}

// cutShort reports whether this node ended the wait of a call because it stops.
func (s *streamServer) cutShort(call *serverCall) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return call.waits && s.closing && !call.stopped
}

// drain accepts no more calls, and ends the waits of those that wait.
func (s *streamServer) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for _, call := range s.calls {
		if call.waits {
			call.stopWaiting()
		}
	}
	s.queueMessage(streamClosing, 0, nil)
}

// queueMessage queues a message. mu is held.
func (s *streamServer) queueMessage(kind byte, id uint64, content []byte) {
	s.out = appendStreamMessage(s.out, kind, id, content)
	s.wakeUp()
}

func (s *streamServer) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// finishWrites makes writeMessages end when all is written.
func (s *streamServer) finishWrites() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writesDone = true
	s.wakeUp()
}

// writeMessages writes queued messages, all of them in one write. A caller that does not read them
// is found when its body is read.
func (s *streamServer) writeMessages(w io.Writer, flush func() error) {
	var spare []byte
	for range s.wake {
		s.mu.Lock()
		out, over := s.out, s.writesDone
		s.out = spare[:0]
		s.mu.Unlock()
		if len(out) > 0 {
			_, _ = w.Write(out)
			_ = flush()
		}
		if over {
			return
		}
		if spare = out; cap(spare) > streamBufferBytes {
			spare = nil
		}
	}
}
