// Package mirrortrial holds tests that run the mirror as users do: a real Redis with live processes of Redisson, or what stands for them, a real server and real commands `belfry mirror …`, which are killed while
// Redis is restarted and cut off. What they check is that every payload reaches one side, once; how long things took they print. `make test` runs them short; flags make them long, and `make trial-mirror…`
// sets these. It has no code of its own for other packages.
package mirrortrial
