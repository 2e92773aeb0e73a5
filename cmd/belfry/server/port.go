package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/node"
)

// PortKind is what a port is for.
type PortKind int

// The kinds.
const (
	// PortSilent: nothing came back, or not in time.
	PortSilent PortKind = iota
	// PortClients, PortPeers and PortGossip are the three ports of a node.
	PortClients
	PortPeers
	PortGossip
	// PortTLS: it speaks TLS only.
	PortTLS
	// PortWeb: a web server that is no Belfry. PortOther: something that speaks neither HTTP nor what nodes speak.
	PortWeb
	PortOther
)

// Port is what was found at an address.
type Port struct {
	Kind PortKind
	// Node is the name of the node at its port for clients, its server id at its port for peers, and else empty.
	Node string
}

// findMax bounds the question what listens somewhere, which is asked when a call has failed already.
const findMax = 3 * time.Second

// FindPort finds out what listens at addr, HOST:PORT. It takes three seconds at most, and changes nothing there.
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

// findPeers asks as a node that connects to another one.
func findPeers(ctx context.Context, addr string) Port {
	intro, err := node.Hello(ctx, nil, addr)
	if err != nil {
		return Port{}
	}
	return Port{PortPeers, intro.ServerID}
}

// findGossip asks in gossip.
func findGossip(ctx context.Context, addr string) Port {
	if !gossip.Answers(ctx, addr) {
		return Port{}
	}
	return Port{Kind: PortGossip}
}

// findHTTP asks as a client.
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

// askClientPort asks whether an address is where a server answers clients. ok: it speaks HTTP.
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
	// What Go's servers answer in HTTP where they wait for a TLS handshake.
	const wantsTLS = "Client sent an HTTP request to an HTTPS server."
	begins := make([]byte, len(wantsTLS))
	n, _ := io.ReadFull(response.Body, begins) // what came is enough
	if response.StatusCode == http.StatusBadRequest && string(begins[:n]) == wantsTLS {
		return Port{Kind: PortTLS}, true
	}
	return Port{Kind: PortWeb}, true
}

// speaksOtherwise reports whether what comes back from an address that is asked in HTTP is none. Where nothing had come of a request a moment
// before there may be a server that was about to start.
func speaksOtherwise(ctx context.Context, addr string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // what came is all that matters
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write([]byte("GET /livez HTTP/1.0\r\n\r\n")); err != nil {
		return false
	}
	const answer = "HTTP/"
	begins := make([]byte, len(answer))
	n, _ := io.ReadFull(conn, begins) // what came is enough
	return n > 0 && !strings.HasPrefix(answer, string(begins[:n]))
}
