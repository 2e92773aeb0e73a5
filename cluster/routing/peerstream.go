package routing

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node"
)

// pathStream opens a stream to another node: one HTTP/2 request that stays open. Its body carries
// calls of shards. Its response carries their answers, many at a time and in any order. Calls made
// at the same moment share the cost of one HTTP/2 request. Each message is
//
//	1 byte   kind
//	uvarint  number of the call, chosen by the caller
//	uvarint  length of the content
//	then the content
//
// The content of a call begins with uvarints: the shard, the retry budget and, for a Reserve, the
// wait; both times are in nanoseconds. The request follows, as a log entry of one request.
const pathStream = "/shard/lane"

// The kinds of messages in a stream, and which side sends them.
const (
	streamDo      = 1 // from the caller
	streamReserve = 2 // from the caller
	streamCancel  = 3 // from the caller: it does not want the answer any more
	streamStop    = 4 // from the caller: it does not want to wait any longer
	streamAnswer  = 5 // the answer, in the form of a response of its own
	streamRefusal = 6 // the answer is a peerError
	streamClosing = 7 // the server accepts no further calls
)

const (
	// streamRequestMax bounds the bytes of a request in a stream. A larger one would delay others,
	// and goes in an HTTP request of its own.
	streamRequestMax = 64 << 10
	// streamBufferBytes is the size of the buffers for messages, on each side.
	streamBufferBytes = 32 << 10
	// noStreamFor is how long no stream is opened to a node that answered that it knows none.
	noStreamFor = time.Minute
)

var (
	// errNoStream: the call needs an HTTP request of its own. No part of it was executed.
	errNoStream = errors.New("the other node has no stream for the call")
	// errStreamEnded fails the calls in a stream that the other node ended.
	errStreamEnded = errors.New("the other node ended the stream")
)

// appendStreamMessage appends a message.
func appendStreamMessage(dst []byte, kind byte, id uint64, content ...[]byte) []byte {
	dst = binary.AppendUvarint(append(dst, kind), id)
	length := 0
	for _, part := range content {
		length += len(part)
	}
	dst = binary.AppendUvarint(dst, uint64(length))
	for _, part := range content {
		dst = append(dst, part...)
	}
	return dst
}

// streamMessage is a received message.
type streamMessage struct {
	kind    byte
	id      uint64
	content []byte
}

// readStreamMessage reads a message of at most most bytes. It waits for the first byte without a
// limit. When the rest arrives too slowly it calls stalled, which must close from.
func readStreamMessage(from *bufio.Reader, most int64, stalled func()) (m streamMessage, err error) {
	if m.kind, err = from.ReadByte(); err != nil {
		return m, err
	}
	late := time.AfterFunc(stallTimeout, stalled)
	defer late.Stop()
	var length uint64
	if m.id, err = binary.ReadUvarint(from); err == nil {
		length, err = binary.ReadUvarint(from)
	}
	if err != nil {
		return m, fmt.Errorf("reading the head of a message: %w", err)
	}
	if length > uint64(most) { //nolint:gosec // a constant
		return m, fmt.Errorf("a message of %d bytes; %d are the most", length, most)
	}
	if length <= bufferInitialMax {
		m.content = make([]byte, length)
		_, err = io.ReadFull(from, m.content)
	} else {
		var content bytes.Buffer
		content.Grow(bufferInitialMax)
		body := newMinRateReader(from, func(until time.Time) { late.Reset(time.Until(until)) })
		_, err = io.CopyN(&content, body, int64(length)) //nolint:gosec // below most
		m.content = content.Bytes()
	}
	if err != nil {
		return m, fmt.Errorf("reading a message of %d bytes: %w", length, err)
	}
	return m, nil
}

// peerStreams holds this node's streams to other nodes. The zero value is ready for use.
type peerStreams struct {
	mu       sync.Mutex
	byServer map[string]*peerStream // the newest stream to each server; it may be draining
	all      map[*peerStream]struct{}
	noStream map[string]time.Time // when a node answered that it knows no streams
	closed   bool
	running  sync.WaitGroup
}

// peerStream is a stream to one server.
type peerStream struct {
	server string
	cancel context.CancelFunc
	wake   chan struct{} // wakes Read

	mu         sync.Mutex
	queue      []*streamWrite
	calls      map[uint64]*streamCall
	last       uint64
	draining   bool  // it accepts no more calls and ends with the last one
	bodyClosed bool  // it sends no more
	failed     error // why it ended
}

// streamWrite is a queued message.
type streamWrite struct {
	rest    []byte
	started bool // at least part of it was sent
}

// streamCall is a call in a stream.
type streamCall struct {
	id       uint64
	write    *streamWrite
	answered chan streamOutcome
}

