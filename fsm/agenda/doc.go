// Package agenda orders items by the next time at which each has something to do.
//
// An [Agenda] is changed by one goroutine at a time. Reads may run beside reads, but never beside a
// change.
package agenda
