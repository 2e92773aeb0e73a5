package raftgroup

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

func TestRestAfterWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		urgent := false
		p := &Throttle{urgent: func() bool { return urgent }}
		expect := func(what string, worked, want time.Duration) {
			t.Helper()
			if got := p.pauseFor(worked); got != want {
				t.Errorf("%s: after %v of work the pause is %v, want %v", what, worked, got, want)
			}
		}
		expect("nothing was ever applied", time.Millisecond, 0)
		p.applied.Add(1)
		expect("an entry was applied", time.Millisecond, pauseFactor*time.Millisecond)
		time.Sleep(idleAfter)
		expect("a second ago", time.Second, pauseMax)
		urgent = true
		expect("it is urgent", time.Millisecond, 0)
		urgent = false
		time.Sleep(time.Nanosecond)
		expect("more than a second ago", time.Millisecond, 0)
		p.applied.Add(1)
		expect("and again", time.Millisecond, pauseFactor*time.Millisecond)
	})
}

// pieces is a snapshot of so many pieces.
type pieces int

func (n pieces) WriteTo(w io.Writer) (int64, error) {
	for range n {
		if _, err := w.Write(make([]byte, pieceBytes)); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func (pieces) Digest() uint64 { return 0 }

func (pieces) Release() {}

// slowSink takes ten milliseconds for each write, by its ticker.
type slowSink struct {
	bytes.Buffer
	disk *time.Ticker
}

func (s *slowSink) Write(p []byte) (int, error) {
	s.disk.Reset(10 * time.Millisecond)
	<-s.disk.C
	return s.Buffer.Write(p)
}

func (*slowSink) ID() string { return "s" }

func (*slowSink) Cancel() error { return nil }

func (*slowSink) Close() error { return nil }

// pacedGroup returns a group in which something is applied all the time.
func pacedGroup() *Group {
	g := New(Config{Throttle: &Throttle{urgent: func() bool { return false }}})
	g.cfg.Throttle.applied.Add(1)
	return g
}

func TestSnapshotIsWrittenWithRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, sink, start := pacedGroup(), &slowSink{disk: time.NewTicker(time.Hour)}, time.Now()
		if err := (&replicaSnapshot{replica: g.replica, snapshot: pieces(5)}).Persist(sink); err != nil {
			t.Fatal(err)
		}
		if took, want := time.Since(start), 5*(1+pauseFactor)*10*time.Millisecond; took != want ||
			sink.Len() != 5*pieceBytes {
			t.Errorf("%d bytes took %v, want %v", sink.Len(), took, want)
		}
	})
}

// Raft's stop waits for the goroutine that writes.
func TestStopEndsASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, sink := pacedGroup(), &slowSink{disk: time.NewTicker(time.Hour)}
		ended := make(chan error, 1)
		go func() { ended <- (&replicaSnapshot{replica: g.replica, snapshot: pieces(1000)}).Persist(sink) }()
		time.Sleep(time.Second)
		g.replica.stopped.Store(true)
		start := time.Now()
		if err := <-ended; !errors.Is(err, raft.ErrRaftShutdown) || time.Since(start) > pauseMax+20*time.Millisecond {
			t.Errorf("after %v it ended with %v", time.Since(start), err)
		}
	})
}
