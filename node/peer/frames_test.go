package peer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node/nodetest/pipetest"
	"github.com/hashicorp/raft"
)

// pipeInFrames is a connection without a mux.
type pipeInFrames struct {
	net.Conn
	in  frameReader
	out frameWriter
}

// inFrames returns a connection whose greetings are over.
func inFrames(conn net.Conn) net.Conn {
	return &pipeInFrames{Conn: conn, in: frameReader{from: conn}, out: frameWriter{to: conn}}
}

func (c *pipeInFrames) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *pipeInFrames) Write(p []byte) (int, error) { return c.out.Write(p) }

// framed returns what writing these pieces sends.
func framed(t testing.TB, pieces ...[]byte) []byte {
	t.Helper()
	var sent bytes.Buffer
	w := frameWriter{to: &sent}
	for _, p := range pieces {
		if n, err := w.Write(p); n != len(p) || err != nil {
			t.Fatalf("writing %d bytes: %d, %v", len(p), n, err)
		}
	}
	return sent.Bytes()
}

// noise returns n bytes.
func noise(n int) []byte {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// TestFramesHandOnWhatWasWritten in whatever pieces it is written, carried and read.
func TestFramesHandOnWhatWasWritten(t *testing.T) {
	var pieces [][]byte
	for _, n := range []int{1, 0, 12, frameRoomMin - frameHead, frameRoomMin, frameBytesMax - 1, frameBytesMax,
		frameBytesMax + 1, 3*frameBytesMax + 5, 7} {
		pieces = append(pieces, noise(n))
	}
	want, sent := slices.Concat(pieces...), framed(t, pieces...)
	for name, carry := range map[string]func(io.Reader) io.Reader{
		"as it comes": func(r io.Reader) io.Reader { return r },
		"in halves":   iotest.HalfReader,
		"byte by byte, and the end with the last": func(r io.Reader) io.Reader {
			return iotest.DataErrReader(iotest.OneByteReader(r))
		},
	} {
		r := &frameReader{from: carry(bytes.NewReader(sent))}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v; want the %d that were written", name, len(got), err, len(want))
		}
		if len(r.room) > frameHead+frameBytesMax {
			t.Errorf("%s: the reader has room for %d bytes", name, len(r.room))
		}
	}
	got, err := io.ReadAll(iotest.OneByteReader(&frameReader{from: bytes.NewReader(sent)}))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("read byte by byte: %d bytes, %v; want the %d that were written", len(got), err, len(want))
	}
}

// TestEveryFlippedBitIsNoticed: what comes before it is handed on, and nothing after, however often
// one asks.
func TestEveryFlippedBitIsNoticed(t *testing.T) {
	pieces := [][]byte{noise(20), {0}, noise(300), make([]byte, 40)}
	sent, want := framed(t, pieces...), slices.Concat(pieces...)
	var ends []int // where in sent and want the frames end
	for at, i := 0, 0; i < len(pieces); i++ {
		at += frameHead + len(pieces[i])
		ends = append(ends, at)
	}
	for bit := range len(sent) * 8 {
		damaged := bytes.Clone(sent)
		damaged[bit/8] ^= 1 << (bit % 8)
		whole := 0 // frames before
		for ends[whole] <= bit/8 {
			whole++
		}
		r := &frameReader{from: bytes.NewReader(damaged)}
		got, err := io.ReadAll(r)
		if intact := want[:len(slices.Concat(pieces[:whole]...))]; !bytes.Equal(got, intact) {
			t.Fatalf("bit %d was flipped, in frame %d: %d bytes were handed on, want the %d before it", bit, whole+1, len(got),
				len(intact))
		}
		if !changed(err) || !strings.Contains(err.Error(), fmt.Sprintf("of frame %d is", whole+1)) {
			t.Fatalf("bit %d was flipped, in frame %d: %v", bit, whole+1, err)
		}
		if n, again := r.Read(make([]byte, 9)); n != 0 || !errors.Is(again, err) {
			t.Fatalf("after the end came %d bytes, %v", n, again)
		}
	}
}

// TestChangedLengthIsNoticedAtOnce, and not when the bytes have come that it promises: the peer
// waits for an answer, and sends none.
func TestChangedLengthIsNoticedAtOnce(t *testing.T) {
	for bit := range 8 * 8 {
		damaged := framed(t, []byte("hello"))
		damaged[bit/8] ^= 1 << (bit % 8)
		r := &frameReader{from: io.MultiReader(bytes.NewReader(damaged[:frameHead]), iotest.ErrReader(errors.New("read on")))}
		if _, err := r.Read(make([]byte, 9)); !changed(err) {
			t.Errorf("bit %d was flipped: %v", bit, err)
		}
	}
}

