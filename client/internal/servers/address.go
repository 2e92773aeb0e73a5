// Package servers knows the addresses of a client's servers, and which of them is in use.
package servers

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/belfrydb/belfry/client/internal/failure"
)

// defaultAddress is where `belfry serve` listens by default. An empty list does not stand for it:
// mostly an empty list is a forgotten setting.
const defaultAddress = "http://127.0.0.1:" + defaultPort

// defaultPort is the port of an address that has neither a scheme nor a port. A whole URL keeps the
// port of its scheme: it may be a proxy's.
const defaultPort = "7400"

// Parse reads a comma-separated list of base URLs, which all begin with http:// or all with
// https://. An address without a scheme is http; if it has no port either, that is 7400. The result
// has at least one URL, and none ends in a slash.
//
// The error is a [*failure.Error], or wraps that of [url.Parse].
func Parse(addresses string) ([]string, error) {
	if strings.TrimSpace(addresses) == "" {
		return nil, failure.Invalidf(
			"there is no address: want http://host:port or https://host:port, %s for a server on this machine", defaultAddress)
	}
	var urls []string
	scheme := ""
	for addr := range strings.SplitSeq(addresses, ",") {
		addr = strings.TrimSpace(addr)
		bare := !strings.Contains(addr, "://")
		if bare {
			addr = "http://" + addr
		}
		u, err := url.Parse(addr)
		if err != nil {
			return nil, fmt.Errorf("reading the address %q: %w", addr, err)
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, failure.Invalidf("the address %q is not of the form http://host:port or https://host:port", addr)
		}
		if bare && u.Port() == "" {
			u.Host = net.JoinHostPort(u.Hostname(), defaultPort)
			addr = u.String()
		}
		urls = append(urls, strings.TrimRight(addr, "/"))
		if scheme = cmp.Or(scheme, u.Scheme); scheme != u.Scheme {
			return nil, failure.Invalidf(
				"the addresses %s and %s differ in http and https: the servers of a cluster are reached in one way", urls[0], addr)
		}
	}
	return urls, nil
}

// namedURL returns the base URL of an address that a server named, in the manner of one that was
// given. It is empty if the address makes no sense here.
func namedURL(given, address string) string {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		return ""
	}
	u, err := url.Parse(given)
	if err != nil || strings.Trim(u.Path, "/") != "" {
		return "" // there is a gateway before the servers
	}
	return u.Scheme + "://" + address
}
