// Package belfrytest runs a real Belfry node inside a test's process, for tests of programs that use Belfry:
//
//	func TestOrders(t *testing.T) {
//		c := belfrytest.Start(t).Client(t)
//		…
//	}
//
// The node keeps its data in a directory of the test and listens on a free port of the loopback interface. It is the same
// code that `belfry serve` runs, so the tests see what production sees, delays included.
package belfrytest