// TestFramesInAnotherOrder: each is sound by itself.
func TestFramesInAnotherOrder(t *testing.T) {
	one := framed(t, []byte("one!"))
	three := framed(t, []byte("one!"), []byte("two!"), []byte("tree"))
	a, b, c := three[:len(one)], three[len(one):2*len(one)], three[2*len(one):]
	for name, sent := range map[string][]byte{
		"one left out": slices.Concat(a, c), "doubled": slices.Concat(a, a), "swapped": slices.Concat(a, c, b),
		"begun in the middle": b,
	} {
		got, err := io.ReadAll(&frameReader{from: bytes.NewReader(sent)})
		if !changed(err) || !strings.HasPrefix("one!", string(got)) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestFramesCutShort(t *testing.T) {
	sent := framed(t, []byte("first"), []byte("second"))
	first := frameHead + len("first")
	for n := range len(sent) + 1 {
		got, err := io.ReadAll(&frameReader{from: bytes.NewReader(sent[:n])})
		want := ""
		if n >= first {
			want = "first"
		}
		if n == len(sent) {
			want = "firstsecond"
		}
		if boundary := n == 0 || n == first || n == len(sent); string(got) != want || boundary != (err == nil) || !boundary &&
			!errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: %q, %v", n, got, err)
		}
	}
}

// TestLengthsOfFrames: sums that fit do not make a length possible.
func TestLengthsOfFrames(t *testing.T) {
	for _, length := range []uint32{0, frameBytesMax + 1, 1<<31 + 1, 1<<32 - 1} {
		head := binary.BigEndian.AppendUint32(nil, length)
		head = binary.BigEndian.AppendUint32(head, frameSum(0, head))
		head = append(head, head[4:8]...)
		r := &frameReader{from: io.MultiReader(bytes.NewReader(head), zeros{})}
		if n, err := r.Read(make([]byte, 9)); n != 0 || !changed(err) {
			t.Errorf("a frame of %d bytes: %d bytes, %v", length, n, err)
		}
		if len(r.room) > frameRoomMin {
			t.Errorf("a frame of %d bytes has room for %d made", length, len(r.room))
		}
	}
}

// TestFramesOverDeadlines: a reader goes on where it was, a writer ends if a part of a frame was
// sent.
func TestFramesOverDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		w, r := inFrames(near), inFrames(far)
		sent := framed(t, []byte("hello"))
		go func() {
			for i := range sent {
				time.Sleep(time.Second)
				_, _ = near.Write(sent[i : i+1])
			}
		}()
		got, waits := make([]byte, 9), 0
		for {
			_ = far.SetReadDeadline(time.Now().Add(2500 * time.Millisecond))
			n, err := r.Read(got)
			if err == nil {
				got = got[:n]
				break
			}
			if waits++; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
		}
		if string(got) != "hello" || waits < 5 {
			t.Errorf("after %d deadlines: %q", waits, got)
		}

		_ = near.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := w.Write([]byte("never")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("to nobody: %d, %v", n, err)
		}
		_ = far.SetReadDeadline(time.Time{})
		go func() { _, _ = io.CopyN(io.Discard, far, 3) }()
		_ = near.SetWriteDeadline(time.Now().Add(time.Second)) // nothing was sent, so it may be tried again
		if n, err := w.Write([]byte("cut")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("to one who reads three bytes: %d, %v", n, err)
		}
		_ = near.SetWriteDeadline(time.Time{})
		if n, err := w.Write([]byte("more")); n != 0 || !errors.Is(err, errFrameCut) {
			t.Errorf("after half a frame: %d, %v", n, err)
		}
	})
}

