package network

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patient bounds what a test waits for. It ends a test that would hang, and is no measure.
const patient = 30 * time.Second

// world is a network on loopback with nodes n1 to n3 and clients c1 and c2.
type world struct {
	*Network
	t *testing.T
}

func newWorld(t *testing.T, mode Mode) *world {
	t.Helper()
	n, err := New(t.Context(), Config{
		Nodes: []string{"n1", "n2", "n3"}, Clients: []string{"c1", "c2"}, Mode: mode, Seed: 1,
		Logger: slog.New(slog.DiscardHandler), reorderWait: time.Hour,
	})
	if err != nil {
		t.Fatalf("making the network: %v", err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("closing the network: %v", err)
		}
	})
	return &world{n, t}
}

func (w *world) set(from, to string, s Service, r Rule) {
	w.t.Helper()
	if err := w.Set(w.t.Context(), Link{from, to, s}, r); err != nil {
		w.t.Fatalf("setting a rule: %v", err)
	}
}

func (w *world) heal() {
	w.t.Helper()
	if err := w.Heal(w.t.Context()); err != nil {
		w.t.Fatalf("healing: %v", err)
	}
}

// serve accepts connections where a node listens.
func (w *world) serve(node string, s Service) <-chan net.Conn {
	w.t.Helper()
	listener, err := net.Listen("tcp4", fmt.Sprintf("%s:%d", w.Host(node), s.Port()))
	if err != nil {
		w.t.Fatalf("listening as %s: %v", node, err)
	}
	return w.accepted(listener)
}

// accepted returns what a listener accepts, until the test ends.
func (w *world) accepted(listener net.Listener) <-chan net.Conn {
	conns := make(chan net.Conn, 16)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns <- conn
		}
	}()
	w.t.Cleanup(func() {
		_ = listener.Close()
		<-ended
		close(conns)
		for conn := range conns {
			_ = conn.Close()
		}
	})
	return conns
}

// dial connects a client to a node.
func (w *world) dial(client, node string) net.Conn {
	w.t.Helper()
	conn, err := w.DialContext(client)(w.t.Context(), "tcp", w.Advertised(node)+":7400")
	if err != nil {
		w.t.Fatalf("%s dials %s: %v", client, node, err)
	}
	return w.own(conn)
}

// fate returns how a connection ends on which neither side sends anything. It may end before it is
// seen to be made.
func (w *world) fate(client, node string) error {
	w.t.Helper()
	conn, err := w.DialContext(client)(w.t.Context(), "tcp", w.Advertised(node)+":7400")
	if err != nil {
		return err
	}
	return take(w.t, ends(w.own(conn)), "the end")
}

// own closes a connection with the test, which may take no longer than patient over it.
func (w *world) own(conn net.Conn) net.Conn {
	w.t.Helper()
	w.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patient)); err != nil {
		w.t.Fatal(err)
	}
	return conn
}

// take returns what comes next.
func take[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patient):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

// pair returns both ends of a connection of a client to n1.
func (w *world) pair(client string, server <-chan net.Conn) (near, far net.Conn) {
	w.t.Helper()
	near = w.dial(client, "n1")
	far = w.own(take(w.t, server, "a connection"))
	return near, far
}

// say writes, and hear reads just as much and compares.
func (w *world) say(conn net.Conn, text string) {
	w.t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		w.t.Fatalf("saying %q: %v", text, err)
	}
}

func (w *world) hear(conn net.Conn, text string) {
	w.t.Helper()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != text {
		w.t.Fatalf("heard %q, %v; want %q", got[:n], err, text)
	}
}

// ends returns the error with which a connection ends.
func ends(conn net.Conn) <-chan error {
	end := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, conn)
		if err == nil {
			err = io.EOF
		}
		end <- err
	}()
	return end
}

// nothing fails if something has come already. Callers have waited for what came later.
func nothing[T any](t *testing.T, from <-chan T, what string) {
	t.Helper()
	select {
	case v := <-from:
		t.Fatalf("%s: %v", what, v)
	default:
	}
}

func TestAConnectionIsCarriedAndEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	near, far := w.pair("c1", w.serve("n1", Client))
	w.say(near, "put")
	w.hear(far, "put")
	w.say(far, "done")
	w.hear(near, "done")
	if got, want := addrPort(far.RemoteAddr()).Addr(), w.clients["c1"].face; got != want {
		t.Errorf("the node sees %s, want the client's %s", got, want)
	}
	// One side says that it ends, and still hears the other.
	if err := near.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(far); err != nil || len(rest) > 0 {
		t.Fatalf("after the end: %q, %v", rest, err)
	}
	w.say(far, "bye")
	w.hear(near, "bye")
	_ = far.Close()
	if err := take(t, ends(near), "the end"); !errors.Is(err, io.EOF) {
		t.Errorf("the connection ended with %v", err)
	}
}

func TestWhoOpensAConnectionToNobodyIsReset(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	if err := w.fate("c1", "n1"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v, want a reset", err)
	}
}

