// Package mirrortrial holds tests that run the mirror as users do: a real Redis with live processes
// of Redisson or their substitutes, a real server, and real commands `belfry mirror …`. The tests
// kill the commands, and restart, freeze and disconnect Redis. They check that every payload
// reaches one side, once, with the exceptions in mirror/README.md; they print durations. While
// consumers of Redis run, the tests judge by the append-only file of Redis, because a consumer that
// is cut off does not know what it popped. The steps of sequences come from -trial.seed; their
// timing does not. `make test` runs short tests; flags make them long, and `make trial-mirror…`
// sets these. The package exports no code.
package mirrortrial