// streamOutcome is how a call ended.
type streamOutcome struct {
	streamMessage
	err error
}

// callInStream makes a call in the stream to a server. It returns errNoStream if the call needs an
// HTTP request of its own.
func (p *Peers) callInStream(
	ctx context.Context, to forwardedTo, kind byte, wait node.Wait, entry []byte,
) ([]byte, error) {
	if len(entry) > streamRequestMax || !p.direct(to.server) {
		return nil, errNoStream
	}
	head := binary.AppendUvarint(nil, uint64(to.shard))
	head = binary.AppendUvarint(head, uint64(max(0, to.budget)))
	if kind == streamReserve {
		head = binary.AppendUvarint(head, uint64(max(0, wait.For)))
	}
	c := &streamCall{answered: make(chan streamOutcome, 1)}
	s := p.streams.startCall(p, to.server, c, kind, head, entry) //nolint:contextcheck // a stream outlives its calls
	if s == nil {
		return nil, errNoStream
	}
	stop := wait.Stop
	for {
		select {
		case a := <-c.answered:
			return a.result()
		case <-stop:
			s.sendControl(streamStop, c.id)
			stop = nil // it stays closed
		case <-ctx.Done():
			return s.abandonCall(ctx, c)
		}
	}
}

// result returns the answer of a call, or its error.
func (a streamOutcome) result() ([]byte, error) {
	switch {
	case a.err != nil:
		return nil, a.err
	case a.kind == streamAnswer:
		return a.content, nil
	default:
		return nil, readPeerError(http.StatusConflict, a.content)
	}
}

// startCall queues a call in the stream to a server, and opens the stream if there is none. It
// returns nil if the call needs an HTTP request of its own.
func (ss *peerStreams) startCall(p *Peers, server string, c *streamCall, kind byte, content ...[]byte) *peerStream {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.byServer[server]
	if s != nil && s.addCall(c, kind, content...) {
		return s
	}
	if since, is := ss.noStream[server]; ss.closed || is && time.Since(since) < noStreamFor || s != nil && s.full() {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	s = &peerStream{server: server, cancel: cancel, wake: make(chan struct{}, 1), calls: map[uint64]*streamCall{}}
	s.addCall(c, kind, content...)
	if ss.byServer == nil {
		ss.byServer, ss.all, ss.noStream = map[string]*peerStream{}, map[*peerStream]struct{}{}, map[string]time.Time{}
	}
	ss.byServer[server], ss.all[s] = s, struct{}{}
	ss.running.Go(func() {
		defer cancel()
		err := p.runStream(ctx, s)
		ss.remove(s, errors.Is(err, errNoStream))
		s.fail(err) //nolint:contextcheck // it has ended
	})
	return s
}

// remove removes a stream that has ended. noStream says that the server knows no streams.
func (ss *peerStreams) remove(s *peerStream, noStream bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.all, s)
	if ss.byServer[s.server] == s {
		delete(ss.byServer, s.server)
	}
	if delete(ss.noStream, s.server); noStream {
		ss.noStream[s.server] = time.Now()
	}
}

// drain makes all streams end with their last call, and allows no new stream.
func (ss *peerStreams) drain() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.closed = true
	for s := range ss.all {
		s.drain()
	}
}

// close waits until all streams have ended. It cuts them when ctx ends.
func (ss *peerStreams) close(ctx context.Context) {
	defer context.AfterFunc(ctx, func() {
		ss.mu.Lock()
		defer ss.mu.Unlock()
		for s := range ss.all {
			s.cancel()
		}
	})()
	ss.running.Wait()
}

// runStream opens a stream and reads its answers until it ends.
func (p *Peers) runStream(ctx context.Context, s *peerStream) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.server+pathStream, streamBody{s})
	if err != nil {
		return err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	defer s.cancel() // Close waits for the body of the request
	if response.StatusCode == http.StatusNotFound {
		return errNoStream
	}
	if response.StatusCode != http.StatusOK {
		_, err := readAnswer(ctx, response)
		return &streamRefusedError{err}
	}
	from := bufio.NewReaderSize(response.Body, streamBufferBytes)
	for {
		m, err := readStreamMessage(from, peerBytesMax, s.cancel)
		switch {
		case errors.Is(err, io.EOF):
			return errStreamEnded
		case err != nil:
			return err
		case m.kind == streamClosing:
			s.drain()
		default:
			s.completeCall(m)
		}
	}
}

// streamRefusedError fails a stream of which the server read nothing.
type streamRefusedError struct{ cause error }

// Error implements error.
func (e *streamRefusedError) Error() string { return e.cause.Error() }

