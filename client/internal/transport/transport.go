// Package transport has the HTTP connections of a client, and what each call carries.
package transport

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/client/internal/bearer"
	"github.com/belfrydb/belfry/client/internal/requestid"
	"github.com/belfrydb/belfry/client/internal/session"
	"github.com/belfrydb/belfry/rpc/portcheck"
)

// Uncompressed turns compression off: bodies are opaque, and it makes small messages over a local
// network slower.
func Uncompressed() connect.ClientOption { return connect.WithAcceptCompression("gzip", nil, nil) }

// New returns the client's own transport: HTTP/2 on both schemes, without TLS for http://.
//
// All calls to a server, except those of its session, share a connection. Another connection is
// opened only while the first is being made, or when the first has no stream left.
func New(secure *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: session.DialTimeout, KeepAlive: 15 * time.Second}
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     secure.Clone(),
		TLSHandshakeTimeout: session.DialTimeout,
		MaxConnsPerHost:     2,
		IdleConnTimeout:     2 * time.Minute,
		DisableCompression:  true,
		Protocols:           new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: session.PingAfter,
			PingTimeout:     session.PingTimeout,
		},
	}
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

// Observer adds the token and the client's name to each call, and passes each answer's headers to
// the request clock. All fields are required. Any number of goroutines may use it.
type Observer struct {
	HTTP  connect.HTTPClient
	Clock *requestid.Clock
	Token *bearer.Token
	Name  string
}

// Do implements connect.HTTPClient. It returns a *portcheck.ForeignResponse as the error of a
// response that did not come from Belfry.
func (o *Observer) Do(req *http.Request) (*http.Response, error) {
	bearer.Authorize(req.Header, o.Token.Get())
	req.Header.Set("Belfry-Client", o.Name)
	sent := time.Now()
	res, err := o.HTTP.Do(req)
	if err != nil {
		return res, portcheck.RefusesStrangers(err)
	}
	foreign, err := portcheck.ForeignIn(res)
	if foreign != nil {
		err = foreign
	}
	if err != nil {
		_ = res.Body.Close() // no caller reads it
		return nil, err
	}
	o.Clock.Observe(sent, res.Header)
	return res, nil
}
