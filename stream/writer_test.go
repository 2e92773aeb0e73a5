package stream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errOver = errors.New("over")

// A countingConn counts writes.
type countingConn struct {
	net.Conn
	writes int
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.writes++
	return c.Conn.Write(p)
}

// A written is a writer that runs, and what it writes to.
type written struct {
	*Writer
	conn *countingConn
	peer net.Conn
	in   *bufio.Reader
	ran  chan error
}

// run starts a writer with a limit of a minute. The test must close it.
func run(t *testing.T) *written {
	ours, theirs := net.Pipe()
	w := &written{conn: &countingConn{Conn: ours}, peer: theirs, in: bufio.NewReader(theirs), ran: make(chan error, 1)}
	w.Writer = NewWriter(w.conn, Limit{Wait: time.Minute})
	go func() { w.ran <- w.Run() }()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return w
}

// end closes the writer, and checks that it ran until then.
func (w *written) end(t *testing.T) {
	t.Helper()
	w.Close(errOver)
	if err := <-w.ran; !errors.Is(err, errOver) {
		t.Errorf("it ran until %v", err)
	}
}

// next reads a frame.
func (w *written) next(t *testing.T) (Header, []byte) {
	t.Helper()
	h, err := ReadHeader(w.in)
	if err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, h.Size)
	if _, err := io.ReadFull(w.in, payload); err != nil {
		t.Fatal(err)
	}
	return h, payload
}

// TestFramesStayInOrder: those of one sender come in its order and whole, whatever others send.
func TestFramesStayInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const senders, frames = 5, 200
		w := run(t)
		var sending sync.WaitGroup
		for id := range uint32(senders) {
			sending.Go(func() {
				payload := make([]byte, 0, 64)
				for n := range int64(frames) {
					payload = append(payload[:0], bytes.Repeat([]byte{byte(n)}, int(n%7))...)
					if _, err := w.Send(t.Context(), Header{Kind: Answer, ID: id, Number: n}, payload); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Duration(id+1) * time.Millisecond) // others are written meanwhile
				}
			})
		}
		var came [senders]int64
		for range senders * frames {
			h, payload := w.next(t)
			if want := bytes.Repeat([]byte{byte(h.Number)}, int(h.Number%7)); h.Number != came[h.ID] ||
				!bytes.Equal(payload, want) {
				t.Fatalf("%+v with %v came after %d frames of the sender", h, payload, came[h.ID])
			}
			came[h.ID]++
			time.Sleep(time.Millisecond)
		}
		sending.Wait()
		w.end(t)
	})
}

// TestFramesShareAWrite: what comes while the peer does not read leaves in one write.
func TestFramesShareAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t)
		for n := range int64(100) {
			if _, err := w.Send(t.Context(), Header{Kind: Ping, Number: n}, nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the first is being written
			if !w.Writing() {
				t.Fatal("nothing is being written")
			}
		}
		for n := range int64(100) {
			if h, _ := w.next(t); h.Number != n {
				t.Fatalf("%d came as number %d", h.Number, n)
			}
		}
		synctest.Wait()
		if w.conn.writes != 2 || w.Writing() {
			t.Errorf("%d writes; one is under way: %v", w.conn.writes, w.Writing())
		}
		w.end(t)
	})
}

