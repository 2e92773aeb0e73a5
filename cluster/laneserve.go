package cluster

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

// laneGoodbye is how long a node that stops goes on reading a lane, to refuse what was sent before the other node heard of it.
const laneGoodbye = 250 * time.Millisecond

// laneLinger is how long a lane stays as it is when its node stops. The connection's own goodbye goes out meanwhile: the other end closes a connection whose
// last call ends after that at once, and leaves one whose last call ended before it to this node's time limit.
const laneLinger = 5 * time.Millisecond

// laneIdleMax bounds the goroutines of a lane that wait for the next call. A new one begins with a small stack, and growing it costs as much as the call.
const laneIdleMax = 64

// laneHost is the end of a lane at the node that carries calls out.
type laneHost struct {
	peers *peers
	host  waitingHost
	from  string // the server id of the caller
	ctx   context.Context
	wake  chan struct{} // told that there is something to write
	calls chan func()   // for the goroutines that are idle
	ended chan struct{} // closed when no more calls come

	carrying sync.WaitGroup

	mu      sync.Mutex
	idle    int
	out     []byte // what is to be written
	tasks   map[uint64]*laneTask
	closing bool
	over    bool // nothing is written after what there is
}

// laneTask is a call that is being carried out.
type laneTask struct {
	cancel context.CancelFunc
	stop   chan struct{} // closed when the caller waits no more, or must not
	waits  bool
	// stopped: by the caller; ended: stop is closed.
	stopped, ended bool
}

// answerLane answers the calls in a lane for as long as it lasts.
func (p *peers) answerLane(w http.ResponseWriter, r *http.Request, host waitingHost) {
	from, _ := r.Context().Value(peerKey{}).(string)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	h := newLaneHost(ctx, p, host, from)
	control := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	_ = control.Flush() // who is gone is found by reading
	var writing sync.WaitGroup
	writing.Go(func() { h.write(w, control.Flush) })
	writing.Go(func() {
		select {
		case <-p.closing:
			select {
			case <-time.After(laneLinger):
			case <-h.ended:
				return
			}
			h.close()
			_ = control.SetReadDeadline(time.Now().Add(laneGoodbye)) // HTTP/2 has deadlines
		case <-h.ended:
		}
	})
	body := bufio.NewReaderSize(r.Body, laneRoom)
	for {
		m, err := readLane(body, laneBytesMax+3*binary.MaxVarintLen64, func() { _ = r.Body.Close() }) // unlike a deadline also where the call is over
		if err == nil {
			h.take(m) //nolint:contextcheck // the calls have that of the lane
			continue
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel() // nobody takes the answers
		}
		break
	}
	close(h.ended)
	h.carrying.Wait()
	h.end()
	writing.Wait()
}

func newLaneHost(ctx context.Context, p *peers, host waitingHost, from string) *laneHost {
	return &laneHost{
		peers: p, host: host, from: from, ctx: ctx, wake: make(chan struct{}, 1), calls: make(chan func()), ended: make(chan struct{}), tasks: map[uint64]*laneTask{},
	}
}

// begin has a call carried out by a goroutine that is idle, or a new one.
func (h *laneHost) begin(call func()) {
	select {
	case h.calls <- call:
	default:
		h.carrying.Go(func() {
			for call != nil {
				call()
				call = h.next()
			}
		})
	}
}

// next waits for the next call. It returns nil if there will be none for this goroutine.
func (h *laneHost) next() (call func()) {
	h.mu.Lock()
	if h.idle >= laneIdleMax {
		h.mu.Unlock()
		return nil
	}
	h.idle++
	h.mu.Unlock()
	select {
	case call = <-h.calls:
	case <-h.ended:
	}
	h.mu.Lock()
	h.idle--
	h.mu.Unlock()
	return call
}

