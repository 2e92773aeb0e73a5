// Package clustertrial holds tests that run clusters of real servers, on real disks, under load,
// and stop, kill and freeze their nodes. What they check is whether the promises were kept; how
// long things took they print, as a table and as a line of JSON. `make test` runs them short; flags
// make them long, and `make trial-…` sets these. It has no code of its own for other packages.
package clustertrial