func TestAClientsURL(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	server := w.serve("n2", Client)
	url, err := w.ClientURL("c2", "n2")
	if err != nil {
		t.Fatal(err)
	}
	//nolint:noctx // on loopback there is nothing to wait for
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	w.say(w.own(conn), "x")
	far := w.own(take(t, server, "a connection"))
	w.hear(far, "x")
	if got, want := addrPort(far.RemoteAddr()).Addr(), w.clients["c2"].face; got != want {
		t.Errorf("the node sees %s, want the client's %s", got, want)
	}
	if _, err := w.ClientURL("c3", "n2"); err == nil {
		t.Error("a client that nobody knows has a URL")
	}
}

func TestANodeThatComesLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	if err := w.Partition(t.Context(), []string{"c1"}, []string{"n1"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(t.Context(), "n4"); err != nil {
		t.Fatal(err)
	}
	server := w.serve("n4", Client)
	w.say(w.dial("c1", "n4"), "x")
	w.hear(w.own(take(t, server, "a connection")), "x")
	if err := w.Add(t.Context(), "n4"); err == nil {
		t.Error("two nodes have one name")
	}
}

// TestTheProcessOfANodeIsKnown has processes of two nodes dial a third, which sees each as that
// node, and rules that hold for one alone.
func TestTheProcessOfANodeIsKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	server := w.serve("n1", Peer)
	address := net.JoinHostPort(w.Advertised("n1"), strconv.Itoa(int(Peer.Port())))
	for _, node := range []string{"n2", "n3"} {
		heard := w.process(node, helperDial, address)
		far := w.own(take(t, server, "a connection"))
		if got, want := addrPort(far.RemoteAddr()).Addr(), netip.MustParseAddr(w.Advertised(node)); got != want {
			t.Errorf("a process of %s is seen as %s, want %s", node, got, want)
		}
		w.say(far, "hello\n")
		if got := take(t, heard, "a line"); got != "hello" {
			t.Errorf("%s heard %q", node, got)
		}
	}
	w.set("n2", "n1", Peer, Rule{Drop: true})
	w.process("n2", helperDial, address)
	w.process("n3", helperDial, address)
	far := w.own(take(t, server, "the connection of n3"))
	if got, want := addrPort(far.RemoteAddr()).Addr(), netip.MustParseAddr(w.Advertised("n3")); got != want {
		t.Errorf("the connection is of %s, want %s", got, want)
	}
	nothing(t, server, "a connection over a cut link")
	w.heal()
	far = w.own(take(t, server, "the connection of n2"))
	if got, want := addrPort(far.RemoteAddr()).Addr(), netip.MustParseAddr(w.Advertised("n2")); got != want {
		t.Errorf("the connection is of %s, want %s", got, want)
	}
	// The sockets of a process outside all nodes belong to no node.
	own, err := net.Dial("tcp", address) //nolint:noctx // on loopback there is nothing to wait for
	if err != nil {
		t.Fatal(err)
	}
	w.say(w.own(own), "x")
	far = w.own(take(t, server, "a connection from outside"))
	if got := addrPort(far.RemoteAddr()).Addr(); got != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("a connection from outside is seen as %s", got)
	}
}

// TestNetworksWhileProcessesStart: one can be made after the other, whatever is forked meanwhile.
func TestNetworksWhileProcessesStart(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	var starting sync.WaitGroup
	for range 4 {
		starting.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					if err := exec.Command("true").Run(); err != nil { //nolint:noctx // it ends at once
						t.Error(err)
						return
					}
				}
			}
		})
	}
	defer starting.Wait()
	defer close(done)
	for range 300 {
		n, err := New(t.Context(), Config{Nodes: []string{"n1"}, Mode: Loopback, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Loopback)
	server := w.serve("n1", Client)
	open, _ := w.pair("c1", server)
	half, far := w.pair("c2", server)
	w.set("c2", "n1", Client, Rule{HalfOpen: true})
	if err := take(t, ends(half), "the half-open end"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the half-open end is %v", err)
	}
	waiting := []net.Conn{open, far}
	for _, rule := range []Rule{{Drop: true}, {Mute: true}, {Delay: time.Hour}, {Reorder: 1}} {
		w.set("c1", "n1", Client, rule)
		conn := w.dial("c1", "n1")
		waiting = append(waiting, conn)
		w.say(conn, "never heard")
		w.set("c1", "n1", Client, Rule{Delay: time.Hour})
	}
	w.set("c2", "n1", Client, Rule{BytesPerSecond: 1})
	slow, _ := w.pair("c2", server)
	w.say(slow, strings.Repeat("x", 10_000))
	var left []<-chan error
	for _, conn := range append(waiting, slow) {
		left = append(left, ends(conn))
	}
	closed := make(chan error, 1)
	go func() { closed <- w.Close() }()
	if err := take(t, closed, "the end of Close"); err != nil {
		t.Errorf("closing: %v", err)
	}
	for _, end := range left {
		if err := take(t, end, "the end of a connection"); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection outlived the network: %v", err)
		}
	}
	if err := w.Set(t.Context(), Link{"c1", "n1", Client}, Rule{}); err != nil {
		t.Errorf("a rule after the end: %v", err)
	}
	if err := w.Add(t.Context(), "n9"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a node after the end: %v", err)
	}
}
