package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/cmd/belfry/server"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/portcheck"
)

// ForeignResponse is an answer of something that is not a Belfry server.
type ForeignResponse struct{ Status string }

func (e *ForeignResponse) Error() string { return "the answer is " + e.Status }

// elsewhere says what answers at the server's address, if that is certainly not where a server
// answers clients, so that nothing was done; else it is empty. err is what a call ended with.
func (a *App) elsewhere(ctx context.Context, err error) string {
	address, ok := a.directAddress()
	if !ok || !unanswered(err) || ctx.Err() != nil {
		return ""
	}
	switch found := server.PortProbes().Find(ctx, address); found.Kind {
	case portcheck.Peers:
		name, _, _ := strings.Cut(found.Node, ".")
		return fmt.Sprintf("%s is the peer port of Belfry node %s, where other nodes reach it; %s", address, name,
			clientsBefore(ctx, address, 1))
	case portcheck.Gossip:
		return fmt.Sprintf("%s is the gossip port of a Belfry node; %s", address, clientsBefore(ctx, address, 2))
	case portcheck.TLS:
		return address + " speaks TLS only: write https:// instead of http://, and name the authority behind its " +
			"certificate with --tls-ca"
	case portcheck.Other:
		return fmt.Sprintf("something that is not a Belfry server answers at %s: it does not speak HTTP", address)
	// it was slow to answer the question, and may be a server, unless it has answered the call as none
	// does
	case portcheck.Silent:
		if _, foreign := errors.AsType[*ForeignResponse](err); !foreign {
			return ""
		}
	case portcheck.Web:
		if ambiguous(err) {
			return ""
		}
	case portcheck.Clients:
		return ""
	}
	return fmt.Sprintf("something that is not a Belfry server answers at %s: %s", address, Explain(err))
}

// directAddress returns the HOST:PORT to which calls go; ok is false if TLS or a proxy stands
// between.
func (a *App) directAddress() (address string, ok bool) {
	u, err := a.serverInUse()
	if err != nil || u.Scheme != "http" {
		return "", false
	}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err != nil || proxy != nil {
		return "", false
	}
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "80"), true
	}
	return u.Host, true
}

// unanswered reports whether a call ended without an answer of a Belfry server.
func unanswered(err error) bool {
	if _, foreign := errors.AsType[*ForeignResponse](err); foreign {
		return true
	}
	wire, ok := errors.AsType[*connect.Error](err)
	if !ok {
		_, broken := errors.AsType[*url.Error](err)
		return broken
	}
	_, faulty := fault.FromConnect(wire)
	return !faulty && !connect.IsWireError(wire)
}

// ambiguous reports whether a call may have reached a Belfry server behind the web server that
// answered in its place, as a proxy does when the server behind it is lost.
func ambiguous(err error) bool {
	_, broken := errors.AsType[*url.Error](err)
	code := connect.CodeOf(err)
	return broken || code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded ||
		code == connect.CodeCanceled
}

// clientsBefore says where clients reach a node that has another of its ports at address, by
// default so many ports after that for clients.
func clientsBefore(ctx context.Context, address string, after int) string {
	if before := server.PortProbes().FindClients(ctx, address, after); before != "" {
		return "clients use " + before
	}
	return "clients use another one, by default 7400"
}

// ServedHere reports whether a health page may be a Belfry server's: one that is unavailable may be
// a proxy's before it.
func ServedHere(response *http.Response) bool {
	return response.Header.Get(portcheck.ServedBy) != "" || response.StatusCode == http.StatusServiceUnavailable
}
