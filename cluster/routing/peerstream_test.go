package routing

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// countPaths counts the calls of each path that peers answer.
func countPaths(p *Peers) func(path string) int {
	var mu sync.Mutex
	counts, below := map[string]int{}, p.server.Handler
	p.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		counts[r.URL.Path]++
		mu.Unlock()
		below.ServeHTTP(w, r)
	})
	return func(path string) int {
		mu.Lock()
		defer mu.Unlock()
		return counts[path]
	}
}

// streamTest is a node a.1 that calls b.2. The shards of b.2 execute calls with do.
type streamTest struct {
	network *routingtest.Network
	a, b    *Peers
	host    *streamTestHost
	count   func(path string) int
}

// streamTestHost leads every shard.
type streamTestHost struct {
	loneHost
	do func(ctx context.Context, shard uint32) (node.Reply, error)
}

func (h *streamTestHost) Do(ctx context.Context, shard uint32, _ *fsm.Request) (node.Reply, error) {
	return h.do(ctx, shard)
}

func newStreamTest(t *testing.T, do func(ctx context.Context, shard uint32) (node.Reply, error)) *streamTest {
	t.Helper()
	st := &streamTest{network: routingtest.NewNetwork(), host: &streamTestHost{do: do}}
	st.host.format.Store(uint32(fsm.LatestFormat))
	st.a = startPeers(t, st.network.Link("a.1"))
	st.b = newPeers(st.network.Link("b.2"), slog.New(slog.DiscardHandler))
	st.count = countPaths(st.b)
	served := make(chan error, 1)
	go func() { served <- st.b.Serve(st.network.Served("b.2")) }()
	t.Cleanup(func() {
		if err := errors.Join(st.b.Close(t.Context()), <-served); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	answerShards(st.b, st.host, "b.2")
	return st
}

// call makes b.2 execute a put.
func (st *streamTest) call(ctx context.Context, shard uint32, body int) (node.Reply, error) {
	req := aPut()
	req.Commands[0].(*fsm.Put).Body = make([]byte, body)
	return st.a.do(ctx, forwardedTo{server: "b.2", shard: shard}, req)
}

// answered is a reply that names the shard.
func answered(shard uint32) node.Reply {
	return node.Reply{Witness: node.Witness{Shard: shard}, Results: make([]fsm.Result, 1)}
}

// TestCallsShareAStream: calls of the same moment share one stream, and each gets its own answer,
// the last one first. A large call has a request of its own.
func TestCallsShareAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 100
		st := newStreamTest(t, func(_ context.Context, shard uint32) (node.Reply, error) {
			rest := time.NewTimer(time.Duration(calls-shard) * time.Millisecond)
			<-rest.C
			if shard%10 == 3 {
				return node.Reply{}, fmt.Errorf("shard %d: %w", shard, node.ErrDiskFull)
			}
			return answered(shard), nil
		})
		var all sync.WaitGroup
		for shard := range uint32(calls) {
			all.Go(func() {
				reply, err := st.call(t.Context(), shard, 10)
				if refused := shard%10 == 3; errors.Is(err, node.ErrDiskFull) != refused || !refused && (err != nil || reply.Witness.Shard != shard) {
					t.Errorf("shard %d: %+v, %v", shard, reply, err)
				}
			})
		}
		all.Wait()
		if streams, alone := st.count(pathStream), st.count(pathDo); streams != 1 || alone != 0 {
			t.Errorf("%d streams and %d requests of their own, want 1 and 0", streams, alone)
		}
		if reply, err := st.call(t.Context(), 5, streamRequestMax); err != nil || reply.Witness.Shard != 5 {
			t.Errorf("a large call: %+v, %v", reply, err)
		}
		if alone := st.count(pathDo); alone != 1 {
			t.Errorf("%d large calls had a request of their own, want 1", alone)
		}
	})
}

