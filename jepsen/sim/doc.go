// Package sim is the bit-exact simulator of Belfry: machines of package fsm, the clocks of nodes,
// leases and routing over a log that is abstract, in one goroutine. One seed is one world, and the
// same seed of the same commit is the same world, bit for bit. See DESIGN.md.
package sim
