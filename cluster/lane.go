package cluster

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

// A lane is one call of HTTP/2 between two nodes that stays open. Calls of shards travel in its body and are answered in its answer, many at a time and in
// any order, so that those of one moment share what a call of its own costs. Each message is
//
//	1 byte   kind
//	uvarint  number of the call, given by who makes it
//	uvarint  length of the content
//	then the content
//
// A call has the shard, the retry budget and, of a Reserve, the wait in nanoseconds as uvarints, and then the request as a log entry of one request.
const pathLane = "/shard/lane"

// The kinds of messages in a lane, and who sends them.
const (
	laneDo      = 1 // the caller
	laneReserve = 2 // the caller
	laneCancel  = 3 // the caller takes no answer any more
	laneStop    = 4 // the caller waits no more
	laneAnswer  = 5 // the answer, as after a call of its own
	laneRefusal = 6 // the answer is a peerError
	laneClosing = 7 // no further calls are taken
)

const (
	// laneBytesMax bounds a request in a lane: a large one would keep others waiting, and has a call of its own.
	laneBytesMax = 64 << 10
	// laneRoom is the room for messages on their way, on each side.
	laneRoom = 32 << 10
	// oldFor is how long a node that knows no lanes is not asked for one again.
	oldFor = time.Minute
)

var (
	// errNoLane: the call needs one of its own. Nothing of it was carried out.
	errNoLane = errors.New("the other node has no lane for the call")
	// errLaneEnded is what ends the calls in a lane that the other node ended.
	errLaneEnded = errors.New("the other node ended the lane")
)

// appendLane appends a message.
func appendLane(dst []byte, kind byte, id uint64, content ...[]byte) []byte {
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

// laneMessage is a message that came.
type laneMessage struct {
	kind    byte
	id      uint64
	content []byte
}

// readLane reads a message of at most so many bytes. The first byte may take for ever; stalled is called when the rest comes too slowly, and must end from.
func readLane(from *bufio.Reader, most int64, stalled func()) (m laneMessage, err error) {
	if m.kind, err = from.ReadByte(); err != nil {
		return m, err
	}
	late := time.AfterFunc(paceWait, stalled)
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
	if length <= roomAtFirst {
		m.content = make([]byte, length)
		_, err = io.ReadFull(from, m.content)
	} else {
		var content bytes.Buffer
		content.Grow(roomAtFirst)
		paced := newPaced(from, func(until time.Time) { late.Reset(time.Until(until)) })
		_, err = io.CopyN(&content, paced, int64(length)) //nolint:gosec // below most
		m.content = content.Bytes()
	}
	if err != nil {
		return m, fmt.Errorf("reading a message of %d bytes: %w", length, err)
	}
	return m, nil
}

// lanes are this node's lanes to others. The zero value is ready for use.
type lanes struct {
	mu       sync.Mutex
	byServer map[string]*lane // that take calls, or did so last
	all      map[*lane]struct{}
	old      map[string]time.Time // when a node said that it knows no lanes
	closed   bool
	running  sync.WaitGroup
}

// lane is one of them.
type lane struct {
	server string
	cancel context.CancelFunc
	wake   chan struct{} // told that Read has something to do

	mu       sync.Mutex
	queue    []*laneSent
	calls    map[uint64]*laneCall
	last     uint64
	retiring bool  // it takes no more calls and ends with the last
	shut     bool  // nothing is sent any more
	failed   error // it is over
}

// laneSent is a message that is to be sent.
type laneSent struct {
	rest  []byte
	taken bool // at least in part
}

// laneCall is a call in a lane.
type laneCall struct {
	id       uint64
	sent     *laneSent
	answered chan laneOutcome
}

// laneOutcome is the end of a call.
type laneOutcome struct {
	laneMessage
	err error
}

// inLane makes a call in the lane to a server. It returns errNoLane if the call needs one of its own.
func (p *peers) inLane(ctx context.Context, to forwardedTo, kind byte, wait node.Wait, entry []byte) ([]byte, error) {
	if len(entry) > laneBytesMax || !p.direct(to.server) {
		return nil, errNoLane
	}
	head := binary.AppendUvarint(nil, uint64(to.shard))
	head = binary.AppendUvarint(head, uint64(max(0, to.budget)))
	if kind == laneReserve {
		head = binary.AppendUvarint(head, uint64(max(0, wait.For)))
	}
	c := &laneCall{answered: make(chan laneOutcome, 1)}
	l := p.lanes.take(p, to.server, c, kind, head, entry) //nolint:contextcheck // a lane outlives its calls
	if l == nil {
		return nil, errNoLane
	}
	stop := wait.Stop
	for {
		select {
		case a := <-c.answered:
			return a.read()
		case <-stop:
			l.say(laneStop, c.id)
			stop = nil // it stays closed
		case <-ctx.Done():
			return l.leave(ctx, c)
		}
	}
}

// read returns the answer to a call.
func (a laneOutcome) read() ([]byte, error) {
	switch {
	case a.err != nil:
		return nil, a.err
	case a.kind == laneAnswer:
		return a.content, nil
	default:
		return nil, readPeerError(http.StatusConflict, a.content)
	}
}

// take puts a call into the lane to a server, which it opens if there is none. It returns nil if the call needs one of its own.
func (ls *lanes) take(p *peers, server string, c *laneCall, kind byte, content ...[]byte) *lane {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byServer[server]
	if l != nil && l.add(c, kind, content...) {
		return l
	}
	if since, is := ls.old[server]; ls.closed || is && time.Since(since) < oldFor || l != nil && l.full() {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	l = &lane{server: server, cancel: cancel, wake: make(chan struct{}, 1), calls: map[uint64]*laneCall{}}
	l.add(c, kind, content...)
	if ls.byServer == nil {
		ls.byServer, ls.all, ls.old = map[string]*lane{}, map[*lane]struct{}{}, map[string]time.Time{}
	}
	ls.byServer[server], ls.all[l] = l, struct{}{}
	ls.running.Go(func() {
		defer cancel()
		err := p.runLane(ctx, l)
		ls.forget(l, errors.Is(err, errNoLane))
		l.fail(err) //nolint:contextcheck // it is over
	})
	return l
}

// forget forgets a lane that is over.
func (ls *lanes) forget(l *lane, old bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.all, l)
	if ls.byServer[l.server] == l {
		delete(ls.byServer, l.server)
	}
	if delete(ls.old, l.server); old {
		ls.old[l.server] = time.Now()
	}
}

// retire has all lanes end with their last call. There will be no others.
func (ls *lanes) retire() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for l := range ls.all {
		l.retire()
	}
}