// TestNodeWithoutStreams: an older program gets calls in requests of their own. It is asked for a
// stream again when it may have been replaced.
func TestNodeWithoutStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStreamTest(t, func(_ context.Context, shard uint32) (node.Reply, error) { return answered(shard), nil })
		st.host.reserve = func(context.Context, node.Wait) (node.Reply, error) { return answered(7), nil }
		known := st.b.mux
		var old atomic.Bool
		old.Store(true)
		st.b.mux = http.NewServeMux()
		st.b.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			if old.Load() && r.URL.Path == pathStream {
				http.NotFound(w, r)
				return
			}
			known.ServeHTTP(w, r)
		})
		for range 3 {
			if reply, err := st.call(t.Context(), 5, 10); err != nil || reply.Witness.Shard != 5 {
				t.Errorf("%+v, %v", reply, err)
			}
			reply, err := st.a.reserve(t.Context(), forwardedTo{server: "b.2"}, aPut(), node.Wait{For: time.Second, Stop: make(chan struct{})})
			if err != nil || reply.Witness.Shard != 7 {
				t.Errorf("a Reserve: %+v, %v", reply, err)
			}
		}
		if streams, alone := st.count(pathStream), st.count(pathDo); streams != 1 || alone != 3 {
			t.Errorf("%d streams and %d requests of their own, want 1 and 3", streams, alone)
		}
		old.Store(false)
		replaced := time.NewTimer(noStreamFor)
		<-replaced.C
		if _, err := st.call(t.Context(), 5, 10); err != nil || st.count(pathStream) != 2 || st.count(pathDo) != 3 {
			t.Errorf("after a minute: %v, %d streams and %d requests of their own", err, st.count(pathStream), st.count(pathDo))
		}
	})
}

// TestAbandonedCallsInAStream: a caller that leaves gets an unknown outcome, the other node learns
// of it, and other calls go on. A call that was never sent was not made.
func TestAbandonedCallsInAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan uint32, 1)
		st := newStreamTest(t, func(ctx context.Context, shard uint32) (node.Reply, error) {
			rest := time.NewTimer(time.Minute)
			defer rest.Stop()
			select {
			case <-ctx.Done():
				left <- shard
				return node.Reply{}, ctx.Err()
			case <-rest.C:
				return answered(shard), nil
			}
		})
		stayed := make(chan error, 1)
		go func() {
			_, err := st.call(t.Context(), 1, 10)
			stayed <- err
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := st.call(ctx, 2, 10); !errors.Is(err, node.ErrUnknownOutcome) {
			t.Errorf("the caller that left got %v, want an unknown outcome", err)
		}
		if shard := <-left; shard != 2 {
			t.Errorf("the call of shard %d was abandoned", shard)
		}
		if err := <-stayed; err != nil {
			t.Errorf("the caller that stayed got %v", err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		s := &peerStream{wake: make(chan struct{}, 1), calls: map[uint64]*streamCall{}}
		c := &streamCall{answered: make(chan streamOutcome, 1)}
		s.addCall(c, streamDo, []byte("what is not to be sent"))
		if _, err := s.abandonCall(ended, c); !errors.Is(err, node.ErrCanceled) || node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("the caller that left before it sent anything got %v, want that nothing was done", err)
		}
		sent := make([]byte, 100)
		if n, _ := s.readQueue(sent); bytes.Contains(sent[:n], []byte("not to be sent")) {
			t.Errorf("%q was sent", sent[:n])
		}
	})
}

// TestStopInAStream ends the wait of one call, which is answered.
func TestStopInAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStreamTest(t, nil)
		st.host.reserve = func(_ context.Context, wait node.Wait) (node.Reply, error) {
			late := time.NewTimer(wait.For)
			defer late.Stop()
			select {
			case <-wait.Stop:
				return answered(1), nil
			case <-late.C:
				return answered(2), nil
			}
		}
		stop, others := make(chan struct{}), make(chan uint32, 1)
		go func() {
			reply, _ := st.a.reserve(t.Context(), forwardedTo{server: "b.2"}, aPut(), node.Wait{For: time.Hour, Stop: make(chan struct{})})
			others <- reply.Witness.Shard
		}()
		time.AfterFunc(time.Second, func() { close(stop) })
		began := time.Now()
		reply, err := st.a.reserve(t.Context(), forwardedTo{server: "b.2"}, aPut(), node.Wait{For: time.Hour, Stop: stop})
		if err != nil || reply.Witness.Shard != 1 || time.Since(began) != time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(began), reply, err)
		}
		if shard := <-others; shard != 2 || time.Since(began) != time.Hour {
			t.Errorf("the other ended as %d after %v", shard, time.Since(began))
		}
	})
}

