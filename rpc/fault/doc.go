// Package fault has the errors of the public contract: the table of reasons, codes and outcomes,
// and the conversions between results of the machine, errors of node, errors of Connect and entries
// of a batch. Its functions may be called from any goroutine.
package fault
