// Package mirrortrial holds tests that run the mirror as users do: a real Redis with live processes
// of Redisson, or what stands for them, a real server and real commands `belfry mirror …`, which
// are killed while Redis is restarted, frozen and cut off. What they check is that every payload
// reaches one side, once, but for what mirror/README.md excepts; how long things took they print.
// What is judged while consumers of Redis run is read from what Redis wrote: who is cut off does
// not know what it popped. The steps of sequences come from -trial.seed; their timing does not.
// `make test` runs them short; flags make them long, and `make trial-mirror…` sets these. It has no
// code of its own for other packages.
package mirrortrial