// TestOneWriteForEach: a write is one write of the connection, whose memory is used again.
func TestOneWriteForEach(t *testing.T) {
	var writes int
	message := noise(300)
	w := frameWriter{to: writerFunc(func(p []byte) (int, error) {
		writes++
		return len(p), nil
	})}
	allocations := testing.AllocsPerRun(100, func() { _, _ = w.Write(message) })
	if writes != 101 || allocations != 0 {
		t.Errorf("101 writes made %d, and each %v allocations", writes, allocations)
	}
	r := frameReader{from: bytes.NewReader(bytes.Repeat(message, 1000))}
	sent := framed(t, slices.Repeat([][]byte{message}, 200)...)
	r.from = bytes.NewReader(sent)
	p := make([]byte, len(message))
	if allocations := testing.AllocsPerRun(100, func() { _, _ = io.ReadFull(&r, p) }); allocations != 0 ||
		!bytes.Equal(p, message) {
		t.Errorf("a read makes %v allocations", allocations)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestHalfClosed: an end that says nothing more may still be told something.
func TestHalfClosed(t *testing.T) {
	l := listenTCP(t)
	answer := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			answer <- err
			return
		}
		defer conn.Close()
		both := inFrames(conn)
		question, err := io.ReadAll(both)
		if err == nil {
			_, err = both.Write(append([]byte("to "), question...))
		}
		answer <- err
	}()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	both := inFrames(conn)
	if _, err := both.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(both); string(got) != "to question" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// TestGreetingsAreSummed: no greeting is taken for another one.
func TestGreetingsAreSummed(t *testing.T) {
	var buf bytes.Buffer
	want := greeting{version: protocolVersion, verdict: refusedGroup, cluster: "c", group: "shard-0", sender: "n2.1",
		receiver: "n1.1"}
	if err := writeGreeting(&buf, want); err != nil {
		t.Fatal(err)
	}
	for bit := range buf.Len() * 8 {
		damaged := bytes.Clone(buf.Bytes())
		damaged[bit/8] ^= 1 << (bit % 8)
		if got, err := readGreeting(bytes.NewReader(damaged)); err == nil && got.version == protocolVersion {
			t.Errorf("bit %d was flipped: %v", bit, got)
		}
	}
}

// flipping flips a bit of what is written, once it is armed.
type flipping struct {
	net.Conn
	armed bool
}

func (c *flipping) Write(p []byte) (int, error) {
	if c.armed {
		p = bytes.Clone(p)
		p[len(p)-1] ^= 0x10
	}
	return c.Conn.Write(p)
}

// TestChangedBytesEndTheConnection: in both directions, a changed message is not delivered. It is
// counted each time and logged once.
func TestChangedBytesEndTheConnection(t *testing.T) {
	for _, way := range []string{"there", "back"} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, logged := pipetest.Listen("pipe"), &countingHandler{Handler: slog.DiscardHandler}
				near := New(member(Config{Logger: slog.New(logged), Listener: l}, "c", "n1"))
				defer near.Close()
				var flip *flipping // the newest connection's
				dial := func(ctx context.Context, addr string) (net.Conn, error) {
					conn, far := net.Pipe()
					flip = &flipping{Conn: conn}
					ends := [2]net.Conn{flip, far}
					if way == "back" {
						flip.Conn = far
						ends = [2]net.Conn{conn, flip}
					}
					l.Conns() <- ends[1]
					return ends[0], nil
				}
				told := &countingHandler{Handler: slog.DiscardHandler}
				cfg := Config{Logger: slog.New(told), Dial: dial, Resolve: func(string) ([]string, error) {
					return []string{""}, nil
				}}
				far := New(member(cfg, "c", "n2"))
				defer far.Close()
				taken := 0
				serve(t, near.Transport("shard-0"), func(rpc raft.RPC) {
					taken++
					rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
				})
				trans := far.Transport("shard-0")
				defer func() { _ = trans.Close() }()
				ask := func() error {
					return trans.AppendEntries("n1.1", "n1.1", &raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 1},
						&raft.AppendEntriesResponse{})
				}
				const rounds = 3
				for range rounds {
					if err := ask(); err != nil {
						t.Fatal(err)
					}
					flip.armed = true
					if err := ask(); err == nil {
						t.Error("an exchange with a changed byte succeeded")
					} else if way == "back" && !strings.Contains(err.Error(), `from server "n1.1": bytes were changed on the way`) {
						// the library wraps nothing
						t.Errorf("the error does not name what happened: %v", err)
					}
					synctest.Wait()
					if len(near.conns) != 0 || len(far.conns) != 0 {
						t.Errorf("%d and %d connections are still there", len(near.conns), len(far.conns))
					}
				}
				here, wantTaken, log := near, rounds, logged
				if way == "back" {
					here, wantTaken, log = far, 2*rounds, told
				}
				if n := here.changed.Load(); n != rounds || taken != wantTaken {
					t.Errorf("%d changes were counted and %d messages taken, want %d and %d", n, taken, rounds, wantTaken)
				}
				if n := log.warnings.Load(); n != 1 {
					t.Errorf("it was logged %d times", n)
				}
			})
		})
	}
}

// TestTrickleOfAFrame: only its first byte may take for ever.
func TestTrickleOfAFrame(t *testing.T) {
	withHostilePeer(t, nil, func(t *testing.T, h hostile) {
		message := framed(t, voteRequest(t))
		time.Sleep(24 * time.Hour)
		raw := h
		raw.Conn = h.Conn.(*framedConn).trackedConn
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			raw.trickle(message)
		}()
		h.expectEnd(t, rpcTimeout)
		<-ended
	})
}

func FuzzFrames(f *testing.F) {
	f.Add(framed(f, []byte("one"), noise(100)))
	f.Add(framed(f, []byte("one"))[:frameHead])
	f.Add([]byte("\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &frameReader{from: bytes.NewReader(data)}
		got, err := io.ReadAll(iotest.OneByteReader(r))
		// What was handed on is what these bytes are the frames of, up to where they are not.
		var sent bytes.Buffer
		w := frameWriter{to: &sent}
		for at, rest := 0, got; len(rest) > 0; {
			n := int(binary.BigEndian.Uint32(data[at:]))
			_, _ = w.Write(rest[:n])
			at, rest = at+frameHead+n, rest[n:]
		}
		if !bytes.HasPrefix(data, sent.Bytes()) {
			t.Errorf("%q gives %q, which is sent as %q", data, got, sent.Bytes())
		}
		if (err == nil) != (sent.Len() == len(data)) || len(r.room) > frameHead+frameBytesMax {
			t.Errorf("of %d bytes %d are frames, room for %d was made: %v", len(data), sent.Len(), len(r.room), err)
		}
	})
}
