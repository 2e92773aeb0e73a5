package portcheck

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ServedBy is the header with the node's name in each answer of a Belfry server to its clients.
const ServedBy = "Belfry-Served-By"

// Kind is the purpose of a port.
type Kind int

// The kinds.
const (
	// Silent is a port that sent no answer in time.
	Silent Kind = iota
	// Clients, Peers and Gossip are the three ports of a node.
	Clients
	Peers
	Gossip
	// TLS is a port that speaks TLS only.
	TLS
	// Web is a web server that is not Belfry. Other is a program that speaks neither HTTP nor a
	// protocol of nodes.
	Web
	Other
)

// Port is the result of a probe of an address.
type Port struct {
	Kind Kind
	// Node is the node's name if the port is for clients, and its server id if the port is for peers.
	// Else it is empty.
	Node string
}

// Probes ask an address in the protocols of nodes, which the server implements and the SDK does not
// know.
type Probes struct {
	// Peer probes as a node that connects to another one. It returns the node's server id.
	Peer func(ctx context.Context, addr string) (serverID string, ok bool)
	// Gossip reports whether the address gossips.
	Gossip func(ctx context.Context, addr string) bool
}

// findMax bounds a probe of a port. A probe comes only after a call has failed.
const findMax = 3 * time.Second

// Find finds out what listens at addr, HOST:PORT. It takes at most three seconds. It does not
// change any state there.
func (p Probes) Find(ctx context.Context, addr string) Port {
	ctx, cancel := context.WithTimeout(ctx, findMax)
	defer cancel()
	questions := []func(context.Context, string) Port{p.findPeers, p.findGossip, findHTTP}
	found := make(chan Port, len(questions))
	for _, ask := range questions {
		go func() { found <- ask(ctx, addr) }()
	}
	best := Port{}
	for range questions {
		switch port := <-found; port.Kind {
		case Clients, Peers, Gossip, TLS, Web:
			return port
		case Other:
			best = port
		case Silent:
		}
	}
	return best
}

// FindClients returns the address of the port for clients of a node that has another port at
// address, by default so many ports after that for clients. It is empty if none answers there.
func (p Probes) FindClients(ctx context.Context, address string, after int) string {
	host, text, err := net.SplitHostPort(address)
	port, notNumber := strconv.Atoi(text)
	if err != nil || notNumber != nil || port <= after {
		return ""
	}
	before := net.JoinHostPort(host, strconv.Itoa(port-after))
	if p.Find(ctx, before).Kind != Clients {
		return ""
	}
	return before
}

// findPeers probes an address as a node that connects to another one.
func (p Probes) findPeers(ctx context.Context, addr string) Port {
	id, ok := p.Peer(ctx, addr)
	if !ok {
		return Port{}
	}
	return Port{Peers, id}
}

// findGossip probes an address by gossip.
func (p Probes) findGossip(ctx context.Context, addr string) Port {
	if !p.Gossip(ctx, addr) {
		return Port{}
	}
	return Port{Kind: Gossip}
}

// findHTTP probes an address as a client.
func findHTTP(ctx context.Context, addr string) Port {
	found, ok := askClientPort(ctx, addr)
	switch {
	case ok:
		return found
	case speaksOtherwise(ctx, addr):
		return Port{Kind: Other}
	default:
		return Port{}
	}
}

// askClientPort asks an address by HTTP, and returns whether a server answers clients there. ok is
// set if the address speaks HTTP.
func askClientPort(ctx context.Context, addr string) (found Port, ok bool) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/livez", nil)
	if err != nil {
		return Port{}, false
	}
	once := &http.Transport{DisableKeepAlives: true}
	response, err := once.RoundTrip(request)
	if err != nil {
		return Port{}, false
	}
	defer response.Body.Close()
	if name := response.Header.Get(ServedBy); name != "" {
		return Port{Clients, name}, true
	}
	begins := make([]byte, len(goWantsTLS))
	n, _ := io.ReadFull(response.Body, begins) // a part is enough
	if response.StatusCode == http.StatusBadRequest && string(begins[:n]) == goWantsTLS {
		return Port{Kind: TLS}, true
	}
	return Port{Kind: Web}, true
}

// speaksOtherwise reports whether an address answers a request in HTTP with something else. An HTTP
// answer may come although the request a moment before got none: the server may have started since.
func speaksOtherwise(ctx context.Context, addr string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // only the received bytes matter
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write([]byte("GET /livez HTTP/1.0\r\n\r\n")); err != nil {
		return false
	}
	const answer = "HTTP/"
	begins := make([]byte, len(answer))
	n, _ := io.ReadFull(conn, begins) // a part is enough
	return n > 0 && !strings.HasPrefix(answer, string(begins[:n]))
}
