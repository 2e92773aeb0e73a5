package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/node/peer"
)

// PortKind is the purpose of a port.
type PortKind int

// The kinds.
const (
	// PortSilent is a port that sent no answer in time.
	PortSilent PortKind = iota
	// PortClients, PortPeers and PortGossip are the three ports of a node.
	PortClients
	PortPeers
	PortGossip
	// PortTLS is a port that speaks TLS only.
	PortTLS
	// PortWeb is a web server that is not Belfry. PortOther is a program that speaks neither HTTP nor
	// a protocol of nodes.
	PortWeb
	PortOther
)

// Port is the result of a probe of an address.
type Port struct {
	Kind PortKind
	// Node is the node's name if the port is for clients, and its server id if the port is for peers.
	// Else it is empty.
	Node string
}

// findMax bounds a probe of a port. A probe comes only after a call has failed.
const findMax = 3 * time.Second

// FindPort finds out what listens at addr, HOST:PORT. It takes at most three seconds. It does not
// change any state there.
func FindPort(ctx context.Context, addr string) Port {
	ctx, cancel := context.WithTimeout(ctx, findMax)
	defer cancel()
	questions := []func(context.Context, string) Port{findPeers, findGossip, findHTTP}
	found := make(chan Port, len(questions))
	for _, ask := range questions {
		go func() { found <- ask(ctx, addr) }()
	}
	best := Port{}
	for range questions {
		switch p := <-found; p.Kind {
		case PortClients, PortPeers, PortGossip, PortTLS, PortWeb:
			return p
		case PortOther:
			best = p
		case PortSilent:
		}
	}
	return best
}

// findPeers probes an address as a node that connects to another one.
func findPeers(ctx context.Context, addr string) Port {
	intro, err := peer.Hello(ctx, nil, addr)
	if err != nil {
		return Port{}
	}
	return Port{PortPeers, intro.ServerID}
}

// findGossip probes an address by gossip.
func findGossip(ctx context.Context, addr string) Port {
	if !gossip.Answers(ctx, addr) {
		return Port{}
	}
	return Port{Kind: PortGossip}
}

// findHTTP probes an address as a client.
func findHTTP(ctx context.Context, addr string) Port {
	found, ok := askClientPort(ctx, addr)
	switch {
	case ok:
		return found
	case speaksOtherwise(ctx, addr):
		return Port{Kind: PortOther}
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
		return Port{PortClients, name}, true
	}
	// Go's servers send this answer to HTTP where they expect a TLS handshake.
	const wantsTLS = "Client sent an HTTP request to an HTTPS server."
	begins := make([]byte, len(wantsTLS))
	n, _ := io.ReadFull(response.Body, begins) // a part is enough
	if response.StatusCode == http.StatusBadRequest && string(begins[:n]) == wantsTLS {
		return Port{Kind: PortTLS}, true
	}
	return Port{Kind: PortWeb}, true
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