// close ends all lanes, at the latest with ctx.
func (ls *lanes) close(ctx context.Context) {
	defer context.AfterFunc(ctx, func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		for l := range ls.all {
			l.cancel()
		}
	})()
	ls.running.Wait()
}

// runLane opens a lane and reads answers until it ends.
func (p *peers) runLane(ctx context.Context, l *lane) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+l.server+pathLane, laneBody{l})
	if err != nil {
		return err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	defer l.cancel() // Close waits for the body of the call
	if response.StatusCode == http.StatusNotFound {
		return errNoLane
	}
	if response.StatusCode != http.StatusOK {
		_, err := readAnswer(ctx, response)
		return &laneRefusedError{err}
	}
	from := bufio.NewReaderSize(response.Body, laneRoom)
	for {
		m, err := readLane(from, peerBytesMax, l.cancel)
		switch {
		case errors.Is(err, io.EOF):
			return errLaneEnded
		case err != nil:
			return err
		case m.kind == laneClosing:
			l.retire()
		default:
			l.answer(m)
		}
	}
}

// laneRefusedError is the error of a lane of which nothing was read.
type laneRefusedError struct{ cause error }

// Error implements error.
func (e *laneRefusedError) Error() string { return e.cause.Error() }

// Unwrap returns the answer.
func (e *laneRefusedError) Unwrap() error { return e.cause }

// add takes a call. It reports false if the lane takes no more.
func (l *lane) add(c *laneCall, kind byte, content ...[]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retiring || l.shut || l.failed != nil || len(l.calls) >= peerCallsMax {
		return false
	}
	l.last++
	c.id = l.last
	c.sent = &laneSent{rest: appendLane(nil, kind, c.id, content...)}
	l.calls[c.id] = c
	l.queue = append(l.queue, c.sent)
	l.wakeUp()
	return true
}

// full reports whether the lane takes no more only because it has so many calls.
func (l *lane) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls) >= peerCallsMax
}

// wakeUp has Read look at what there is to do.
func (l *lane) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// say sends a message without content about a call that is not answered yet.
func (l *lane) say(kind byte, id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[id] != nil {
		l.queue = append(l.queue, &laneSent{rest: appendLane(nil, kind, id)})
		l.wakeUp()
	}
}

// leave ends a call whose caller takes no answer any more.
func (l *lane) leave(ctx context.Context, c *laneCall) ([]byte, error) {
	l.say(laneCancel, c.id)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[c.id] == nil { // answered at the same moment
		return (<-c.answered).read()
	}
	delete(l.calls, c.id)
	l.wakeUp() // it may have been the last
	sent := c.sent.taken
	if !sent {
		c.sent.rest = nil // the call to cancel it finds nothing
	}
	return nil, unreached(ctx, sent, context.Cause(ctx))
}

// answer ends a call with what the other node said.
func (l *lane) answer(m laneMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.calls[m.id]; c != nil {
		delete(l.calls, m.id)
		c.answered <- laneOutcome{laneMessage: m}
	}
	if l.retiring {
		l.wakeUp()
	}
}

// retire has the lane end with its last call.
func (l *lane) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retiring = true
	l.wakeUp()
}

// fail ends all calls. What became of those that were sent is not known, unless the lane was refused as a whole. An errNoLane stays one.
func (l *lane) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = err
	for _, c := range l.calls {
		out := laneOutcome{err: unreached(context.Background(), c.sent.taken, err)}
		if refused, ok := errors.AsType[*laneRefusedError](err); ok {
			out.err = refused.cause
		}
		c.answered <- out
	}
	clear(l.calls)
	l.queue = nil
	l.wakeUp()
}

// laneBody is the body of the call that a lane is.
type laneBody struct{ *lane }

// Read implements io.Reader. It takes all messages that there are, and ends when the lane does.
func (l laneBody) Read(p []byte) (int, error) {
	for {
		n, over := l.take(p)
		if n > 0 {
			return n, nil
		}
		if over {
			return 0, io.EOF
		}
		<-l.wake
	}
}

// take takes what is to be sent, and reports whether there will be no more.
func (l *lane) take(p []byte) (n int, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n < len(p) && len(l.queue) > 0 {
		m := l.queue[0]
		m.taken = true
		k := copy(p[n:], m.rest)
		n += k
		if m.rest = m.rest[k:]; len(m.rest) == 0 {
			l.queue[0] = nil
			l.queue = l.queue[1:]
		}
	}
	return n, l.shut || l.failed != nil || l.retiring && len(l.calls) == 0
}

// Close implements io.Closer. It ends a Read.
func (l laneBody) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = true
	l.wakeUp()
	return nil
}

// namePeerError returns an error as it travels. One that has no name says nothing about the outcome.
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
