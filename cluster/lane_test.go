package cluster

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

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// countPaths counts the calls of each path that peers answer.
func countPaths(p *peers) func(path string) int {
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

// laneTest is a node a.1 that calls b.2, whose shards carry out what do says.
type laneTest struct {
	network *pipes
	a, b    *peers
	host    *laneTestHost
	count   func(path string) int
}

// laneTestHost leads every shard.
type laneTestHost struct {
	loneHost
	do func(ctx context.Context, shard uint32) (node.Reply, error)
}

func (h *laneTestHost) Do(ctx context.Context, shard uint32, _ *fsm.Request) (node.Reply, error) {
	return h.do(ctx, shard)
}

func newLaneTest(t *testing.T, do func(ctx context.Context, shard uint32) (node.Reply, error)) *laneTest {
	t.Helper()
	lt := &laneTest{network: newPipes(), host: &laneTestHost{do: do}}
	lt.host.format.Store(uint32(fsm.LatestFormat))
	lt.a = startPeers(t, lt.network.link("a.1"))
	lt.b = newPeers(lt.network.link("b.2"), slog.New(slog.DiscardHandler))
	lt.count = countPaths(lt.b)
	served := make(chan error, 1)
	go func() { served <- lt.b.serve(lt.network.links["b.2"]) }()
	t.Cleanup(func() {
		if err := errors.Join(lt.b.close(t.Context()), <-served); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	answerShards(lt.b, lt.host, "b.2")
	return lt
}

// call has a put carried out by b.2.
func (lt *laneTest) call(ctx context.Context, shard uint32, body int) (node.Reply, error) {
	req := aPut()
	req.Commands[0].(*fsm.Put).Body = make([]byte, body)
	return lt.a.do(ctx, forwardedTo{server: "b.2", shard: shard}, req)
}

// answered is a reply that names the shard.
func answered(shard uint32) node.Reply {
	return node.Reply{Witness: node.Witness{Shard: shard}, Results: make([]fsm.Result, 1)}
}

// TestCallsShareALane: calls of one moment go in one lane, and each gets its own answer, the last first; a large one has a call of its own.
func TestCallsShareALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 100
		lt := newLaneTest(t, func(_ context.Context, shard uint32) (node.Reply, error) {
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
				reply, err := lt.call(t.Context(), shard, 10)
				if refused := shard%10 == 3; errors.Is(err, node.ErrDiskFull) != refused || !refused && (err != nil || reply.Witness.Shard != shard) {
					t.Errorf("shard %d: %+v, %v", shard, reply, err)
				}
			})
		}
		all.Wait()
		if lanes, alone := lt.count(pathLane), lt.count(pathDo); lanes != 1 || alone != 0 {
			t.Errorf("%d lanes and %d calls of their own, want 1 and 0", lanes, alone)
		}
		if reply, err := lt.call(t.Context(), 5, laneBytesMax); err != nil || reply.Witness.Shard != 5 {
			t.Errorf("a large call: %+v, %v", reply, err)
		}
		if alone := lt.count(pathDo); alone != 1 {
			t.Errorf("%d large calls had one of their own, want 1", alone)
		}
	})
}

// TestNodeWithoutLanes: calls to an older program are made as it knows them, and it is asked again for a lane when it may have been replaced.
func TestNodeWithoutLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lt := newLaneTest(t, func(_ context.Context, shard uint32) (node.Reply, error) { return answered(shard), nil })
		lt.host.reserve = func(context.Context, node.Wait) (node.Reply, error) { return answered(7), nil }
		known := lt.b.mux
		var old atomic.Bool
		old.Store(true)
		lt.b.mux = http.NewServeMux()
		lt.b.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			if old.Load() && r.URL.Path == pathLane {
				http.NotFound(w, r)
				return
			}
			known.ServeHTTP(w, r)
		})
		for range 3 {
			if reply, err := lt.call(t.Context(), 5, 10); err != nil || reply.Witness.Shard != 5 {
				t.Errorf("%+v, %v", reply, err)
			}
			reply, err := lt.a.reserve(t.Context(), forwardedTo{server: "b.2"}, aPut(), node.Wait{For: time.Second, Stop: make(chan struct{})})
			if err != nil || reply.Witness.Shard != 7 {
				t.Errorf("a Reserve: %+v, %v", reply, err)
			}
		}
		if lanes, alone := lt.count(pathLane), lt.count(pathDo); lanes != 1 || alone != 3 {
			t.Errorf("%d times a lane and %d calls of their own, want 1 and 3", lanes, alone)
		}
		old.Store(false)
		replaced := time.NewTimer(oldFor)
		<-replaced.C
		if _, err := lt.call(t.Context(), 5, 10); err != nil || lt.count(pathLane) != 2 || lt.count(pathDo) != 3 {
			t.Errorf("after a minute: %v, %d times a lane and %d calls of their own", err, lt.count(pathLane), lt.count(pathDo))
		}
	})
}

