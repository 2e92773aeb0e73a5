// Package client is the Go SDK of Belfry.
//
// A [Client] puts jobs, reserves them when they are due, and acks them:
//
//	c, err := client.New("http://n1:7400,http://n2:7400,http://n3:7400")
//	res, err := c.Put(ctx, "orders", body, client.In(30*time.Minute), client.ID("order-42"))
//
// A [Worker] does the consuming side: it reserves, extends leases while handlers run, acks what succeeded, and sends
// back what failed. What a handler returns decides:
//
//	nil                   the job is done
//	an error              the attempt failed; the job's retry delays decide when it is tried again
//	RetryAfter(d, err)    the attempt failed; it is tried again after d
//	Dead(err)             the attempt failed and there will be no other; the job is dead
//	Snooze(d)             the job comes back after d, and the attempt does not count
//
// A [Queue] does the same with Go values instead of bytes.
//
// # Outcomes
//
// Every call ends as applied, not applied, or unknown, and an [Error] says which. Each mutation carries a request id, so
// a call that broke is repeated with the same id until the answer is known or the context ends; only then does
// the caller see [ErrUnknownOutcome]. Repeats are safe for five minutes. A call made with a context that never ends
// waits for as long as no server answers.
//
// # Coalescing
//
// Concurrent calls of Put, Ack and of Reserve for one job share round trips; see [Coalescing]. Callers notice only that it is
// faster. Each caller gets its own answer, and its context ends its own call only.
//
// # Traces
//
// With [WithTracerProvider] puts, handlers and acks are spans, and a job's headers carry the trace across its delay.
//
// # Concurrency
//
// A Client, a Queue and a Worker may be used from any number of goroutines. Workers log what goes wrong; see
// [WithLogger]. Nothing else of the package logs.
package client