// TestSendersWaitWhileMuchIsPending: and go on when it was taken, when their context ends, and when
// the writer ends.
func TestSendersWaitWhileMuchIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t)
		large := make([]byte, pendingMax)
		send := func(ctx context.Context, id uint32) chan error {
			sent := make(chan error, 1)
			go func() {
				_, err := w.Send(ctx, Header{Kind: Answer, ID: id}, large)
				sent <- err
			}()
			synctest.Wait()
			return sent
		}
		for id := range uint32(2) { // one is being written, one is pending
			if err := <-send(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		ctx, leave := context.WithCancelCause(t.Context())
		gone, waits := send(ctx, 2), send(t.Context(), 3)
		errGone := errors.New("gone")
		leave(errGone)
		if err := <-gone; !errors.Is(err, errGone) {
			t.Errorf("a sender whose context ended: %v", err)
		}
		offered, err := 0, error(nil)
		for ; err == nil; offered++ { // frames without a payload have room of their own
			err = w.Offer(Header{Kind: Ping})
		}
		if offered--; !errors.Is(err, errFull) || offered != (controlMax+headerBytes-1)/headerBytes ||
			len(waits) > 0 {
			t.Errorf("a sender did not wait, or %d offers were taken: %v", offered, err)
		}
		w.next(t)
		if err := <-waits; err != nil {
			t.Error(err)
		}
		last := send(t.Context(), 4)
		w.Close(errOver)
		if err := <-last; !errors.Is(err, errOver) {
			t.Errorf("a sender that waited when the writer ended: %v", err)
		}
		for _, want := range []uint32{1, 3} { // what was accepted is written
			if h, payload := w.next(t); h.ID != want || len(payload) != len(large) {
				t.Errorf("%+v, want number %d", h, want)
			}
			for ; want == 1 && offered > 0; offered-- {
				if h, _ := w.next(t); h.Kind != Ping {
					t.Fatalf("%+v, want a Ping", h)
				}
			}
		}
		if err := <-w.ran; !errors.Is(err, errOver) {
			t.Errorf("it ran until %v", err)
		}
	})
}

// TestAFrameAboveTheBound is sent when nothing else is pending.
func TestAFrameAboveTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t)
		if _, err := w.Send(t.Context(), Header{Kind: Answer}, make([]byte, 2*pendingMax)); err != nil {
			t.Fatal(err)
		}
		if _, payload := w.next(t); len(payload) != 2*pendingMax {
			t.Errorf("%d bytes", len(payload))
		}
		w.end(t)
	})
}

// TestAPeerThatDoesNotRead ends the writer when the limit is over, and the senders with it.
func TestAPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t)
		began := time.Now()
		if _, err := w.Send(t.Context(), Header{Kind: Ping}, nil); err != nil {
			t.Fatal(err)
		}
		if err := <-w.ran; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if _, err := w.Send(t.Context(), Header{Kind: Ping}, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a later sender: %v", err)
		}
	})
}

// TestTheFirstCloseCounts: and a writer without anything to write ends at once.
func TestTheFirstCloseCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t)
		w.Close(errOver)
		w.Close(io.EOF)
		_, refused := w.Send(t.Context(), Header{Kind: Ping}, nil)
		if err := errors.Join(<-w.ran, refused, w.Offer(Header{Kind: Ping})); errors.Is(err, io.EOF) ||
			!errors.Is(err, errOver) {
			t.Error(err)
		}
	})
}

// TestPayloadsMayBeUsedAgain once they were sent.
func TestPayloadsMayBeUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t)
		payload := []byte("as it was")
		for range 3 {
			if _, err := w.Send(t.Context(), Header{Kind: Answer}, payload); err != nil {
				t.Fatal(err)
			}
		}
		clear(payload)
		for range 3 {
			if _, got := w.next(t); !slices.Equal(got, []byte("as it was")) {
				t.Errorf("%q", got)
			}
		}
		w.end(t)
	})
}

// TestFramesAreWithdrawn only while their write has not begun; the others are written whole.
func TestFramesAreWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t)
		var frames []FrameID
		for id := range uint32(6) {
			frame, err := w.Send(t.Context(), Header{Kind: Call, ID: id}, bytes.Repeat([]byte{byte(id)}, int(id)))
			if err != nil {
				t.Fatal(err)
			}
			frames = append(frames, frame)
			synctest.Wait() // the first is being written
		}
		if w.Withdraw(frames[0]) || !w.Withdraw(frames[4]) || !w.Withdraw(frames[1]) || !w.Withdraw(frames[5]) {
			t.Error("the wrong frames were withdrawn")
		}
		for _, id := range []uint32{0, 2, 3} {
			if h, payload := w.next(t); h.ID != id || !bytes.Equal(payload, bytes.Repeat([]byte{byte(id)}, int(id))) {
				t.Errorf("%+v %v, want number %d", h, payload, id)
			}
		}
		synctest.Wait()
		if w.Withdraw(frames[2]) {
			t.Error("a frame that was written was withdrawn")
		}
		w.end(t)
	})
}
