// Package backendtest has a node, a catalog and a cluster in memory, for the tests of the handlers.
// See "Implementations" in the page of package backend.
package backendtest
