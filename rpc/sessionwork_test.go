package rpc

import (
	"testing"
	"testing/synctest"
)

// TestCallsUseGoroutinesAgain: calls one after the other have one goroutine, calls at once have one each, and no more are kept than may be.
func TestCallsUseGoroutinesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handler{}
		idle := func(want int64) {
			t.Helper()
			synctest.Wait()
			if n := h.sessions.idle.Load(); n != want {
				t.Errorf("%d goroutines have no call, want %d", n, want)
			}
		}
		s := &session{handler: h, work: make(chan func())}
		done := 0
		for range 5 {
			s.start(func() { done++ })
			idle(1)
		}
		release := make(chan struct{})
		started := make(chan struct{}, 3)
		for range cap(started) {
			s.start(func() {
				started <- struct{}{}
				<-release
			})
		}
		synctest.Wait()
		if done != 5 || len(started) != cap(started) {
			t.Errorf("%d calls are done, and %d under way at once", done, len(started))
		}
		idle(0)
		close(release)
		idle(int64(cap(started)))
		close(s.work)
		s.answering.Wait()
		idle(0)

		h.sessions.idle.Store(sessionIdleMax)
		s = &session{handler: h, work: make(chan func())}
		s.start(func() { done++ })
		idle(sessionIdleMax)
		s.answering.Wait() // it is not kept
		if done != 6 {
			t.Errorf("%d calls are done", done)
		}
	})
}
