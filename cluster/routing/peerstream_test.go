package routing

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/stream"
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
				if refused := shard%10 == 3; errors.Is(err, node.ErrDiskFull) != refused || !refused &&
					(err != nil || reply.Witness.Shard != shard) {
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
			reply, err := st.a.reserve(t.Context(), forwardedTo{server: "b.2"}, aPut(), node.Wait{
				For: time.Second, Stop: make(chan struct{}),
			})
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
			t.Errorf("after the bar: %v, %d streams and %d requests of their own", err, st.count(pathStream), st.count(pathDo))
		}
	})
}

// TestEarlierProgramIsAsked: a program that speaks HTTP/2 only closes the connection. Its calls
// have requests of their own, and its own request for a stream of earlier programs is answered with
// 404.
func TestEarlierProgramIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStreamTest(t, func(_ context.Context, shard uint32) (node.Reply, error) { return answered(shard), nil })
		synctest.Wait()
		st.b.server.Protocols = new(http.Protocols)
		st.b.server.Protocols.SetUnencryptedHTTP2(true)
		for shard := range uint32(3) {
			if reply, err := st.call(t.Context(), shard, 10); err != nil || reply.Witness.Shard != shard {
				t.Errorf("%+v, %v", reply, err)
			}
		}
		if alone := st.count(pathDo); alone != 3 {
			t.Errorf("%d requests of their own, want 3", alone)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://b.2/shard/lane", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := st.a.client.Do(request)
		if err != nil || response.StatusCode != http.StatusNotFound {
			t.Fatalf("%+v, %v", response, err)
		}
		_ = response.Body.Close()
	})
}

// TestAbandonedCallsInAStream: a caller that leaves gets an unknown outcome, the other node learns
// of it, and other calls go on.
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
			reply, _ := st.a.reserve(t.Context(), forwardedTo{server: "b.2"}, aPut(), node.Wait{
				For: time.Hour, Stop: make(chan struct{}),
			})
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
				time.AfterFunc(peerCloseWait/8, func() { call(2) })
			}
			if err := errors.Join(b.Close(t.Context()), <-served); err != nil {
				t.Error(err)
			}
			took := time.Since(began)
			if !busy {
				if took >= peerCloseWait/4 {
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
			if took > peerCloseWait*3/4 {
				t.Errorf("the node stopped after %v", took)
			}
			link = network.Link("b.2")
		}
	})
}

// raw opens a stream to b.2 and returns its connection.
func (st *streamTest) raw(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := st.a.dial(t.Context(), "b.2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	request := stream.NewUpgrade(&url.URL{Scheme: "http", Host: "b.2", Path: pathStream}, peerProtocol)
	in := bufio.NewReader(conn)
	if err := request.Write(conn); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(in, request)
	if err == nil {
		err = stream.Upgraded(response, peerProtocol)
	}
	if err != nil {
		t.Fatal(err)
	}
	return conn, in
}

// frameOf returns a frame, whose payload need not be as large as the header says.
func frameOf(h stream.Header, payload ...byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{byte(h.Kind), byte(h.Method), 0, 0}, h.ID)
	b = binary.BigEndian.AppendUint32(b, max(h.Size, uint32(len(payload))))
	return append(binary.BigEndian.AppendUint64(b, uint64(h.Number)), payload...)
}

// send sends bytes in a stream to b.2, and returns the time until b.2 ended it.
func (st *streamTest) send(t *testing.T, parts ...[]byte) time.Duration {
	t.Helper()
	conn, in := st.raw(t)
	began := time.Now()
	go func() {
		for _, part := range parts {
			_, _ = conn.Write(part)
		}
	}()
	_, _ = io.Copy(io.Discard, in)
	return time.Since(began)
}

// TestCallsThatCrossADrain: a call that was sent before the other node knew of the stop is refused
// such that it goes elsewhere.
func TestCallsThatCrossADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		st := newStreamTest(t, func(_ context.Context, shard uint32) (node.Reply, error) {
			<-hold
			return answered(shard), nil
		})
		conn, in := st.raw(t)
		call := append([]byte{0, 0}, st.a.forwarded(aPut())...)
		_, _ = conn.Write(frameOf(stream.Header{Kind: stream.Call, Method: streamDo, ID: 1}, call...))
		synctest.Wait()
		close(st.b.closing)
		if h, err := stream.ReadHeader(in); err != nil || h.Kind != stream.Leave {
			t.Fatalf("%+v, %v", h, err)
		}
		synctest.Wait()
		_, _ = conn.Write(frameOf(stream.Header{Kind: stream.Call, Method: streamDo, ID: 5}, call...))
		h, err := stream.ReadHeader(in)
		payload := make([]byte, h.Size)
		if err == nil {
			_, err = io.ReadFull(in, payload)
		}
		refused := readPeerError(http.StatusConflict, payload)
		if err != nil || h.Kind != stream.Failure || h.ID != 5 || !errors.Is(refused, errAgain) {
			t.Errorf("the answer is %+v, %v: %v", h, err, refused)
		}
		close(hold)
		for _, want := range []stream.Kind{stream.Answer, stream.Bye} {
			if h, err = stream.ReadHeader(in); err != nil || h.Kind != want {
				t.Fatalf("%+v, %v", h, err)
			}
			_, _ = in.Discard(int(h.Size))
		}
		st.b.closing = make(chan struct{}) // Close closes it
	})
}

// TestAnswerThatIsTooLarge ends its call, and not the stream.
func TestAnswerThatIsTooLarge(t *testing.T) {
	reply := answered(1)
	whole := len(appendReply(nil, &reply, heldBy(&reply), fsm.FirstFormat))
	if _, err := streamReply(&reply, fsm.FirstFormat, nil, whole); err != nil {
		t.Error(err)
	}
	if _, err := streamReply(&reply, fsm.FirstFormat, nil, whole-1); !errors.Is(err, node.ErrUnknownOutcome) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
}

// TestInvalidStream ends, with the calls in it: a method and a kind that are not known, and a
// payload where none belongs. A request that is too large fails alone.
func TestInvalidStream(t *testing.T) {
	for name, h := range map[string]stream.Header{
		"method": {Kind: stream.Call, Method: 9, ID: 2}, "kind": {Kind: 99}, "payload": {Kind: stream.Stop, ID: 1, Size: 7},
	} {
		synctest.Test(t, func(t *testing.T) {
			st := newStreamTest(t, nil)
			ended := make(chan struct{})
			st.host.reserve = func(ctx context.Context, _ node.Wait) (node.Reply, error) {
				defer close(ended)
				<-ctx.Done()
				return node.Reply{}, ctx.Err()
			}
			call := append([]byte{0, 0, 1}, st.a.forwarded(aPut())...)
			large := make([]byte, 2*streamRequestMax)
			took := st.send(t, frameOf(stream.Header{Kind: stream.Call, Method: streamReserve, ID: 1}, call...),
				frameOf(stream.Header{Kind: stream.Call, Method: streamDo, ID: 2}, large...), frameOf(h))
			if <-ended; took > time.Second {
				t.Errorf("%s: it lasted %v", name, took)
			}
		})
	}
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
			if _, err := st.call(t.Context(), 1, 10); !errors.Is(err, node.ErrNoLeader) ||
				node.OutcomeOf(err) != node.NotApplied {
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
