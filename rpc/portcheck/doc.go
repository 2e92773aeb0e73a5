// Package portcheck says what else answers where a Belfry server should: another port of a node, a
// server that speaks TLS only, a proxy, another web server, or a program that speaks no HTTP. The
// SDK uses it on what it receives. The server and the command line also probe an address with it.
package portcheck
