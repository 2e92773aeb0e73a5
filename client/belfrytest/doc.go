// Package belfrytest runs a real Belfry node in the process of a test, for tests of programs that
// use Belfry:
//
//	func TestOrders(t *testing.T) {
//		server := belfrytest.Start(t, belfrytest.StoppedAt(time.Now()))
//		c := server.Client(t)
//		…
//		server.Advance(30 * time.Minute)
//		…
//	}
//
// The node keeps its data in a directory of the test and listens on a free port of the loopback
// interface. It runs the same code as `belfry serve`, so a test sees the behaviour of production,
// delays included. It is ready in less than a tenth of a second. It syncs writes only with the
// option Synced.
//
// # Time
//
// No test needs to sleep. With StoppedAt only Advance moves the server's time. Delays, leases,
// retries, times to live, rates of queues and the memory of requests and ids all use that time. The
// put rate of a namespace's quota uses the test's own time. Between two calls of Advance time
// stands still: no lease expires and no rate refills by itself. To make a crashed consumer lose its
// lease, call Advance.
//
// The test's own time continues to govern the Wait of a Reserve and the client's pauses between
// attempts. It also governs when a client.Worker extends a lease or takes it as lost. A worker
// measures the length of a lease from its grant, and never compares its end with a clock. So the
// server's time may be years away from the machine's, and Advance alone ends no handler's context.
//
// The worker extends a lease after a third of it has passed in the test's own time. The extension
// changes nothing while the server's time stands still. If Advance has ended the lease, the ack
// fails, and the next extension ends the handler's context. To let a handler notice soon, use a
// short lease: with a TTR of 30 ms it takes 10 ms. Give due times as server.Now().Add(d), or as
// delays.
//
// In a bubble of testing/synctest, a server started with InMemory uses the bubble's time, and so do
// leases and workers. A bubble's time jumps when all its goroutines wait, so a node's own timers
// (heartbeats, checks of the disk) fire too: an hour of bubble time costs some tenths of a second
// of work.
package belfrytest
