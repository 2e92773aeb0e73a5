package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// protocolListener serves another queue's protocol on a listener of its own. Nil is a protocol that
// is off.
type protocolListener struct {
	net.Listener

	// served is closed when serving has ended and err is set.
	served chan struct{}
	err    error
}

// listenForProtocol listens for clients of a protocol. It returns nil for an empty address. Until the
// node is open, such clients are refused, so they look for another node.
func (s *Server) listenForProtocol(ctx context.Context, protocol, address string) (*protocolListener, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // nil is a protocol that is off
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for clients at --%s-listen: %w", protocol, err)
	}
	return &protocolListener{Listener: s.shutdown.wrap(listener), served: make(chan struct{})}, nil
}

// start starts to serve.
func (p *protocolListener) start(serve func(net.Listener) error) {
	if p == nil {
		return
	}
	go func() {
		defer close(p.served)
		p.err = serve(p.Listener)
	}()
}

// ended returns a channel that is closed when serving has ended; nil if the protocol is off.
func (p *protocolListener) ended() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.served
}

// wait waits until serving has ended, and returns why, unless the server was stopped.
func (p *protocolListener) wait() error {
	if p == nil {
		return nil
	}
	<-p.served
	if errors.Is(p.err, http.ErrServerClosed) {
		return nil
	}
	return p.err
}

// address returns the address of the listener; empty if the protocol is off.
func (p *protocolListener) address() string {
	if p == nil {
		return ""
	}
	return p.Addr().String()
}

// LmstfyAddress returns the address at which clients of lmstfy reach the server; empty if there is
// none.
func (s *Server) LmstfyAddress() string { return s.lmstfy.address() }
