package gossip

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Two nodes on the sockets of this machine, on ports that the kernel picks.
func TestSockets(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("AQEBAQEBAQEBAQEBAQEBAQ==\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var nodes []*Gossip
	for _, name := range []string{"one", "two"} {
		cfg := Config{
			Self: Info{
				Cluster: "c", Name: name, ServerID: name + ".1",
			}, Listen: "localhost:0", Dir: t.TempDir(), KeyFile: keys, Logger: discard(),
		}
		if len(nodes) > 0 {
			cfg.Join = []string{nodes[0].Addr().String()}
		}
		g, err := Start(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		nodes = append(nodes, g)
	}
	wait := func(g *Gossip, what string, cond func(Member) bool) {
		t.Helper()
		for {
			changed := g.Changed()
			if all := g.Members(); len(all) == 1 && cond(all[0]) {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("not %s: %v", what, g.Members())
			}
		}
	}
	for _, g := range nodes {
		wait(g, "alive", func(m Member) bool { return m.Alive })
	}
	if err := nodes[1].Update(Info{Cluster: "c", Name: "two", ServerID: "two.1", Zone: "z"}); err != nil {
		t.Fatal(err)
	}
	wait(nodes[0], "told of the zone", func(m Member) bool { return m.Zone == "z" })
	if err := nodes[1].Close(); err != nil {
		t.Fatal(err)
	}
	wait(nodes[0], "silent", func(m Member) bool { return !m.Alive })
}

func TestSocketsRefuseATakenPort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, err := (sockets{}).Listen(t.Context(), addrOf(ln.Addr())); err == nil {
		t.Error("a port that is in use was taken")
	}
}

// TestSocketsAndForeignTraffic: foreign traffic to the open ports is ignored, and an idle stream
// does not delay Close.
func TestSocketsAndForeignTraffic(t *testing.T) {
	socket, err := sockets{}.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := newKeyring(nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &transport{socket: socket, advertise: socket.Addr(), keys: keys, logger: discard(),
		refused: func(addr netip.AddrPort, err error) {
			t.Errorf("%v: %v", addr, err)
		}}
	tr.start()
	var d net.Dialer
	for _, say := range []string{"GET / HTTP/1.1\r\n\r\n", "BG\x02s\xff\xff\xff\xff", "BG\x02k\n\n\n\n"} {
		conn, err := d.DialContext(t.Context(), "tcp", socket.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(say)); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q was answered, or the stream left open: %d, %v", say, n, err)
		}
		conn.Close()
	}
	idle, err := d.DialContext(t.Context(), "tcp", socket.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	packet, err := d.DialContext(t.Context(), "udp", socket.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer packet.Close()
	for _, say := range []string{strings.Repeat("x", 9000), "hello",
		string(keys.sealPacket(socket.Addr(), []byte("\x08user"))),
		string(keys.sealPacket(socket.Addr(), []byte("\x00\x80")))} {
		if _, err := packet.Write([]byte(say)); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-tr.packets; string(got.Buf) != "\x00\x80" {
		t.Errorf("the first packet handed on is %q", got.Buf)
	}
	begin := time.Now()
	if err := tr.Shutdown(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took >= streamTimeout {
		t.Errorf("the end waited %v for an idle stream", took)
	}
}

// A stream from a network that is not allowed is closed unread, also if what it says is in order.
func TestSocketsCloseStreamsFromElsewhere(t *testing.T) {
	socket, err := sockets{}.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := newKeyring(nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &transport{
		socket: socket, advertise: socket.Addr(), keys: keys, logger: discard(),
		allowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	}
	tr.start()
	defer tr.Shutdown()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", socket.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := knock(conn); err == nil {
		t.Error("a knock was answered")
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the stream was left open: %d, %v", n, err)
	}
}

func TestAddressBook(t *testing.T) {
	dir := t.TempDir()
	addr := func(n int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 7402)
	}
	book, err := loadAddresses(dir)
	if err != nil {
		t.Fatal(err)
	}
	for n := range addressesMax + 2 {
		book.add(addr(n))
	}
	book.add(addr(5)) // seen again
	book.remove(addr(7))
	if err := book.save(); err != nil {
		t.Fatal(err)
	}
	again, err := loadAddresses(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := func(b *addressBook) []string {
		var all []string
		for _, a := range b.addrs {
			all = append(all, a.String())
		}
		return all
	}
	if diff := cmp.Diff(got(book), got(again)); diff != "" {
		t.Errorf("written and read (-want +got):\n%s", diff)
	}
	if n := len(again.addrs); n != addressesMax-1 || again.addrs[0] != addr(2) || again.addrs[n-1] != addr(5) {
		t.Errorf("%d addresses, from %v to %v", n, again.addrs[0], again.addrs[n-1])
	}
	if err := os.WriteFile(filepath.Join(dir, addressFile), []byte(`{"addresses":["10.0.0.1:0","x"`), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged, err := loadAddresses(dir)
	if err == nil || len(damaged.addrs) != 0 {
		t.Errorf("a damaged book: %v, %v", damaged.addrs, err)
	}
}

func TestLibraryLog(t *testing.T) {
	var out strings.Builder
	l := newLibraryLog(slog.New(slog.NewTextHandler(&out, nil)))
	say := func(line string) { l.logger().Print(line) }
	say("[WARN] memberlist: Binding to public address without encryption!")
	l.enableWarnings()
	for range 5 {
		say("[ERR] memberlist: Failed to send UDP ping: timeout 1")
		say("[INFO] memberlist: Suspect n1 has failed")
		say("[DEBUG] memberlist: Stream connection")
	}
	say("[ERR] memberlist: Failed to send UDP ping: timeout 2")
	say("[WARN] memberlist: Refuting a dead message (from: n1)")
	say("[WARN] memberlist: Got ping for unexpected node 'n2.old' from=10.0.0.1:7402")
	say("[ERR] memberlist: Sending failed: write udp 127.0.0.1:1->127.0.0.1:2: use of closed network connection")
	say("[WARN] memberlist: Was able to connect to n1 over TCP")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "UDP ping: timeout 1") || !strings.Contains(lines[1], "over TCP") {
		t.Errorf("logged:\n%s", out.String())
	}
}

func TestProblemsAreBounded(t *testing.T) {
	p := &problems{logger: discard(), seen: make(map[problemKey]*Problem)}
	for n := range 2 * problemsMax {
		p.report(Problem{Kind: WrongKey, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), uint16(n+1))})
	}
	if got := len(p.list()); got != problemsMax {
		t.Errorf("%d problems are kept", got)
	}
	again := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 127}), 9)
	if p.report(Problem{Kind: WrongKey, Addr: again}) {
		t.Error("the same host from another port is another problem")
	}
	host := netip.AddrFrom4([4]byte{10, 0, 1, 1})
	p.report(Problem{Kind: WrongKey, Addr: netip.AddrPortFrom(host, 0), Text: "where it listens is not known"})
	p.report(Problem{Kind: WrongKey, Addr: netip.AddrPortFrom(host, 7402), Text: "it is"})
	if got := p.list(); got[len(got)-1].Addr.Port() != 7402 || got[len(got)-1].Text != "it is" {
		t.Errorf("where the node listens was found out, and is not kept: %+v", got[len(got)-1])
	}
}
