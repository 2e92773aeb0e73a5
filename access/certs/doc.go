// Package certs is how nodes and clients know that they talk to a node of Belfry, and to which:
// certificates that name a node and its domain, the private authority that issues them, and TLS 1.3
// made from files that may be replaced while it is in use.
package certs
