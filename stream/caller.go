package stream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// CallerConfig has the limits of a caller's side.
type CallerConfig struct {
	// A peer that is silent for PingAfter gets a ping, and is given up after PingTimeout more.
	PingAfter, PingTimeout time.Duration
	// Idle is how long a stream without calls is kept, 0 for no limit.
	Idle time.Duration
	// Write bounds the time of a write. Each Bytes of an answer must arrive within the Wait of Read;
	// a zero Read sets no limit.
	Write, Read Limit
	// CallsMax bounds the calls that have no answer, and AnswerBytesMax an answer. A larger one ends
	// the stream.
	CallsMax, AnswerBytesMax int
	// Learn, if it is not nil, gets the Number of each answer and the time at which its call was made.
	Learn func(sent time.Time, number int64)
}

// A Caller is the caller's side of a stream. It ends when the connection ends, when the other side
// leaves, or when it was idle for long.
type Caller struct {
	conn   *activityConn
	out    *Writer
	config *CallerConfig
	memory *sync.Pool // of *[]byte, for payloads

	mu      sync.Mutex
	calls   map[uint32]*pendingCall
	last    uint32    // the number of the newest call
	used    time.Time // when a call was made last
	asked   time.Time // when the last ping was sent
	err     error     // why no more calls are taken
	retired bool      // it ends with its last call
}

// A Request is a call to make.
type Request struct {
	Method  Method
	Payload []byte // it may be reused when Call returns
	// Number is how long the caller waits, in milliseconds, 0 for no limit.
	Number int64
	// Stop, if it is not nil, is closed when the call should wait no longer.
	Stop <-chan struct{}
}

// A Reply is the answer to a call.
type Reply struct {
	Failed  bool // the payload says why
	Payload []byte
	memory  *[]byte
	pool    *sync.Pool
}

// keptBytesMax is the size up to which the memory of an answer is reused.
const keptBytesMax = 256 << 10

// Free gives the memory of the payload back. It is optional.
func (r Reply) Free() {
	if cap(*r.memory) <= keptBytesMax {
		r.pool.Put(r.memory)
	}
}

// pendingCall waits for its answer.
type pendingCall struct {
	sent    time.Time
	outcome chan outcome // takes one value
}

// outcome is how a call ended.
type outcome struct {
	failed  bool
	payload *[]byte
	err     error // the stream ended
}

// An UnsentError says that no part of a call was sent, or that the serving side did not read what
// was sent. After any other error of a call its outcome is unknown.
type UnsentError struct{ Cause error }

// Error implements error.
func (e *UnsentError) Error() string { return e.Cause.Error() }

// Unwrap returns why the call was not sent.
func (e *UnsentError) Unwrap() error { return e.Cause }

var (
	// ErrFull refuses a call beyond CallsMax.
	ErrFull = errors.New("the stream has as many calls as it may have")

	errLeft = errors.New("the server is stopping")
	errBye  = errors.New("the server stopped before it read the call")
	errIdle = errors.New("the session was not used")
	errMute = errors.New("the server gave no sign of life")
)

// close ends the stream at once.
func (c *Caller) close(err error) {
	c.failCalls(err)
	_ = c.conn.Close() // ends the reader
}

// Takes reports whether the stream takes calls.
func (c *Caller) Takes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil
}

// refuseCalls makes the stream take no more calls. The other side answers the calls in flight, and
// says Bye.
func (c *Caller) refuseCalls() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = errLeft
	}
}

// retire makes the stream take no more calls, and end with its last one.
func (c *Caller) retire() {
	c.refuseCalls()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
	c.closeIfDone()
}

// closeIfDone ends a stream that is retired once it has no calls. c.mu is held.
func (c *Caller) closeIfDone() {
	if c.retired && len(c.calls) == 0 {
		_ = c.conn.Close() // ends the reader, which ends the rest
	}
}

// failCalls makes the stream take no more calls. The calls in flight fail.
func (c *Caller) failCalls(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.out.Close(err)
	for id, p := range c.calls {
		delete(c.calls, id)
		p.outcome <- outcome{err: err}
	}
}

// register gives a call a number.
func (c *Caller) register(p *pendingCall) (id uint32, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return 0, &UnsentError{c.err}
	case len(c.calls) >= c.config.CallsMax:
		return 0, &UnsentError{ErrFull}
	}
	for {
		c.last++
		if _, used := c.calls[c.last]; !used {
			break
		}
	}
	c.calls[c.last] = p
	c.used = p.sent
	return c.last, nil
}

// take removes and returns the call with a number, if it still waits.
func (c *Caller) take(id uint32) (p *pendingCall, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, waits = c.calls[id]
	delete(c.calls, id)
	c.closeIfDone()
	return p, waits
}

// Call makes a call and waits for its answer.
func (c *Caller) Call(ctx context.Context, r Request) (Reply, error) {
	p := &pendingCall{sent: time.Now(), outcome: make(chan outcome, 1)}
	id, err := c.register(p)
	if err != nil {
		return Reply{}, err
	}
	frame, err := c.out.Send(ctx, Header{Kind: Call, Method: r.Method, ID: id, Number: r.Number}, r.Payload)
	if err != nil {
		c.take(id)
		return Reply{}, &UnsentError{err}
	}
	for stop := r.Stop; ; {
		select {
		case got := <-p.outcome:
			return c.reply(got, frame)
		case <-stop:
			stop = nil                                              // it stays closed
			_, _ = c.out.Send(ctx, Header{Kind: Stop, ID: id}, nil) // if it fails, the call ends too
		case <-ctx.Done():
			if _, waits := c.take(id); !waits {
				return c.reply(<-p.outcome, frame) // it came at the same moment
			}
			if c.out.Withdraw(frame) {
				return Reply{}, &UnsentError{context.Cause(ctx)}
			}
			_ = c.out.Offer(Header{Kind: Cancel, ID: id}) // else the server does not learn that the caller left
			return Reply{}, context.Cause(ctx)
		}
	}
}