// Unwrap returns the server's answer.
func (e *streamRefusedError) Unwrap() error { return e.cause }

// addCall queues a call. It reports false if the stream accepts no more calls.
func (s *peerStream) addCall(c *streamCall, kind byte, content ...[]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining || s.bodyClosed || s.failed != nil || len(s.calls) >= peerCallsMax {
		return false
	}
	s.last++
	c.id = s.last
	c.write = &streamWrite{rest: appendStreamMessage(nil, kind, c.id, content...)}
	s.calls[c.id] = c
	s.queue = append(s.queue, c.write)
	s.wakeUp()
	return true
}

// full reports whether the stream has as many calls as it may have.
func (s *peerStream) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) >= peerCallsMax
}

// wakeUp wakes Read.
func (s *peerStream) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// sendControl queues a message without content about a call that has no answer yet.
func (s *peerStream) sendControl(kind byte, id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[id] != nil {
		s.queue = append(s.queue, &streamWrite{rest: appendStreamMessage(nil, kind, id)})
		s.wakeUp()
	}
}

// abandonCall ends a call whose caller does not want the answer any more.
func (s *peerStream) abandonCall(ctx context.Context, c *streamCall) ([]byte, error) {
	s.sendControl(streamCancel, c.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[c.id] == nil { // answered at the same moment
		return (<-c.answered).result()
	}
	delete(s.calls, c.id)
	s.wakeUp() // the call may have been the last one
	sent := c.write.started
	if !sent {
		c.write.rest = nil // the server ignores the cancel message of a call that it does not know
	}
	return nil, unreached(ctx, sent, context.Cause(ctx))
}

// completeCall ends a call with the answer of the server.
func (s *peerStream) completeCall(m streamMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.calls[m.id]; c != nil {
		delete(s.calls, m.id)
		c.answered <- streamOutcome{streamMessage: m}
	}
	if s.draining {
		s.wakeUp()
	}
}

// drain makes the stream end with its last call.
func (s *peerStream) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	s.wakeUp()
}

// fail ends all calls. A call that was sent has an unknown outcome, unless the server refused the
// whole stream. An errNoStream stays one.
func (s *peerStream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
	for _, c := range s.calls {
		out := streamOutcome{err: unreached(context.Background(), c.write.started, err)}
		if refused, ok := errors.AsType[*streamRefusedError](err); ok {
			out.err = refused.cause
		}
		c.answered <- out
	}
	clear(s.calls)
	s.queue = nil
	s.wakeUp()
}

// streamBody is the request body of a stream.
type streamBody struct{ *peerStream }

// Read implements io.Reader. It reads all queued messages, and ends when the stream does.
func (b streamBody) Read(p []byte) (int, error) {
	for {
		n, over := b.readQueue(p)
		if n > 0 {
			return n, nil
		}
		if over {
			return 0, io.EOF
		}
		<-b.wake
	}
}

// readQueue copies queued messages to p. It reports whether no more will follow.
func (s *peerStream) readQueue(p []byte) (n int, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n < len(p) && len(s.queue) > 0 {
		m := s.queue[0]
		m.started = true
		k := copy(p[n:], m.rest)
		n += k
		if m.rest = m.rest[k:]; len(m.rest) == 0 {
			s.queue[0] = nil
			s.queue = s.queue[1:]
		}
	}
	return n, s.bodyClosed || s.failed != nil || s.draining && len(s.calls) == 0
}

// Close implements io.Closer. It ends a Read.
func (b streamBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bodyClosed = true
	b.wakeUp()
	return nil
}

// namePeerError encodes an error for the other node. An error without a name has an unknown
// outcome.
func namePeerError(err error) []byte {
	out := peerError{Name: "unknown_outcome", Text: err.Error()}
	for name, known := range peerErrors() {
		// An error that wraps several has the worst outcome, else the name that says most.
		if errors.Is(err, known) && !errors.Is(err, node.ErrUnknownOutcome) && saysMore(name, out.Name) {
			out.Name = name
		}
	}
	if older, ok := olderNames()[out.Name]; ok {
		out.Name, out.Precise = older, out.Name
	}
	if quota, ok := errors.AsType[*node.QuotaError](err); ok {
		out.Quota = quota
	}
	if queues, ok := errors.AsType[*node.QueuesError](err); ok {
		out.Queues = queues
	}
	if none, ok := errors.AsType[*node.NoQueueError](err); ok {
		out.NoQueue = none
	}
	if memory, ok := errors.AsType[*node.MemoryError](err); ok {
		out.Memory = memory
	}
	if voters, ok := errors.AsType[*node.VotersError](err); ok {
		out.Voters = voters
	}
	b, _ := json.Marshal(out) // strings and numbers
	return b
}
