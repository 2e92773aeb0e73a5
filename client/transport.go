package client

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/client/internal/bearer"
	"github.com/belfrydb/belfry/client/internal/requestid"
	"github.com/belfrydb/belfry/client/internal/routes"
	"github.com/belfrydb/belfry/client/internal/servers"
	"github.com/belfrydb/belfry/client/internal/session"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/portcheck"
)

// An endpoint is one server address.
type endpoint struct {
	queue belfryv1connect.QueueServiceClient
	admin belfryv1connect.AdminServiceClient
	// The calls of the hot path, with answers that decode themselves.
	sessions *session.Server
	putBatch *connect.Client[session.RawRequest, putBatchAnswer]
	ackBatch *connect.Client[session.RawRequest, ackBatchAnswer]
	reserve  *connect.Client[session.RawRequest, reserveAnswer]
}

// endpoints are the servers of a cluster, and what is known of who leads which shard.
type endpoints struct {
	*servers.List[*endpoint]
	routes routes.Table[*endpoint]
}

// newEndpoint makes the connect clients for one address.
func newEndpoint(u string, h connect.HTTPClient, s *session.Server) *endpoint {
	plain := uncompressed()
	return &endpoint{
		queue:    belfryv1connect.NewQueueServiceClient(h, u, plain),
		admin:    belfryv1connect.NewAdminServiceClient(h, u, plain),
		sessions: s,
		putBatch: newCall[putBatchAnswer](h, u, belfryv1connect.QueueServicePutBatchProcedure),
		ackBatch: newCall[ackBatchAnswer](h, u, belfryv1connect.QueueServiceAckBatchProcedure),
		reserve:  newCall[reserveAnswer](h, u, belfryv1connect.QueueServiceReserveProcedure),
	}
}

// uncompressed turns compression off: bodies are opaque, and it makes small messages over a local
// network slower.
func uncompressed() connect.ClientOption { return connect.WithAcceptCompression("gzip", nil, nil) }

// newCall makes the connect client of a call whose answer decodes itself.
func newCall[A any](h connect.HTTPClient, u, procedure string) *connect.Client[session.RawRequest, A] {
	return connect.NewClient[session.RawRequest, A](h, u+procedure, uncompressed(), connect.WithCodec(session.Codec{}))
}

// newTransport makes the package's own transport: HTTP/2 on both schemes, without TLS for http://.
//
// All calls to a server, except those of its session, share a connection. Another connection is
// opened only while the first is being made, or when the first has no stream left.
func newTransport(secure *tls.Config) *http.Transport {
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

// observer adds the token and the client's name to each call, and passes each answer's headers to the request clock.
type observer struct {
	http  connect.HTTPClient
	clock *requestid.Clock
	token *bearer.Token
	name  string
}

// Do implements connect.HTTPClient. It returns a *portcheck.ForeignResponse as the error of a
// response that did not come from Belfry.
func (o *observer) Do(req *http.Request) (*http.Response, error) {
	bearer.Authorize(req.Header, o.token.Get())
	req.Header.Set("Belfry-Client", o.name)
	sent := time.Now()
	res, err := o.http.Do(req)
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
	o.clock.Observe(sent, res.Header)
	return res, nil
}
