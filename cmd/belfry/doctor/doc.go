// Package doctor makes the bundle for a report of trouble: what is known of a cluster and a
// machine, without what is nobody's business, and what looks wrong in it.
//
// It gathers facts of the machine itself; what a server answers is handed in. Nothing gets into a
// bundle but through Add and AddMetrics, which redact: bodies, headers and log lines are never
// asked for, names of queues are hashed, and whatever looks like a token, a key or a password is
// taken out all the same.
package doctor
