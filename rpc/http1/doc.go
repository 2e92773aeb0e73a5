// Package http1 carries out plain HTTP/1.1 requests of known paths without net/http, and hands all
// other connections over to net/http.
//
// See DESIGN.md beside this file for the rules.
package http1