// take carries a message out.
func (h *laneHost) take(m laneMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	task := h.tasks[m.id]
	switch {
	case m.kind == laneCancel && task != nil:
		task.cancel()
	case m.kind == laneStop && task != nil:
		task.stopped = true
		task.end()
	case m.kind != laneDo && m.kind != laneReserve || task != nil:
		// It is about a call that was answered meanwhile, or nothing that a member says.
	case h.closing:
		h.reply(laneRefusal, m.id, namePeerError(node.ErrShuttingDown))
	case len(h.tasks) >= peerCallsMax || len(h.out) > peerBytesMax: // answers wait also for callers that have left
		h.reply(laneRefusal, m.id, namePeerError(fmt.Errorf("%w: %d calls from %s, %d bytes of answers", node.ErrOverloaded, len(h.tasks), h.from, len(h.out))))
	default:
		ctx, cancel := context.WithCancel(h.ctx)
		task = &laneTask{cancel: cancel, stop: make(chan struct{})}
		h.tasks[m.id] = task
		h.begin(func() {
			defer cancel()
			reply, err := h.carryOut(ctx, m, task)
			kind, content := laneEnd(&reply, err, peerBytesMax)
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.tasks, m.id)
			h.reply(kind, m.id, content)
		})
	}
}

// laneEnd returns the message that ends a call. One that is too large would end the lane.
func laneEnd(reply *node.Reply, err error, most int) (kind byte, content []byte) {
	if err == nil {
		if content = appendReply(nil, reply, heldBy(reply), fsm.FirstFormat); len(content) <= most {
			return laneAnswer, content
		}
		err = fmt.Errorf("%w: the answer is larger than %d bytes", node.ErrUnknownOutcome, most)
	}
	return laneRefusal, namePeerError(err)
}

// end ends the wait of a call. laneHost.mu is held.
func (t *laneTask) end() {
	if !t.ended {
		t.ended = true
		close(t.stop)
	}
}

// carryOut carries out a call.
func (h *laneHost) carryOut(ctx context.Context, m laneMessage, task *laneTask) (_ node.Reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: a panic", node.ErrUnknownOutcome)
			h.peers.server.ErrorLog.Printf("a panic in a call of %s: %v\n%s", h.from, p, debug.Stack()) // as of a call of its own
		}
	}()
	if err := h.peers.admits(h.from); err != nil {
		return node.Reply{}, err
	}
	var fields [3]uint64 // shard, retry budget, wait
	n, content := 2, m.content
	if m.kind == laneReserve {
		n = 3
	}
	for i := range n {
		v, size := binary.Uvarint(content)
		if size <= 0 || v > 1<<62 {
			return node.Reply{}, fmt.Errorf("%w: a call in a lane is cut off", node.ErrCanceled)
		}
		fields[i], content = v, content[size:]
	}
	req, err := parseForwarded(content, h.host.Format())
	if err != nil {
		return node.Reply{}, err
	}
	shard, host := uint32(fields[0]), h.host //nolint:gosec // one that is not there is refused
	if fields[1] > 0 {
		host.most = min(time.Duration(fields[1]), leaderWait) //nolint:gosec // checked above
	}
	if m.kind == laneDo {
		return host.Do(ctx, shard, req)
	}
	wait := node.Wait{For: time.Duration(fields[2]), Stop: task.stop} //nolint:gosec // checked above
	h.waits(task, wait.For > 0)
	reply, err := host.Reserve(ctx, shard, req, wait)
	if err == nil && h.cutShort(task) && !granted(&reply) {
		err = node.ErrShuttingDown // its time was not over
	}
	return reply, err
}

// waits notes that a call waits, if it does.
func (h *laneHost) waits(task *laneTask, does bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if task.waits = does; does && h.closing {
		task.end()
	}
}

// cutShort reports whether the wait of a call was ended by this node.
func (h *laneHost) cutShort(task *laneTask) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return task.waits && h.closing && !task.stopped
}

// close takes no more calls, and ends the waits of those that wait.
func (h *laneHost) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closing = true
	for _, task := range h.tasks {
		if task.waits {
			task.end()
		}
	}
	h.reply(laneClosing, 0, nil)
}

// reply has a message written. mu is held.
func (h *laneHost) reply(kind byte, id uint64, content []byte) {
	h.out = appendLane(h.out, kind, id, content)
	h.wakeUp()
}

func (h *laneHost) wakeUp() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// end ends write, when it has written all.
func (h *laneHost) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	h.wakeUp()
}

// write writes answers, all that there are at once. Who does not take them is found by reading.
func (h *laneHost) write(w io.Writer, flush func() error) {
	var spare []byte
	for range h.wake {
		h.mu.Lock()
		out, over := h.out, h.over
		h.out = spare[:0]
		h.mu.Unlock()
		if len(out) > 0 {
			_, _ = w.Write(out)
			_ = flush()
		}
		if over {
			return
		}
		if spare = out; cap(spare) > laneRoom {
			spare = nil
		}
	}
}