// TestStreamThatBreaks: a call that was sent has an unknown outcome, the node that executes it
// learns of it, and the next call has another stream.
func TestStreamThatBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		var st *streamTest
		st = newStreamTest(t, func(ctx context.Context, shard uint32) (node.Reply, error) {
			if shard == 1 {
				return answered(shard), nil
			}
			st.network.Served("b.2").Cut()
			<-ctx.Done()
			close(ended)
			return node.Reply{}, ctx.Err()
		})
		if _, err := st.call(t.Context(), 0, 10); !errors.Is(err, node.ErrUnknownOutcome) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
		<-ended
		if _, err := st.call(t.Context(), 1, 10); err != nil || st.count(pathStream) != 2 {
			t.Errorf("the next call: %v, in stream %d", err, st.count(pathStream))
		}
		st.network.Isolate("b.2")
		synctest.Wait()
		if _, err := st.call(t.Context(), 1, 10); !errors.Is(err, errAgain) || node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("a call to a node that is not reached: %v", err)
		}
		st.network.Reconnect("b.2")
	})
}

// TestStreamOfANodeThatStops: the node answers the calls under way. It refuses at once the calls
// that were sent before the other node knew of the stop. An idle stream does not delay the stop.
func TestStreamOfANodeThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		host, link := &streamTestHost{}, network.Link("b.2")
		host.format.Store(uint32(fsm.LatestFormat))
		host.do = func(_ context.Context, shard uint32) (node.Reply, error) {
			rest := time.NewTimer(peerCloseWait / 2)
			<-rest.C
			return answered(shard), nil
		}
		for _, busy := range []bool{true, false} {
			a, b := startPeers(t, network.Link("a.1")), newPeers(link, slog.New(slog.DiscardHandler))
			answerShards(b, host, "b.2")
			served, got := make(chan error, 1), make(chan error, 2)
			go func() { served <- b.Serve(link) }()
			call := func(shard uint32) {
				_, err := a.do(t.Context(), forwardedTo{server: "b.2", shard: shard}, aPut())
				got <- err
			}
			go call(1)
			synctest.Wait()
			if !busy {
				if err := <-got; err != nil {
					t.Error(err)
				}
			}
			began := time.Now()
			if busy {
				time.AfterFunc(streamDrainWait/2, func() { call(2) })
			}
			if err := errors.Join(b.Close(t.Context()), <-served); err != nil {
				t.Error(err)
			}
			took := time.Since(began)
			if !busy {
				if took >= streamDrainWait {
					t.Errorf("an idle stream kept the node for %v", took)
				}
				return
			}
			if err := <-got; !errors.Is(err, errAgain) || node.OutcomeOf(err) != node.NotApplied {
				t.Errorf("what came later: %v", err)
			}
			if err := <-got; err != nil {
				t.Errorf("what was under way: %v", err)
			}
			if took > peerCloseWait/2+streamDrainWait {
				t.Errorf("the node stopped after %v", took)
			}
			link = network.Link("b.2")
		}
	})
}

// TestCallsThatCrossADrain: a call that was sent before the other node knew of the stop is refused
// such that it goes elsewhere.
func TestCallsThatCrossADrain(t *testing.T) {
	s := newStreamServer(t.Context(), nil, waitingHost{}, "a.1")
	s.drain()
	s.handleMessage(streamMessage{kind: streamDo, id: 5})
	from := bufio.NewReader(bytes.NewReader(s.out))
	if m, err := readStreamMessage(from, 100, nil); err != nil || m.kind != streamClosing {
		t.Errorf("the closing message is %+v, %v", m, err)
	}
	m, err := readStreamMessage(from, 1000, nil)
	if _, refused := (streamOutcome{streamMessage: m}).result(); err != nil || m.id != 5 || !errors.Is(refused, errAgain) {
		t.Errorf("the answer is %+v, %v: %v", m, err, refused)
	}
}

// TestInvalidStream ends, with the calls in it.
func TestInvalidStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStreamTest(t, nil)
		st.host.reserve = func(ctx context.Context, _ node.Wait) (node.Reply, error) {
			<-ctx.Done()
			return node.Reply{}, ctx.Err()
		}
		took := st.send(t, appendStreamMessage(nil, streamReserve, 1, []byte{0, 0, 1}, st.a.forwarded(aPut())), appendStreamMessage(nil, streamDo, 2, make([]byte, 2*streamRequestMax))[:10])
		if took > time.Second {
			t.Errorf("it lasted %v", took)
		}
	})
}

// send sends bytes as a stream to b.2, and returns the time until b.2 ended its response.
func (st *streamTest) send(t *testing.T, parts ...[]byte) time.Duration {
	t.Helper()
	body, write := io.Pipe()
	defer write.Close()
	go func() {
		for _, part := range parts {
			_, _ = write.Write(part)
		}
	}()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://b.2"+pathStream, body)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	response, err := st.a.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return time.Since(began)
}

