package gossiptest

import (
	"testing/synctest"
	"time"
)

// linger is longer than any goroutine of the library lives on after Close: a probe on its way ends
// after 8 s at most, a stream after 10.
const linger = 30 * time.Second

// Pass lets time go by in the bubble that it is called in, until all that was due is done.
func Pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// Settle waits, in virtual time, until the library's goroutines have ended after Close, which it
// does not wait for itself. A bubble must not end before.
func Settle() { Pass(linger) }
