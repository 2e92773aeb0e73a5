package gossip

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// listening returns a transport on a socket of this machine, which ends with the test. It takes only
// what comes from the networks given, or from everywhere if none is.
func listening(t *testing.T, keys *keyring, from ...netip.Prefix) *transport {
	t.Helper()
	socket, err := sockets{}.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	tr := &transport{
		socket: socket, advertise: socket.Addr(), keys: keys, logger: discard(), life: t.Context, failures: &failures{},
		allowFrom: from, refused: func(netip.AddrPort, error) {},
	}
	tr.start()
	t.Cleanup(func() {
		if err := tr.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

// wire listens for streams, which end with the test, and gives each to take, with a deadline.
func wire(t *testing.T, take func(conn net.Conn)) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				if conn.SetDeadline(time.Now().Add(time.Minute)) == nil {
					take(conn)
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

// dialled opens a stream to addr that lasts a minute at most.
func dialled(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(time.Minute))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

const questionSaid, answerSaid = "\x00\x80", "\x02\x80" // a ping and its answer

// ask opens a stream from one transport to addr, says the question and returns the answer.
func ask(t *testing.T, from *transport, addr string) (answer string, err error) {
	t.Helper()
	conn, err := from.DialTimeout(addr, time.Minute)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(questionSaid)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := conn.Read(buf)
	return string(buf[:n]), err
}

// record makes one node call another over a wire that copies both directions, as an attacker
// between two nodes could.
func record(t *testing.T, caller, called *transport) (there, back []byte) {
	t.Helper()
	var out, in bytes.Buffer
	wireEnds := make(chan struct{})
	between := wire(t, func(near net.Conn) {
		defer close(wireEnds)
		far := dialled(t, called.socket.Addr().String())
		var answering sync.WaitGroup
		answering.Go(func() {
			_, _ = io.Copy(near, io.TeeReader(far, &in))
			near.Close()
		})
		_, _ = io.Copy(far, io.TeeReader(near, &out)) // until the caller closes
		far.Close()
		answering.Wait()
	})
	served := make(chan error, 1)
	go func() {
		conn := <-called.streams
		defer conn.Close()
		heard := make([]byte, 100)
		n, err := conn.Read(heard)
		if err == nil && string(heard[:n]) != questionSaid {
			err = errors.New("the question is " + string(heard[:n]))
		}
		_, failed := conn.Write([]byte(answerSaid))
		served <- errors.Join(err, failed)
	}()
	if answer, err := ask(t, caller, between); err != nil || answer != answerSaid {
		t.Fatalf("over a wire: %q, %v", answer, err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	<-wireEnds
	return out.Bytes(), in.Bytes()
}

// TestRecordedStreamsDoNotOpen: what one node said to another on a stream is refused on the next,
// by the same node and by another one, and so is what it was answered, by the node that asked.
func TestRecordedStreamsDoNotOpen(t *testing.T) {
	for name, keys := range map[string]*keyring{"with a key": ring(t, keyOf(1, 32)), "without": ring(t)} {
		t.Run(name, func(t *testing.T) {
			caller, called := listening(t, keys), listening(t, keys)
			question, answer := record(t, caller, called)
			for who, tr := range map[string]*transport{
				"the same node": called, "another": listening(t, keys), "the node that said it": caller,
			} {
				conn := dialled(t, tr.socket.Addr().String())
				if _, err := conn.Write(question); err != nil {
					t.Fatal(err)
				}
				heard := make(chan []byte, 1)
				go func() {
					all, _ := io.ReadAll(conn) // what came is compared
					heard <- all
				}()
				select {
				case stream := <-tr.streams:
					stream.Close()
					t.Errorf("%s takes a recorded stream", who)
				case all := <-heard:
					if len(all) != headBytes+challengeBytes+headBytes || !bytes.HasSuffix(all, frameHead(frameRefused)) {
						t.Errorf("%s says %x to a recorded stream", who, all)
					}
				}
			}
			impostor := wire(t, func(conn net.Conn) {
				_, _ = conn.Write(answer)
				_, _ = io.Copy(io.Discard, conn) // until the caller closes
			})
			if heard, err := ask(t, caller, impostor); !errors.Is(err, errWrongKey) {
				t.Errorf("a recorded answer opens as %q, %v", heard, err)
			}
			reflecting := wire(t, func(conn net.Conn) {
				_, _ = io.CopyN(io.Discard, conn, headBytes+int64(len(knockEnd)))
				_, _ = conn.Write(answer[:headBytes+challengeBytes])
				_, _ = io.Copy(conn, conn)
			})
			if heard, err := ask(t, caller, reflecting); !errors.Is(err, errWrongKey) {
				t.Errorf("a node's own question opens as the answer %q, %v", heard, err)
			}
		})
	}
}

// TestStreamsBeginWithAKnock: a caller gets a challenge only if it asks for it, and nothing that
// arrives before the knock is read.
func TestStreamsBeginWithAKnock(t *testing.T) {
	keys := ring(t, keyOf(1, 32))
	tr := listening(t, keys)
	bound := binding{}
	unasked, err := keys.sealStream(bound.question(), []byte(questionSaid))
	if err != nil {
		t.Fatal(err)
	}
	for name, say := range map[string][]byte{
		"a question at once": unasked, "a challenge": append(frameHead(frameChallenge), make([]byte, challengeBytes)...),
		"an earlier version": []byte("BG\x01k" + knockEnd), "half a knock": []byte("BG\x02kxxxx"),
		"a web browser": []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		conn := dialled(t, tr.socket.Addr().String())
		if _, err := conn.Write(say); err != nil {
			t.Fatal(err)
		}
		if heard, err := io.ReadAll(conn); len(heard) != 0 || isTimeout(err) {
			t.Errorf("%s is answered %x, %v", name, heard, err)
		}
	}
	for name, answer := range map[string]string{
		"a web server": "HTTP/1.1 400 Bad Request\r\n\r\n", "no challenge": "BG\x02r", "an earlier version": "BG\x01c",
	} {
		addr := wire(t, func(conn net.Conn) { _, _ = io.WriteString(conn, answer) })
		if conn, err := tr.DialTimeout(addr, time.Minute); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v, %v", name, conn, err)
		}
	}
	silent := wire(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	if conn, err := tr.DialTimeout(silent, 10*time.Millisecond); !isTimeout(err) {
		t.Errorf("what is silent: %v, %v", conn, err)
	}
}

// TestKnockAtAWebServer: a join address that leads to the port of clients, with TLS or without, is
// answered at once.
func TestKnockAtAWebServer(t *testing.T) {
	tr := listening(t, ring(t))
	for name, start := range map[string]func(*httptest.Server){
		"HTTP": (*httptest.Server).Start, "TLS": (*httptest.Server).StartTLS,
	} {
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		start(server)
		if conn, err := tr.DialTimeout(server.Listener.Addr().String(), time.Minute); err == nil || isTimeout(err) {
			t.Errorf("%s: %v, %v", name, conn, err)
		}
		server.Close()
	}
}

// isTimeout reports whether an error is that a deadline is over.
func isTimeout(err error) bool {
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout()
}

// TestPacketsOpenOnce: a packet that arrives again is dropped, from any sender, and so is one that
// went to another node.
func TestPacketsOpenOnce(t *testing.T) {
	keys := ring(t, keyOf(1, 32))
	tr := listening(t, keys)
	to := tr.advertise
	one, two, end := keys.sealPacket(to, []byte("\x00\x80")), keys.sealPacket(to, []byte("\x05\x80")),
		keys.sealPacket(to, []byte("\x03\x80"))
	another := keys.sealPacket(here, []byte("\x04\x80"))
	for _, say := range [][]byte{one, one, two, another, one, end} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "udp", tr.socket.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(say); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	for _, want := range []string{"\x00\x80", "\x05\x80", "\x03\x80"} {
		if got := <-tr.packets; string(got.Buf) != want {
			t.Errorf("%x is handed on, want %x", got.Buf, want)
		}
	}
}

// TestNonces: at least as many as it is made for are remembered, and at most twice as many.
func TestNonces(t *testing.T) {
	const most = 100
	n := newNonces(most)
	number := func(i int) nonce { return nonce{byte(i), byte(i >> 8)} }
	for i := range 10 * most {
		if !n.first(number(i)) {
			t.Fatalf("%d is new", i)
		}
		for back := range min(i+1, most) {
			if n.first(number(i - back)) {
				t.Fatalf("of %d, %d is forgotten", i, i-back)
			}
		}
		if kept := len(n.newer) + len(n.older); kept > 2*most {
			t.Fatalf("%d are kept", kept)
		}
	}
	if !n.first(number(0)) {
		t.Error("the first is kept for ever")
	}
}
