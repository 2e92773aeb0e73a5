package portcheck

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
)

// A WrongPort is the error of a port that, by its own answer, takes no calls of clients. The port
// read none of what was sent, and another try does not help.
type WrongPort struct{ what string }

// Error describes the port and what to do.
func (e *WrongPort) Error() string { return e.what }

const (
	speaksTLS = "the server speaks TLS only: write https:// instead of http://, and name the authority behind its " +
		"certificate by WithTLS if it is a private one"
	wantsCertificate = "the server wants a certificate of its clients, as a Belfry node does at its peer port: " +
		"clients use another one, by default 7400; or let WithTLS have the certificate"
	unknownAuthority = "the server's certificate is not from an authority that is believed here: " +
		"name the right one by WithTLS, in RootCAs"
	otherAddress = "the server's certificate is not for this address: use a name that it has, or have it made for this one"
	speaksPlain  = "the server speaks no TLS: write http:// instead of https://, if the way to it is safe"

	// alertRecord begins each alert of TLS (RFC 8446 §5.1) up to its minor version.
	alertRecord = "\x15\x03"
	// certificateRequired is the alert of a server that wants a certificate of the client (RFC 8446
	// §6.2).
	certificateRequired = tls.AlertError(116)
	// goWantsTLS begins the answer of Go's servers, and so of Belfry, to HTTP where they expect TLS.
	goWantsTLS = "Client sent an HTTP request to an HTTPS server"
)

// BeginsWithAlert returns a [*WrongPort] if the answer to a request without TLS begins like a TLS
// alert.
func BeginsWithAlert(in *bufio.Reader) error {
	if begins, _ := in.Peek(len(alertRecord)); string(begins) == alertRecord {
		return &WrongPort{speaksTLS}
	}
	return nil
}

// RefusesPlain returns a [*WrongPort] if an HTTP answer comes from a server that expects TLS. It
// may read a part of the body of an error.
func RefusesPlain(res *http.Response) error {
	if wantsTLS(res) {
		return &WrongPort{speaksTLS}
	}
	return nil
}

// wantsTLS reports whether an HTTP answer comes from a server that expects TLS. It knows the texts
// of Go's servers, nginx and Apache, each with status 400.
func wantsTLS(res *http.Response) bool {
	const enough = 1 << 10
	if res.StatusCode != http.StatusBadRequest {
		return false
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, enough)) // a part of the body is enough
	for _, says := range []string{
		goWantsTLS,
		"The plain HTTP request was sent to HTTPS port",
		"speaking plain HTTP to an SSL-enabled server port",
	} {
		if strings.Contains(string(body), says) {
			return true
		}
	}
	return false
}

// RefusesStrangers turns the alert of a server that wants the client's certificate into a
// [*WrongPort]. It returns any other error unchanged. With TLS 1.3 the alert comes after the client
// has finished its side of the handshake, and the server reads nothing sent since. The type of
// alerts is private to crypto/tls, but their texts are not.
func RefusesStrangers(err error) error {
	op, ok := errors.AsType[*net.OpError](err)
	if ok && op.Op == "remote error" && op.Err.Error() == certificateRequired.Error() {
		return &WrongPort{wantsCertificate}
	}
	return err
}

// Advice says what to do about a TLS connection that failed. It is empty if another try may help.
func Advice(err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return unknownAuthority
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return otherAddress
	}
	if speaksNoTLS(err) {
		return speaksPlain
	}
	return ""
}

// speaksNoTLS reports whether a TLS handshake failed because the server speaks no TLS.
func speaksNoTLS(err error) bool {
	record, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok && record.Conn != nil || errors.Is(err, http.ErrSchemeMismatch)
}

// failedHandshake reports whether an error comes from a TLS handshake and will come again: the
// certificate is wrong, or the server speaks no TLS where TLS is expected. Other errors do not show
// whether the handshake was done.
func failedHandshake(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok || speaksNoTLS(err)
}

// Unfit reports whether an error proves that no connection for calls can be made to the server: its
// handshake fails, or its port is not for clients.
func Unfit(err error) bool {
	_, ok := errors.AsType[*WrongPort](err)
	return ok || failedHandshake(err)
}

// Misconfigured reports whether an error will not go away by itself: the server is [Unfit], or
// another server answers for good.
func Misconfigured(err error) bool {
	foreign, ok := errors.AsType[*ForeignResponse](err)
	return ok && !foreign.Temporary() || Unfit(err)
}