// TestIdleWorkersOfAStream: idle goroutines are used again, and few of them are kept.
func TestIdleWorkersOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreamServer(t.Context(), nil, waitingHost{}, "a.1")
		idle := func() int {
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.idle
		}
		done := make(chan struct{})
		for range 2 * streamIdleMax {
			s.startWorker(func() { <-done })
		}
		if n := idle(); n != 0 {
			t.Errorf("%d are idle while all have a call", n)
		}
		close(done)
		if n := idle(); n != streamIdleMax {
			t.Errorf("%d are idle, want %d", n, streamIdleMax)
		}
		again := make(chan struct{})
		s.startWorker(func() { <-again })
		if n := idle(); n != streamIdleMax-1 {
			t.Errorf("%d are idle beside one that has a call, want %d", n, streamIdleMax-1)
		}
		close(again)
		close(s.readDone)
		s.workers.Wait()
	})
}

// TestRemovedNodeInAStream: a removed node is refused in its open stream, and in a new one.
func TestRemovedNodeInAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStreamTest(t, func(_ context.Context, shard uint32) (node.Reply, error) { return answered(shard), nil })
		var removed atomic.Bool
		st.b.member = func(string) bool { return !removed.Load() }
		if _, err := st.call(t.Context(), 1, 10); err != nil {
			t.Fatal(err)
		}
		removed.Store(true)
		for _, what := range []string{"the open stream", "a new one"} {
			if _, err := st.call(t.Context(), 1, 10); !errors.Is(err, node.ErrNoLeader) || node.OutcomeOf(err) != node.NotApplied {
				t.Errorf("%s: %v", what, err)
			}
			st.network.Served("b.2").Cut()
			synctest.Wait()
		}
		if st.count(pathStream) != 2 || st.count(pathDo) != 0 {
			t.Errorf("%d streams and %d requests of their own, want 2 and 0", st.count(pathStream), st.count(pathDo))
		}
	})
}

// TestAnswerThatIsTooLarge ends its call, and not the stream.
func TestAnswerThatIsTooLarge(t *testing.T) {
	reply := answered(1)
	whole := len(appendReply(nil, &reply, heldBy(&reply), fsm.FirstFormat))
	for _, tt := range []struct {
		most int
		want error
	}{{whole, nil}, {whole - 1, node.ErrUnknownOutcome}} {
		kind, content := streamReply(&reply, nil, tt.most)
		if _, err := (streamOutcome{streamMessage: streamMessage{kind: kind, content: content}}).result(); !errors.Is(err, tt.want) {
			t.Errorf("of at most %d bytes: %v, want %v", tt.most, err, tt.want)
		}
	}
}

// TestStreamMessages: messages are read as they were written. One that is too long is refused, and
// one that stalls is given up.
func TestStreamMessages(t *testing.T) {
	written := appendStreamMessage(nil, streamDo, 1<<40, []byte("a"), []byte("b"))
	written = appendStreamMessage(written, streamAnswer, 7, bytes.Repeat([]byte("x"), 3*bufferInitialMax))
	from := bufio.NewReader(bytes.NewReader(written))
	for _, want := range []streamMessage{{streamDo, 1 << 40, []byte("ab")}, {streamAnswer, 7, bytes.Repeat([]byte("x"), 3*bufferInitialMax)}} {
		if m, err := readStreamMessage(from, 4*bufferInitialMax, nil); err != nil || m.kind != want.kind || m.id != want.id || !bytes.Equal(m.content, want.content) {
			t.Errorf("%d bytes of %d, %d, %v", len(m.content), m.kind, m.id, err)
		}
	}
	if _, err := readStreamMessage(from, 1, nil); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	if _, err := readStreamMessage(bufio.NewReader(bytes.NewReader(written)), 1, nil); err == nil {
		t.Error("a message of two bytes was read where one is the most")
	}
	for n := 1; n < len(written)-1; n += 1 + n/3 {
		from := bufio.NewReader(bytes.NewReader(written[:n]))
		_, err := readStreamMessage(from, 4*bufferInitialMax, nil)
		if _, again := readStreamMessage(from, 4*bufferInitialMax, nil); err == nil && again == nil {
			t.Errorf("%d of %d bytes were two messages", n, len(written))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		body, write := io.Pipe()
		defer write.Close()
		go func() { _, _ = write.Write([]byte{streamDo, 1}) }()
		began := time.Now()
		idle := time.NewTimer(time.Hour)
		<-idle.C
		_, err := readStreamMessage(bufio.NewReader(body), 100, func() { _ = body.CloseWithError(errStalled) })
		if took := time.Since(began) - time.Hour; err == nil || took != stallTimeout {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
