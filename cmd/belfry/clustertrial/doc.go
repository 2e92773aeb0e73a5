// Package clustertrial holds tests that run clusters of real servers, on real disks, under load,
// and stop, kill and freeze their nodes. The tests check the promises. They print durations, as a
// table and as a line of JSON. `make test` runs short tests; flags make them long, and `make
// trial-…` sets these. The package exports no code.
package clustertrial
