package stream

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestCallsUseGoroutinesAgain: calls one after the other have one goroutine, calls at once have one
// each, and no more are kept than may be.
func TestCallsUseGoroutinesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := NewServer(&ServerConfig{})
		idle := func(want int64) {
			t.Helper()
			synctest.Wait()
			if n := server.idle.Load(); n != want {
				t.Errorf("%d goroutines have no call, want %d", n, want)
			}
		}
		s := &serving{server: server, work: make(chan func())}
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

		server.idle.Store(idleMax)
		s = &serving{server: server, work: make(chan func())}
		s.start(func() { done++ })
		idle(idleMax)
		s.answering.Wait() // it is not kept
		if done != 6 {
			t.Errorf("%d calls are done", done)
		}
	})
}

// TestAStopMissesNoSession: one whose connection is being taken over is waited for, and is closed
// once the time is over.
func TestAStopMissesNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewServer(&ServerConfig{})
		if err := all.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		early := all.add(nil)
		waited := make(chan error, 1)
		go func() { waited <- all.Wait(t.Context()) }()
		synctest.Wait()
		if len(waited) > 0 {
			t.Error("it was missed")
		}
		all.remove(early)
		if err := <-waited; err != nil {
			t.Error(err)
		}
		late := all.add(nil)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := all.Wait(over); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		ours, theirs := net.Pipe()
		defer ours.Close()
		all.connected(late, theirs)
		if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%v", err)
		}
	})
}

// TestAnEndIsNotPutOff: a reader that sets its deadline after the session was ended does not read
// on.
func TestAnEndIsNotPutOff(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	s := &serving{conn: theirs, leaving: true, working: 1}
	s.ctx, s.cancel = context.WithCancel(t.Context())
	if err := s.extend(time.Hour); err != nil {
		t.Error(err)
	}
	s.finish() // the last call
	if err := s.extend(time.Hour); err == nil || !s.left() {
		t.Error("the reader reads on")
	}
}

// TestAnAnswerThatWasLostIsNoBye: where a call was read and its answer could not be sent, the
// client must not take it for one that was not read.
func TestAnAnswerThatWasLostIsNoBye(t *testing.T) {
	_, theirs := net.Pipe()
	s := &serving{conn: theirs, leaving: true, working: 1}
	s.ctx, s.cancel = context.WithCancel(t.Context())
	s.cancel() // as answer does
	s.finish()
	if s.left() {
		t.Error("it says Bye")
	}
}
