// Package guard has benchmarks and no code of the product. They compare the cost of Belfry's paths
// with a fixed piece of work, in turn, and with the ratios in ratios.txt. The fixed work is of the
// path's own kind, so a machine that is slower at it one day is slower at both: a plain file for
// the log, the standard library's map and heap for the state machine, its HTTP client and server
// for calls. A ratio that is 20 % above its record fails `make bench`, with its name. No test under
// a time limit depends on it.
//
// Disks and processors differ in more than speed, so a record is valid for machines like the one on
// which it was made. On another machine, or after an intended change of the cost, `make
// bench-record` writes a new record, which is reviewed like any other change.
package guard