// reply returns the answer to a call, or why there is none.
func (c *Caller) reply(got outcome, frame FrameID) (Reply, error) {
	switch {
	case got.err == nil:
		return Reply{Failed: got.failed, Payload: *got.payload, memory: got.payload, pool: c.memory}, nil
	case errors.Is(got.err, errBye), c.out.Withdraw(frame):
		return Reply{}, &UnsentError{got.err}
	default:
		return Reply{}, got.err
	}
}

// read handles the frames of the other side until the connection ends.
func (c *Caller) read(in *bufio.Reader) error {
	for {
		h, err := ReadHeader(in)
		if err != nil {
			return err
		}
		switch h.Kind {
		case Answer, Failure:
			if err := c.deliver(in, h); err != nil {
				return err
			}
			continue
		case Leave:
			c.refuseCalls()
		case Bye:
			return errBye
		case Ping:
			err = c.out.Offer(Header{Kind: Pong})
		case Pong:
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
func (c *Caller) deliver(in *bufio.Reader, h Header) error {
	if int64(h.Size) > int64(c.config.AnswerBytesMax) {
		return fmt.Errorf("an answer of %d bytes; %d are the most", h.Size, c.config.AnswerBytesMax)
	}
	c.mu.Lock()
	p, waits := c.calls[h.ID] // the caller may leave while the payload comes
	c.mu.Unlock()
	if !waits {
		_, err := in.Discard(int(h.Size))
		return err
	}
	payload, err := c.receive(in, int(h.Size))
	if err != nil {
		return err
	}
	if _, waits := c.take(h.ID); !waits {
		return nil
	}
	if c.config.Learn != nil {
		c.config.Learn(p.sent, h.Number)
	}
	p.outcome <- outcome{failed: h.Kind == Failure, payload: payload}
	return nil
}

// receive reads a payload.
func (c *Caller) receive(in *bufio.Reader, size int) (*[]byte, error) {
	payload, ok := c.memory.Get().(*[]byte)
	if !ok {
		payload = new([]byte)
	}
	*payload = (*payload)[:0]
	limit := c.config.Read
	slow := limit.Bytes > 0 && in.Buffered() < size
	for have := 0; have < size; have = len(*payload) {
		piece := Piece(have, size)
		if slow {
			wait := limit.Wait * time.Duration(1+(piece-1)/limit.Bytes)
			if err := c.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
				return nil, err
			}
		}
		*payload = slices.Grow(*payload, piece)[:have+piece]
		if _, err := io.ReadFull(in, (*payload)[have:]); err != nil {
			return nil, err
		}
	}
	if slow {
		return payload, c.conn.SetReadDeadline(time.Time{})
	}
	return payload, nil
}

// Callers are the open streams of a caller's side. The zero value is ready for use.
type Callers struct {
	mu      sync.Mutex
	all     map[*Caller]struct{}
	closed  bool
	running sync.WaitGroup // the streams' goroutines; grows under mu only

	memory sync.Pool // of *[]byte
}

// bufferBytes is the size of the buffer that frames are read through.
const bufferBytes = 64 << 10

// Open makes a stream of a connection. ask asks for the upgrade and reads the answer. After an
// error the connection is closed. The error is net.ErrClosed after Close and after Retire.
func (o *Callers) Open(
	ctx context.Context, plain net.Conn, config *CallerConfig, ask func(net.Conn, *bufio.Reader) error,
) (_ *Caller, err error) {
	conn := &activityConn{Conn: plain, began: time.Now()}
	defer func() {
		if err != nil {
			_ = conn.Close() // it leads nowhere
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // one that takes none has ended
	in := bufio.NewReaderSize(conn, bufferBytes)
	err = ask(conn, in)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return o.start(conn, in, config)
}

// start runs a stream over an upgraded connection, which it reads through in.
func (o *Callers) start(conn *activityConn, in *bufio.Reader, config *CallerConfig) (*Caller, error) {
	c := &Caller{
		conn: conn, out: NewWriter(conn, config.Write), config: config, memory: &o.memory,
		calls: make(map[uint32]*pendingCall), used: time.Now(),
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, net.ErrClosed
	}
	if o.all == nil {
		o.all = make(map[*Caller]struct{})
	}
	o.all[c] = struct{}{}
	ended := make(chan struct{})
	o.running.Go(func() { c.close(c.out.Run()) })
	o.running.Go(func() {
		c.close(c.read(in))
		close(ended)
		o.remove(c)
	})
	o.running.Go(func() { c.watch(ended) })
	return c, nil
}

func (o *Callers) remove(c *Caller) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, c)
}

// Len returns how many streams are open.
func (o *Callers) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all)
}

// isClosed reports whether there will be no more streams.
func (o *Callers) isClosed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed
}

// Retire makes all streams end with their last calls, and allows no new ones.
func (o *Callers) Retire() { o.endAll((*Caller).retire) }

// Close permanently ends all streams, and waits for their goroutines.
func (o *Callers) Close() {
	o.endAll(func(c *Caller) { c.close(net.ErrClosed) })
	o.running.Wait()
}

func (o *Callers) endAll(end func(*Caller)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for c := range o.all {
		end(c)
	}
}

// Wait waits after Retire until all streams have ended. It ends them when ctx ends.
func (o *Callers) Wait(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { o.endAll(func(c *Caller) { c.close(net.ErrClosed) }) })()
	o.running.Wait()
}
