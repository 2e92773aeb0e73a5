// Package guard has no code of the product: its benchmarks compare what Belfry's paths cost with a
// fixed piece of work that is measured by turns with them, and with the ratios that were recorded
// in ratios.txt. That work is of the path's own kind, so that a machine which is slower at it one
// day is slower at both: a plain file for the log, the standard library's map and heap for the
// state machine, its HTTP client and server for calls. A ratio that is 20 % above its record fails
// `make bench`, with its name. No timed test depends on it.
//
// Disks and processors differ in more than speed, so a record holds for machines like the one it
// was made on; where it does not, or after a change that is meant to cost more or has made a path
// cheaper, `make bench-record` writes it anew, and the difference is reviewed like any other.
package guard
