// Package intruder misuses a node's ports: garbage, half requests, slow senders, huge bodies, and
// many connections at once.
package intruder

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/jepsen/network"
)

// atOnceMany is how many connections a crowd opens together now and then. The harness's own proxies
// must not run out of connections first.
const atOnceMany = 200

const (
	// lifeMax bounds how long one connection lives.
	lifeMax = 3 * time.Second
	// hugeBytes is the size of a huge body or header.
	hugeBytes = 8 << 20
)

// Crowd connects to one node without being a node or a client, and misbehaves. Its methods may be
// called from any goroutine; each call needs a source of randomness of its own.
type Crowd struct {
	host, advertised string
	connections      atomic.Int64
	packets          atomic.Int64
}

// New returns a crowd for a node. host is the address of the node itself, and advertised the one
// under which the network carries its connections.
func New(host, advertised string) *Crowd { return &Crowd{host: host, advertised: advertised} }

// Connections returns how many connections were opened so far.
func (c *Crowd) Connections() int64 { return c.connections.Load() }

// Packets returns how many packets were sent so far.
func (c *Crowd) Packets() int64 { return c.packets.Load() }

// misuse is one way to misuse a connection. Its error is ignored: the node is expected to end such
// connections.
type misuse func(conn net.Conn, random *rand.Rand) error

// misuses returns all ways to misuse a connection.
func misuses() []misuse {
	return []misuse{garbage, halfRequest, slowSender, hugeHeader, hugeBody, silentOne, halfClosed,
		wrongProtocol, deepStream}
}

// Intrude misuses one connection to a service after the other until ctx ends. Now and then it opens
// many at once.
func (c *Crowd) Intrude(ctx context.Context, service network.Service, random *rand.Rand) {
	all := misuses()
	for pause(ctx, time.Duration(random.Int64N(int64(200*time.Millisecond)))) {
		c.connect(ctx, service, all[random.IntN(len(all))], random)
	}
}

// SendHugeBodies sends requests with huge bodies to the clients' port, one after the other, until
// ctx ends.
func (c *Crowd) SendHugeBodies(ctx context.Context, random *rand.Rand) {
	for pause(ctx, time.Duration(random.Int64N(int64(100*time.Millisecond)))) {
		c.connect(ctx, network.Client, hugeBody, random)
	}
}

// pause waits. It returns false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// connect opens a connection, or now and then many, and misuses the last one.
func (c *Crowd) connect(ctx context.Context, service network.Service, how misuse, random *rand.Rand) {
	at := net.JoinHostPort(c.advertised, strconv.Itoa(int(service.Port())))
	many := 1
	if random.IntN(200) == 0 {
		many = atOnceMany
	}
	dialer := net.Dialer{Timeout: time.Second}
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			_ = conn.Close() // the node may have ended it
		}
	}()
	for range many {
		conn, err := dialer.DialContext(ctx, "tcp4", at)
		if err != nil {
			return // the node is down, or takes no more
		}
		conns = append(conns, conn)
		c.connections.Add(1)
	}
	conn := conns[len(conns)-1]
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(lifeMax)) // of a connection that has ended
	_ = how(conn, random)                         // that the node ends it is right
}

// SendPackets sends packets of garbage to the gossip port until ctx ends. They go past the network,
// which carries gossip of nodes only.
func (c *Crowd) SendPackets(ctx context.Context, random *rand.Rand) {
	host, err := netip.ParseAddr(c.host)
	if err != nil {
		return
	}
	socket, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(host, network.Gossip.Port())))
	if err != nil {
		return
	}
	defer socket.Close() //nolint:errcheck // it only sends
	for pause(ctx, 5*time.Millisecond) {
		if _, err := socket.Write(noise(random, 1+random.IntN(1400))); err == nil {
			c.packets.Add(1)
		}
	}
}

// noise returns random bytes. Half of them begin like a message of gossip or a greeting.
func noise(random *rand.Rand, length int) []byte {
	b := make([]byte, length)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	if random.IntN(2) == 0 {
		b[0] = byte(random.IntN(16))
	}
	return b
}

func garbage(conn net.Conn, random *rand.Rand) error {
	_, err := conn.Write(noise(random, 1+random.IntN(64<<10)))
	return errors.Join(err, drainOf(conn))
}

// drainOf reads until the other side ends the connection, or the deadline is over.
func drainOf(conn net.Conn) error {
	_, err := io.Copy(io.Discard, conn)
	return err
}

// put is the head of a call as a client makes it.
const put = "POST /belfry.v1.QueueService/Put HTTP/1.1\r\nHost: belfry\r\nContent-Type: application/json\r\n"

func halfRequest(conn net.Conn, random *rand.Rand) error {
	whole := put + "Content-Length: 1000\r\n\r\n{\"queue\":\"hostile\",\"body\":\""
	_, err := io.WriteString(conn, whole[:1+random.IntN(len(whole))])
	return errors.Join(err, drainOf(conn))
}

func slowSender(conn net.Conn, _ *rand.Rand) error {
	for _, b := range []byte(put + strings.Repeat("X-Slow: 1\r\n", 100)) {
		if _, err := conn.Write([]byte{b}); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

func hugeHeader(conn net.Conn, _ *rand.Rand) error {
	_, err := io.WriteString(conn, put+"X-Huge: "+strings.Repeat("x", hugeBytes)+"\r\n\r\n")
	return errors.Join(err, drainOf(conn))
}

func hugeBody(conn net.Conn, random *rand.Rand) error {
	length := "Content-Length: " + strconv.Itoa(hugeBytes) + "\r\n\r\n"
	if random.IntN(2) == 0 {
		length = "Content-Length: 9000000000000000000\r\n\r\n"
	}
	_, err := io.WriteString(conn, put+length+"{\"queue\":\"hostile\",\"body\":\""+strings.Repeat("QUFB", hugeBytes/4))
	return errors.Join(err, drainOf(conn))
}

func silentOne(conn net.Conn, _ *rand.Rand) error { return drainOf(conn) }

// halfClosed closes its sending half, and reads nothing.
func halfClosed(conn net.Conn, _ *rand.Rand) error {
	err := conn.(*net.TCPConn).CloseWrite()
	time.Sleep(time.Second)
	return err
}

func wrongProtocol(conn net.Conn, random *rand.Rand) error {
	openings := []string{
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "SSH-2.0-hostile\r\n", "*1\r\n$4\r\nPING\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\x00\x00\x00\x00\x00\x00", put + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
		"BREW /pot HTCPCP/1.0\r\n\r\n", "belfry", "\xff\xff\xff\xff\xff\xff\xff\xff",
	}
	_, err := io.WriteString(conn, openings[random.IntN(len(openings))])
	if err == nil {
		_, err = conn.Write(noise(random, 1+random.IntN(200)))
	}
	return errors.Join(err, drainOf(conn))
}

// deepStream opens streams of HTTP/2 one after the other and sends nothing on them.
func deepStream(conn net.Conn, random *rand.Rand) error {
	out := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	for id := range 500 {
		stream := uint32(2*id + 1)
		// A frame of headers without their end: method POST and path /, by their numbers in the static
		// table.
		out = append(out, 0, 0, 3, 1, 0, byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream), 0x83, 0x86, 0x84)
		if random.IntN(2) == 0 {
			// and taken back
			out = append(out, 0, 0, 4, 3, 0, byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream), 0, 0, 0, 8)
		}
	}
	_, err := conn.Write(out)
	return errors.Join(err, drainOf(conn))
}
