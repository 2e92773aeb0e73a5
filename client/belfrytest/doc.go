// Package belfrytest runs a real Belfry node inside a test's process, for tests of programs that use Belfry:
//
//	func TestOrders(t *testing.T) {
//		server := belfrytest.Start(t, belfrytest.StoppedAt(time.Now()))
//		c := server.Client(t)
//		…
//		server.Advance(30 * time.Minute)
//		…
//	}
//
// The node keeps its data in a directory of the test and listens on a free port of the loopback interface. It is the same
// code that `belfry serve` runs, so the tests see what production sees, delays included. It serves in less than a tenth of a second, and syncs nothing
// unless told so, see Synced.
//
// # Time
//
// No test need sleep. With StoppedAt the server's time moves only when the test says so, by Advance: delays, leases, retries, times to live, rates of queues and
// the windows in which a repeat is known all go by it. The put rate of a namespace's quota goes by the test's own time. Between two calls of Advance time stands still, so that no lease lapses and no rate is refilled by itself; a lease that a crashed
// consumer should lose is lost by Advance. What is counted in the test's own time goes on as ever: the Wait of a Reserve, the
// pauses of the client between attempts, and a client.Worker's care for its leases. To a worker a lease is a length, from when it was granted, and never a time to be compared with a clock: so the
// server's time may be years from the machine's, and Advance alone ends no handler's context. The worker extends a lease after a third of it has passed in the test's own time, which changes nothing while the
// server's time stands still; one that Advance has ended fails the ack, and the next extension ends the handler's context. A handler that is to see this soon has a short lease: with a TTR of 30 ms it takes 10.
// Give due times as server.Now().Add(d), or as delays.
//
// In a bubble of testing/synctest the time is the bubble's, and a server started there with InMemory goes by it, leases and workers alike. A bubble's time jumps
// when everything in it waits, so a node's own timers (heartbeats, looks at the disk) take their turns too: an hour of it is some tenths of a second of work.
package belfrytest
