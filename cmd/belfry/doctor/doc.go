// Package doctor makes the bundle for a report of trouble. It has facts about a cluster and a
// machine, without private data, and suspicious facts among them.
//
// The package reads the facts of the machine itself; the caller passes in the answers of a server.
// Content enters a bundle only through Add and AddMetrics, which redact it. Bodies, headers and log
// lines are never requested. Names of queues are hashed, and texts that look like a token, a key or
// a password are removed.
package doctor