// TestCallsLeaveALane: who leaves is told that the outcome is not known, and the other node hears of it; others stay. A call that was never sent was not made.
func TestCallsLeaveALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan uint32, 1)
		lt := newLaneTest(t, func(ctx context.Context, shard uint32) (node.Reply, error) {
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
			_, err := lt.call(t.Context(), 1, 10)
			stayed <- err
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := lt.call(ctx, 2, 10); !errors.Is(err, node.ErrUnknownOutcome) {
			t.Errorf("who left got %v, want an unknown outcome", err)
		}
		if shard := <-left; shard != 2 {
			t.Errorf("the call of shard %d was left", shard)
		}
		if err := <-stayed; err != nil {
			t.Errorf("who stayed got %v", err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		l := &lane{wake: make(chan struct{}, 1), calls: map[uint64]*laneCall{}}
		c := &laneCall{answered: make(chan laneOutcome, 1)}
		l.add(c, laneDo, []byte("what is not to be sent"))
		if _, err := l.leave(ended, c); !errors.Is(err, node.ErrCanceled) || node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("who left before anything was sent got %v, want that nothing was done", err)
		}
		sent := make([]byte, 100)
		if n, _ := l.take(sent); bytes.Contains(sent[:n], []byte("not to be sent")) {
			t.Errorf("%q was sent", sent[:n])
		}
	})
}

// TestStopInALane ends the wait of one call, which is answered.
func TestStopInALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lt := newLaneTest(t, nil)
		lt.host.reserve = func(_ context.Context, wait node.Wait) (node.Reply, error) {
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
			reply, _ := lt.a.reserve(t.Context(), forwardedTo{server: "b.2"}, aPut(), node.Wait{For: time.Hour, Stop: make(chan struct{})})
			others <- reply.Witness.Shard
		}()
		time.AfterFunc(time.Second, func() { close(stop) })
		began := time.Now()
		reply, err := lt.a.reserve(t.Context(), forwardedTo{server: "b.2"}, aPut(), node.Wait{For: time.Hour, Stop: stop})
		if err != nil || reply.Witness.Shard != 1 || time.Since(began) != time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(began), reply, err)
		}
		if shard := <-others; shard != 2 || time.Since(began) != time.Hour {
			t.Errorf("the other ended as %d after %v", shard, time.Since(began))
		}
	})
}

// TestLaneThatBreaks: what was sent has an unknown outcome, whoever carries it out hears of it, and the next call has another lane.
func TestLaneThatBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		var lt *laneTest
		lt = newLaneTest(t, func(ctx context.Context, shard uint32) (node.Reply, error) {
			if shard == 1 {
				return answered(shard), nil
			}
			lt.network.links["b.2"].cut()
			<-ctx.Done()
			close(ended)
			return node.Reply{}, ctx.Err()
		})
		if _, err := lt.call(t.Context(), 0, 10); !errors.Is(err, node.ErrUnknownOutcome) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
		<-ended
		if _, err := lt.call(t.Context(), 1, 10); err != nil || lt.count(pathLane) != 2 {
			t.Errorf("the next call: %v, in lane %d", err, lt.count(pathLane))
		}
		lt.network.isolate("b.2", true)
		synctest.Wait()
		if _, err := lt.call(t.Context(), 1, 10); !errors.Is(err, errAgain) || node.OutcomeOf(err) != node.NotApplied {
			t.Errorf("a call to a node that is not reached: %v", err)
		}
		lt.network.isolate("b.2", false)
	})
}

