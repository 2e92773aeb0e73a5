package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// A wrongPort is the error of a port that, by its own answer, takes no calls of clients. It read
// nothing that was sent, and another try does not help.
type wrongPort struct{ what string }

// Error describes the port and what to do.
func (e *wrongPort) Error() string { return e.what }

const (
	speaksTLS = "the server speaks TLS only: write https:// instead of http://, and name the authority behind its certificate by WithTLS if it is a private one"
	// alertRecord begins each alert of TLS (RFC 8446 §5.1) up to its minor version.
	alertRecord = "\x15\x03"

	// certificateRequired is the alert of a server that wants a certificate of the client (RFC 8446 §6.2).
	certificateRequired = tls.AlertError(116)
)

// refusesPlain reports whether an HTTP answer comes from a server that expects TLS. It knows the
// texts of Go's servers, nginx and Apache, each with status 400.
func refusesPlain(res *http.Response) bool {
	const enough = 1 << 10
	if res.StatusCode != http.StatusBadRequest {
		return false
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, enough)) // a part of the body is enough
	for _, says := range []string{
		"Client sent an HTTP request to an HTTPS server", "The plain HTTP request was sent to HTTPS port", "speaking plain HTTP to an SSL-enabled server port",
	} {
		if strings.Contains(string(body), says) {
			return true
		}
	}
	return false
}

// answersTLS reports whether the answer begins like a TLS alert.
func answersTLS(in *bufio.Reader) bool {
	begins, _ := in.Peek(len(alertRecord))
	return string(begins) == alertRecord
}

// refusesStrangers turns the alert of a server that wants the client's certificate into a
// wrongPort. It returns any other error unchanged. With TLS 1.3 the alert comes after the client
// has finished its side of the handshake, and the server reads nothing sent since. The type of
// alerts is private to crypto/tls, but their texts are not.
func refusesStrangers(err error) error {
	op, ok := errors.AsType[*net.OpError](err)
	if ok && op.Op == "remote error" && op.Err.Error() == certificateRequired.Error() {
		return &wrongPort{"the server wants a certificate of its clients, as a Belfry node does at its peer port: clients use another one, by default 7400; or let WithTLS have the certificate"}
	}
	return err
}

// advice says what to do about a TLS connection that failed; empty if another try may help.
func advice(err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the server's certificate is not from an authority that is believed here: name the right one by WithTLS, in RootCAs"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the server's certificate is not for this address: use a name that it has, or have it made for this one"
	}
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok && record.Conn != nil || errors.Is(err, http.ErrSchemeMismatch) {
		return "the server speaks no TLS: write http:// instead of https://, if the way to it is safe"
	}
	return ""
}

// meetWait is how long meet waits for an answer, at most half of the call's time. After that the
// call itself may find out more.
const meetWait = time.Second

// meet asks for a session ahead of the first call to a server, whatever the call is. A wrong port
// answers that request in a way that reveals it. It just drops a request over HTTP/2, whose outcome
// would be unknown.
func (ep *endpoint) meet(ctx context.Context) error {
	if ep.met.Load() {
		return nil
	}
	wait := meetWait
	if until, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(until)/2)
	}
	asking, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, err := ep.sessions.get(asking)
	switch {
	case err != nil && asking.Err() != nil && ctx.Err() == nil: // a middlebox may swallow the request
		if _, asked := errors.AsType[*askError](err); asked {
			ep.sessions.swallowed() // this call and later ones do not ask again
		}
		return nil
	case err != nil:
		return err
	}
	ep.met.Store(true)
	return nil
}
