package rpc

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/ui"
)

// ofPage returns the fault of a request that may be made by a page in a browser which is not ours.
func (h *handler) ofPage(r *http.Request) *fault.Error {
	f := fault.New(belfryv1.Reason_REASON_FORBIDDEN)
	if !h.sameOrigin(r) {
		f.Message = "a browser sent this from a page of another origin"
		return f
	}
	if !h.local || h.unclaimed(r.Host) {
		return nil
	}
	if open, _ := h.authorizer.OpenAccess(); !open { // while that is not known, the call is refused for it later
		return nil
	}
	f.Message = "the server is for this machine alone and asks for no token, so it must be called by an address, as " +
		"localhost, or as --advertise says: a page in a browser could have its own name, such as " +
		fault.Clip(r.Host, fault.QuotedBytesMax) + ", lead here"
	return f
}

// sameOrigin refuses what a browser sends on behalf of a page from elsewhere. Plain forms and texts
// are read as JSON here, and a raw GET takes a job, so the usual preflight of browsers does not
// protect a server on loopback.
func (h *handler) sameOrigin(r *http.Request) bool {
	// A GET of the dashboard changes nothing, and may be a link on a page of elsewhere.
	if (r.Method == http.MethodGet || r.Method == http.MethodHead) && !h.isPage(r.URL.Path) {
		asPost := *r
		asPost.Method = http.MethodPost
		r = &asPost
	}
	return h.origins.Check(r) == nil && !downgraded(r)
}

// downgraded reports whether a page of our host, but without TLS, sent a request through TLS. Such a
// page may be written by anybody on the way. Browsers that send Sec-Fetch-Site say themselves that
// this is another site.
func downgraded(r *http.Request) bool {
	return ui.ThroughTLS(r) && r.Header.Get("Sec-Fetch-Site") == "" &&
		strings.HasPrefix(strings.ToLower(r.Header.Get("Origin")), "http://")
}

// unclaimed reports whether a Host is none that a page can have as its own: browsers take addresses
// and localhost for what they are, and the other names are those of /etc/hosts, of Docker's way to
// its host, and of the operator.
func (h *handler) unclaimed(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, notAddress := netip.ParseAddr(strings.Trim(host, "[]"))
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	switch host {
	case "", "localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback", "host.docker.internal",
		strings.ToLower(h.localName):
		return true
	default:
		return notAddress == nil || strings.HasSuffix(host, ".localhost")
	}
}