// TestLaneAtANodeThatStops: it answers what is under way, and refuses at once what was sent before the other node heard of the stop. A lane in which there is nothing keeps
// nobody.
func TestLaneAtANodeThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		host, link := &laneTestHost{}, network.link("b.2")
		host.format.Store(uint32(fsm.LatestFormat))
		host.do = func(_ context.Context, shard uint32) (node.Reply, error) {
			rest := time.NewTimer(peerCloseWait / 2)
			<-rest.C
			return answered(shard), nil
		}
		for _, busy := range []bool{true, false} {
			a, b := startPeers(t, network.link("a.1")), newPeers(link, slog.New(slog.DiscardHandler))
			answerShards(b, host, "b.2")
			served, got := make(chan error, 1), make(chan error, 2)
			go func() { served <- b.serve(link) }()
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
				time.AfterFunc(laneGoodbye/2, func() { call(2) })
			}
			if err := errors.Join(b.close(t.Context()), <-served); err != nil {
				t.Error(err)
			}
			took := time.Since(began)
			if !busy {
				if took >= laneGoodbye {
					t.Errorf("an idle lane kept the node for %v", took)
				}
				return
			}
			if err := <-got; !errors.Is(err, errAgain) || node.OutcomeOf(err) != node.NotApplied {
				t.Errorf("what came later: %v", err)
			}
			if err := <-got; err != nil {
				t.Errorf("what was under way: %v", err)
			}
			if took > peerCloseWait/2+laneGoodbye {
				t.Errorf("the node stopped after %v", took)
			}
			link = network.link("b.2")
		}
	})
}

// TestCallsThatCrossAGoodbye: what was sent before the other node heard that this one stops is refused such that it goes elsewhere.
func TestCallsThatCrossAGoodbye(t *testing.T) {
	h := newLaneHost(t.Context(), nil, waitingHost{}, "a.1")
	h.close()
	h.take(laneMessage{kind: laneDo, id: 5})
	from := bufio.NewReader(bytes.NewReader(h.out))
	if m, err := readLane(from, 100, nil); err != nil || m.kind != laneClosing {
		t.Errorf("the goodbye is %+v, %v", m, err)
	}
	m, err := readLane(from, 1000, nil)
	if _, refused := (laneOutcome{laneMessage: m}).read(); err != nil || m.id != 5 || !errors.Is(refused, errAgain) {
		t.Errorf("the answer is %+v, %v: %v", m, err, refused)
	}
}

// TestLaneThatMakesNoSense ends, and what was carried out for it.
func TestLaneThatMakesNoSense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lt := newLaneTest(t, nil)
		lt.host.reserve = func(ctx context.Context, _ node.Wait) (node.Reply, error) {
			<-ctx.Done()
			return node.Reply{}, ctx.Err()
		}
		took := lt.send(t, appendLane(nil, laneReserve, 1, []byte{0, 0, 1}, lt.a.forwarded(aPut())), appendLane(nil, laneDo, 2, make([]byte, 2*laneBytesMax))[:10])
		if took > time.Second {
			t.Errorf("it lasted %v", took)
		}
	})
}

// send sends bytes to the host b.2 as a lane, and returns how long that answered until it ended.
func (lt *laneTest) send(t *testing.T, parts ...[]byte) time.Duration {
	t.Helper()
	body, write := io.Pipe()
	defer write.Close()
	go func() {
		for _, part := range parts {
			_, _ = write.Write(part)
		}
	}()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://b.2"+pathLane, body)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	response, err := lt.a.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return time.Since(began)
}

// TestIdleGoroutinesOfALane are used again, and few of them are kept.
func TestIdleGoroutinesOfALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLaneHost(t.Context(), nil, waitingHost{}, "a.1")
		idle := func() int {
			synctest.Wait()
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.idle
		}
		done := make(chan struct{})
		for range 2 * laneIdleMax {
			h.begin(func() { <-done })
		}
		if n := idle(); n != 0 {
			t.Errorf("%d are idle while all have a call", n)
		}
		close(done)
		if n := idle(); n != laneIdleMax {
			t.Errorf("%d are idle, want %d", n, laneIdleMax)
		}
		again := make(chan struct{})
		h.begin(func() { <-again })
		if n := idle(); n != laneIdleMax-1 {
			t.Errorf("%d are idle beside one that has a call, want %d", n, laneIdleMax-1)
		}
		close(again)
		close(h.ended)
		h.carrying.Wait()
	})
}

