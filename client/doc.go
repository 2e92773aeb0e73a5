// Package client is the Go SDK of Belfry.
//
// A [Client] puts jobs, reserves them when they are due, and acks them:
//
//	c, err := client.New("http://n1:7400,http://n2:7400,http://n3:7400")
//	res, err := c.Put(ctx, "orders", body, client.In(30*time.Minute), client.ID("order-42"))
//
// A [Worker] is the consuming side. It reserves jobs, extends their leases while handlers run, acks
// the jobs that succeeded, and sends back those that failed. The result of a handler decides:
//
//	nil                   the job is done
//	an error              the attempt failed; the job's retry delays decide when it is tried again
//	RetryAfter(d, err)    the attempt failed; it is tried again after d
//	Dead(err)             the attempt failed and there will be no other; the job is dead
//	Snooze(d)             the job comes back after d, and the attempt does not count
//
// A [Queue] does the same with Go values instead of bytes.
//
// [Client.Admin] configures and inspects queues and the cluster, and acts on many jobs at once. Its
// types are in the package admin below this one. [Client.Schedules] has the calls that put jobs again and
// again, in the package schedule.
//
// # Outcomes
//
// Every call ends as applied, not applied, or unknown, and an [Error] says which. Each mutation
// carries a request id. After a broken connection the client repeats the call with the same id,
// until it knows the answer or the context ends. The caller sees [ErrUnknownOutcome] only if the
// context ends first. Repeats are safe for five minutes. A call whose context never ends waits for
// as long as no server answers.
//
// # Coalescing
//
// Concurrent calls of Put, of Ack, and of Reserve for one job share round trips; see [Coalescing].
// Callers only notice the speed. Each caller gets its own answer, and its context ends only its own
// call.
//
// # Traces
//
// With [WithTracerProvider], puts, handlers and acks are spans. A job's headers carry the trace
// across its delay.
//
// # Concurrency
//
// Any number of goroutines may use a Client, a Queue and a Worker. Workers log what goes wrong; see
// [WithLogger]. Nothing else of the package logs.
package client
