package nemesis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/jepsen/lab"
	"github.com/belfrydb/belfry/jepsen/network"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// hostileAtOnce is how many hostile connections a service has at a time, and hostileCrowd how many
	// come together now and then: the harness's own doors must not be what they fill up.
	hostileAtOnce, hostileCrowd = 24, 200
	// hostileLife is how long one hostile connection lives at most.
	hostileLife = 3 * time.Second
	// hugeBytes is how much a hostile body or header has.
	hugeBytes = 8 << 20
	// servedMax is how long a node may take to answer an honest question meanwhile.
	servedMax = 10 * time.Second
)

// clientFaults are what clients, and those who are none, do to nodes. What clients of workloads do is in Elsewhere.
func clientFaults() []Fault {
	return []Fault{
		{Number: 58, Name: "hostile", What: "garbage, half requests, slow senders, huge bodies and many connections at " +
			"one node's ports", Inject: hostile},
	}
}

// hostile sends to one node what nobody should send, as somebody who is neither a node nor a
// client. All others must go on being served.
func hostile(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	crowd, seed := s.intruders(n), s.Rand.Uint64()
	heal := background(ctx, func(ctx context.Context) error {
		var all sync.WaitGroup
		for i := range 3 * hostileAtOnce {
			service := []network.Service{network.Client, network.Peer, network.Gossip}[i%3]
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			all.Go(func() { crowd.intrude(ctx, service, random) })
		}
		all.Go(func() { crowd.shower(ctx, rand.New(rand.NewPCG(seed, 1<<32))) })
		err := s.honest(ctx, n)
		all.Wait()
		s.Count("hostile connections", crowd.made.Load())
		s.Count("hostile packets", crowd.packets.Load())
		if crowd.made.Load() == 0 && n.Running() {
			err = errors.Join(err, fmt.Errorf("nobody could connect to %s, so nothing hostile was done", n.Name))
		}
		return err
	})
	return "garbage, half requests and slow senders at " + n.Name, heal, nil
}

// honest asks the node again and again how the cluster is, until ctx ends. A node that was killed
// meanwhile is not asked.
func (s *Scene) honest(ctx context.Context, n *lab.Node) error {
	admin, err := s.Lab.Admin(n.Name)
	if err != nil {
		return err
	}
	var problem error
	answered := time.Now()
	for pause(ctx, 200*time.Millisecond) {
		_, err := admin.GetCluster(ctx, &belfryv1.GetClusterRequest{})
		if err == nil || ctx.Err() != nil || !n.Running() {
			answered = time.Now()
			continue
		}
		if waited := time.Since(answered); waited > servedMax && problem == nil {
			problem = fmt.Errorf("%s has answered nobody for %v beside hostile connections: %w", n.Name,
				waited.Round(time.Millisecond), err)
		}
	}
	return problem
}

// intruders are those who connect to a node without being anyone.
type intruders struct {
	host, face string
	made       atomic.Int64
	packets    atomic.Int64
}

// intruders returns who connects to a node.
func (s *Scene) intruders(n *lab.Node) *intruders {
	return &intruders{host: s.Network.Host(n.Name), face: s.Network.Advertised(n.Name)}
}

// manner is what an intruder does with a connection. It ends at an error, which nobody needs to
// hear of: the node is to end such connections.
type manner func(conn net.Conn, random *rand.Rand) error

// manners returns what intruders do.
func manners() []manner {
	return []manner{garbage, halfRequest, slowSender, hugeHeader, hugeBody, silentOne, halfClosed,
		wrongProtocol, deepStream}
}

// intrude makes one hostile connection after the other, now and then many at once, until ctx ends.
func (c *intruders) intrude(ctx context.Context, service network.Service, random *rand.Rand) {
	all := manners()
	for pause(ctx, time.Duration(random.Int64N(int64(200*time.Millisecond)))) {
		c.connect(ctx, service, all[random.IntN(len(all))], random)
	}
}

// connect opens a connection, now and then many, and does something to the last one.
func (c *intruders) connect(ctx context.Context, service network.Service, how manner, random *rand.Rand) {
	at := net.JoinHostPort(c.face, strconv.Itoa(int(service.Port())))
	many := 1
	if random.IntN(200) == 0 {
		many = hostileCrowd
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
		c.made.Add(1)
	}
	conn := conns[len(conns)-1]
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(hostileLife)) // of a connection that has ended
	_ = how(conn, random)                             // that the node ends it is right
}

// shower sends packets of garbage to the gossip port until ctx ends, past the network, which
// carries gossip of nodes only.
func (c *intruders) shower(ctx context.Context, random *rand.Rand) {
	host, err := netip.ParseAddr(c.host)
	if err != nil {
		return
	}
	socket, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(host, network.Gossip.Port())))
	if err != nil {
		return
	}
	defer socket.Close() //nolint:errcheck // nothing is expected of it
	for pause(ctx, 5*time.Millisecond) {
		if _, err := socket.Write(noise(random, 1+random.IntN(1400))); err == nil {
			c.packets.Add(1)
		}
	}
}

// noise returns random bytes that begin like a message of gossip or a greeting more often than chance would have it.
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

// put is a call as a client makes it.
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

// halfClosed says that it sends no more, and reads nothing either.
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

// deepStream opens streams of HTTP/2 one after the other and says nothing on them.
func deepStream(conn net.Conn, random *rand.Rand) error {
	out := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	for id := range 500 {
		stream := uint32(2*id + 1)
		// A frame of headers without their end: method POST and path /, by their numbers in the static table.
		out = append(out, 0, 0, 3, 1, 0, byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream), 0x83, 0x86, 0x84)
		if random.IntN(2) == 0 {
			// and taken back
			out = append(out, 0, 0, 4, 3, 0, byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream), 0, 0, 0, 8)
		}
	}
	_, err := conn.Write(out)
	return errors.Join(err, drainOf(conn))
}