// TestStrangersInALane: a node that is one no more is refused in the lane that it has, and in a new one.
func TestStrangersInALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lt := newLaneTest(t, func(_ context.Context, shard uint32) (node.Reply, error) { return answered(shard), nil })
		var removed atomic.Bool
		lt.b.member = func(string) bool { return !removed.Load() }
		if _, err := lt.call(t.Context(), 1, 10); err != nil {
			t.Fatal(err)
		}
		removed.Store(true)
		for _, what := range []string{"the lane that it has", "a new one"} {
			if _, err := lt.call(t.Context(), 1, 10); !errors.Is(err, node.ErrNoLeader) || node.OutcomeOf(err) != node.NotApplied {
				t.Errorf("%s: %v", what, err)
			}
			lt.network.links["b.2"].cut()
			synctest.Wait()
		}
		if lt.count(pathLane) != 2 || lt.count(pathDo) != 0 {
			t.Errorf("%d lanes and %d calls of their own, want 2 and 0", lt.count(pathLane), lt.count(pathDo))
		}
	})
}

// TestAnswerThatIsTooLarge ends its call, and not the lane.
func TestAnswerThatIsTooLarge(t *testing.T) {
	reply := answered(1)
	whole := len(appendReply(nil, &reply, heldBy(&reply), fsm.FirstFormat))
	for _, tt := range []struct {
		most int
		want error
	}{{whole, nil}, {whole - 1, node.ErrUnknownOutcome}} {
		kind, content := laneEnd(&reply, nil, tt.most)
		if _, err := (laneOutcome{laneMessage: laneMessage{kind: kind, content: content}}).read(); !errors.Is(err, tt.want) {
			t.Errorf("of at most %d bytes: %v, want %v", tt.most, err, tt.want)
		}
	}
}

// TestMessagesOfALane are read as they were written; what is too long is refused, and what does not go on is given up.
func TestMessagesOfALane(t *testing.T) {
	written := appendLane(nil, laneDo, 1<<40, []byte("a"), []byte("b"))
	written = appendLane(written, laneAnswer, 7, bytes.Repeat([]byte("x"), 3*roomAtFirst))
	from := bufio.NewReader(bytes.NewReader(written))
	for _, want := range []laneMessage{{laneDo, 1 << 40, []byte("ab")}, {laneAnswer, 7, bytes.Repeat([]byte("x"), 3*roomAtFirst)}} {
		if m, err := readLane(from, 4*roomAtFirst, nil); err != nil || m.kind != want.kind || m.id != want.id || !bytes.Equal(m.content, want.content) {
			t.Errorf("%d bytes of %d, %d, %v", len(m.content), m.kind, m.id, err)
		}
	}
	if _, err := readLane(from, 1, nil); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	if _, err := readLane(bufio.NewReader(bytes.NewReader(written)), 1, nil); err == nil {
		t.Error("a message of two bytes was read where one is the most")
	}
	for n := 1; n < len(written)-1; n += 1 + n/3 {
		from := bufio.NewReader(bytes.NewReader(written[:n]))
		_, err := readLane(from, 4*roomAtFirst, nil)
		if _, again := readLane(from, 4*roomAtFirst, nil); err == nil && again == nil {
			t.Errorf("%d of %d bytes were two messages", n, len(written))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		body, write := io.Pipe()
		defer write.Close()
		go func() { _, _ = write.Write([]byte{laneDo, 1}) }()
		began := time.Now()
		idle := time.NewTimer(time.Hour)
		<-idle.C
		_, err := readLane(bufio.NewReader(body), 100, func() { _ = body.CloseWithError(errSlow) })
		if took := time.Since(began) - time.Hour; err == nil || took != paceWait {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
