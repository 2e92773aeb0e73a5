// Package inbound bounds what clients send: the size of a request, the time that it takes to
// arrive, and the bytes that all requests hold in memory together.
//
// See DESIGN.md beside this file for the rules.
package inbound
