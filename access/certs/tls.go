package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
)

// ErrRefused is the error of a handshake in which the other node's certificate was refused.
var ErrRefused = errors.New("the other side's certificate is refused")

// ForClients returns the settings under which a node answers clients: TLS 1.3, with the certificate
// that is in use when a client connects. Clients show no certificate; tokens identify them.
func (i *Identity) ForClients() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.credentials.Load().client, nil },
	}
}

// ForItself returns the settings of a client inside the same process: it takes the very certificate
// that the node shows clients, whatever address that is for.
func (i *Identity) ForItself() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection asks for more
		VerifyConnection: func(state tls.ConnectionState) error {
			if !state.PeerCertificates[0].Equal(i.credentials.Load().client.Leaf) {
				return errors.New("the certificate is not the one that this process shows clients")
			}
			return nil
		},
	}
}

// PeerConn is a connection between two nodes.
type PeerConn struct {
	*tls.Conn
	raw net.Conn
}

// Proven returns the name of the node at the other end; empty before something was read.
func (c *PeerConn) Proven() string {
	chain := c.ConnectionState().PeerCertificates
	if len(chain) == 0 {
		return ""
	}
	name, err := NameOf(chain[0])
	if err != nil {
		return "" // the handshake has looked
	}
	return name.Node
}

// Close ends the connection at once, without TLS' close message. Messages between nodes have
// lengths and checksums of their own, and to tell a peer that hangs takes seconds.
func (c *PeerConn) Close() error { return c.raw.Close() }

// Listen returns a listener of connections with other nodes, each a *PeerConn. The first read does
// the handshake, within the deadline that the caller sets. l is closed with the listener.
func (i *Identity) Listen(l net.Listener) net.Listener { return &peerListener{l, i} }

type peerListener struct {
	net.Listener
	identity *Identity
}

// Accept waits for the next connection.
func (l *peerListener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &PeerConn{tls.Server(raw, l.identity.forPeers()), raw}, nil
}

// Dial connects to another node at HOST:PORT. ctx bounds the handshake too. The connection is a
// *PeerConn with a proven node of the same domain; the caller compares which node it is.
func (i *Identity) Dial(ctx context.Context, addr string) (net.Conn, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, i.forPeers())
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS with %s: %w", addr, errors.Join(err, raw.Close()))
	}
	return &PeerConn{conn, raw}, nil
}

// forPeers returns the settings between nodes, for either side. Both show a certificate. The
// address of a node may change, and its name may not. So certificates are checked by the names of
// node and domain, not by that of a host.
func (i *Identity) forPeers() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, //nolint:gosec // VerifyConnection does all of it but the host's name
		SessionTicketsDisabled: true, // a ticket would outlive the certificate that it was got with
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return i.credentials.Load().node, nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return i.credentials.Load().node, nil
		},
		VerifyConnection: i.verifyPeer,
	}
}

// verifyPeer refuses a peer that is not a node of the domain. Certificates of nodes are for both
// sides of a connection, so both usages are required.
func (i *Identity) verifyPeer(state tls.ConnectionState) error {
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		name, err := i.judge(state.PeerCertificates, i.credentials.Load().authorities, usage)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
		if name.Domain != i.name.Domain {
			return fmt.Errorf("%w: it is that of %s, and this is %s", ErrRefused, name, i.name)
		}
	}
	return nil
}
