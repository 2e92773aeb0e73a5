package certs

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"
)

// Name is the identity in a certificate: a node of a domain. In the certificate it is a URI,
// belfry://DOMAIN/node/NODE. A domain is the nodes of one cluster, with one authority.
type Name struct{ Domain, Node string }

const (
	nameScheme = "belfry"
	namePath   = "/node/"
)

// String returns the name as it stands in a certificate.
func (n Name) String() string { return n.uri().String() }

func (n Name) uri() *url.URL {
	return &url.URL{Scheme: nameScheme, Host: n.Domain, Path: namePath + n.Node}
}

// domainURI is what the certificate of an authority says of the domain that it was made for.
func domainURI(domain string) *url.URL { return &url.URL{Scheme: nameScheme, Host: domain} }

// NameOf returns the name in a certificate. A certificate with no name or with several is an error.
func NameOf(cert *x509.Certificate) (Name, error) {
	var found []Name
	for _, uri := range cert.URIs {
		if node, ok := strings.CutPrefix(uri.Path, namePath); ok && uri.Scheme == nameScheme {
			found = append(found, Name{Domain: uri.Host, Node: node})
		}
	}
	if len(found) != 1 {
		return Name{}, fmt.Errorf("the certificate of %q names %d nodes of Belfry, and must name one, as %s",
			cert.Subject.CommonName, len(found), Name{"DOMAIN", "NODE"})
	}
	if found[0].Domain == "" || found[0].Node == "" {
		return Name{}, fmt.Errorf("the certificate of %q names the node %q of the domain %q, and neither may be empty",
			cert.Subject.CommonName, found[0].Node, found[0].Domain)
	}
	return found[0], nil
}

// domainOf returns the domain that an authority was made for; empty if it says none.
func domainOf(authority *x509.Certificate) string {
	for _, uri := range authority.URIs {
		if uri.Scheme == nameScheme && uri.Path == "" {
			return uri.Host
		}
	}
	return ""
}
