package peer

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node/nodetest/pipetest"
	"github.com/hashicorp/raft"
)

// hostile is a connection of a peer that has greeted properly and then does what it likes, and the
// group that it is in.
type hostile struct {
	net.Conn
	mux     *Mux
	listens *pipetest.Listener
}

// withHostilePeer runs a test in a bubble. answer is the group's way with messages; nil answers
// each.
func withHostilePeer(t *testing.T, answer func(raft.RPC), test func(t *testing.T, h hostile)) {
	t.Helper()
	if answer == nil {
		answer = func(rpc raft.RPC) {
			if rpc.Reader != nil {
				n, err := io.Copy(io.Discard, rpc.Reader)
				rpc.Respond(&raft.InstallSnapshotResponse{Success: n == rpc.Command.(*raft.InstallSnapshotRequest).Size}, err)
				return
			}
			rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		m, l := startMux(t)
		serve(t, m.Transport("shard-0"), answer)
		conn, err := peerOf(t, l, "c", "evil").connect(t.Context(), "shard-0", "n1.1")
		if err != nil {
			t.Fatal(err)
		}
		test(t, hostile{conn, m, l})
	})
}

// serve answers every message of a transport until the test ends.
func serve(t *testing.T, trans *Transport, answer func(raft.RPC)) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		for {
			select {
			case rpc := <-trans.Consumer():
				answer(rpc)
			case <-done:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		if err := trans.Close(); err != nil {
			t.Error(err)
		}
	})
}

// expectEnd fails the test unless the connection is ended within most, and the group then still
// answers others.
func (h hostile) expectEnd(t *testing.T, most time.Duration) {
	t.Helper()
	start := time.Now()
	_, err := io.Copy(io.Discard, h.Conn)
	if err != nil || time.Since(start) > most {
		t.Errorf("after %v reading gave %v, want the end within %v", time.Since(start), err, most)
	}
	synctest.Wait()
	for conn := range h.mux.conns {
		if conn.peer == "evil.1" {
			t.Error("its connection is still held")
		}
	}
	h.expectService(t)
}

// expectService fails the test unless the group answers another peer at once.
func (h hostile) expectService(t *testing.T) {
	t.Helper()
	start := time.Now()
	trans := peerOf(t, h.listens, "c", "n2").Transport("shard-0")
	defer func() { _ = trans.Close() }()
	var resp raft.AppendEntriesResponse
	if err := trans.AppendEntries("n1.1", "n1.1", &raft.AppendEntriesRequest{Term: 9, PrevLogEntry: 1},
		&resp); err != nil || !resp.Success {
		t.Errorf("another peer was answered %+v, %v", resp, err)
	}
	if time.Since(start) != 0 {
		t.Errorf("another peer waited %v for its answer", time.Since(start))
	}
}

func TestLengthsThatNoMemoryHas(t *testing.T) {
	entries := "\x00\x81\xa7Entries"
	tests := []struct{ name, send string }{
		{"entries without end", entries + "\xdd\xff\xff\xff\xff"},
		{"an array of empty entries", entries + "\xdd\x00\xff\xff\xff" + strings.Repeat("\x80", 1<<16)},
		{"data without end", entries + "\x91\x81\xa4Data\xc6\xff\xff\xff\xff"},
		{"more data than an entry has", entries + "\x91\x81\xa4Data\xc6\x02\x00\x00\x00"},
		{"several that are too much together", entries + "\x92" +
			strings.Repeat("\x81\xa4Data\xc6\x00\xa0\x00\x00"+strings.Repeat("x", 10<<20), 2)},
		{"a name without end", "\x00\x81\xdb\xff\xff\xff\xff"},
		{"fields without end", "\x00\xdf\xff\xff\xff\xff"},
		{"an extension without end", "\x00\x81\xa4Term\xc9\xff\xff\xff\xff\x05"},
		{"a vote of 2 MiB", "\x01\x81\xa9Candidate\xc6\x00\x20\x00\x00"},
		{"a hole without bottom", "\x00\x81\xa1x" + strings.Repeat("\x91", 100)},
		{"a tag that does not exist", "\x00\x81\xc1"},
		{"a kind that does not exist", "\x2a\x80"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			withHostilePeer(t, nil, func(t *testing.T, h hostile) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				go func() { _, _ = io.WriteString(h, tt.send) }() // is cut off
				h.expectEnd(t, 0)
				runtime.ReadMemStats(&after)
				// The decoder lets a buffer grow in steps and leaves each to the collector.
				if used := after.TotalAlloc - before.TotalAlloc; used > 16*messageBytesMax {
					t.Errorf("%d MiB were allocated", used>>20)
				}
			})
		})
	}
}

// trickle sends a byte a second until it cannot.
func (h hostile) trickle(data []byte) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := range data {
		if _, err := h.Write(data[i : i+1]); err != nil {
			return
		}
		<-tick.C
	}
}

func TestTrickleOfAMessage(t *testing.T) {
	withHostilePeer(t, nil, func(t *testing.T, h hostile) {
		message := voteRequest(t)
		if len(message) < 30 {
			t.Fatalf("the message has %d bytes, too few to be slow", len(message))
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.trickle(message)
		}()
		h.expectEnd(t, rpcTimeout)
		<-ended
	})
}

// A snapshot is read by Raft's main loop, so a slow one stops the group.
func TestTrickleOfASnapshot(t *testing.T) {
	withHostilePeer(t, nil, func(t *testing.T, h hostile) {
		message := snapshotRequest(t, 1<<20)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = h.Write(message)
			h.trickle(make([]byte, 1<<20))
		}()
		h.expectEnd(t, rpcTimeout)
		<-ended
	})
}

func TestSnapshotLargerThanTheDisk(t *testing.T) {
	var taken int64
	withHostilePeer(t, func(rpc raft.RPC) {
		if rpc.Reader != nil {
			taken, _ = io.Copy(io.Discard, rpc.Reader)
		}
		rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
	}, func(t *testing.T, h hostile) {
		h.mux.cfg.Room = func() uint64 { return 1 << 20 }
		message := snapshotRequest(t, 1<<62)
		go func() {
			_, _ = h.Write(message)
			for {
				if _, err := h.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}()
		h.expectEnd(t, 0)
		if taken > 1<<20 {
			t.Errorf("%d bytes were taken, more than there is room for", taken)
		}
	})
}

// What is slow but goes on, and what is slow on this side, is not cut off.
func TestSlowSnapshotIsTaken(t *testing.T) {
	var taken int64
	withHostilePeer(t, func(rpc raft.RPC) {
		for {
			n, err := io.CopyN(io.Discard, rpc.Reader, progressBytes/4)
			if taken += n; err != nil {
				break
			}
			time.Sleep(time.Minute) // a disk
		}
		rpc.Respond(&raft.InstallSnapshotResponse{Success: true}, nil)
	}, func(t *testing.T, h hostile) {
		message := snapshotRequest(t, 4*progressBytes)
		if _, err := h.Write(message); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			time.Sleep(rpcTimeout - time.Second)
			if _, err := h.Write(make([]byte, progressBytes)); err != nil {
				t.Fatalf("after %d bytes: %v", taken, err)
			}
		}
		if _, err := h.Read(make([]byte, 1)); err != nil || taken != 4*progressBytes {
			t.Errorf("%d bytes were taken, and the answer is %v", taken, err)
		}
	})
}

func TestPeerThatReadsNothing(t *testing.T) {
	withHostilePeer(t, nil, func(t *testing.T, h hostile) {
		if _, err := h.Write(voteRequest(t)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rpcTimeout + time.Millisecond)
		h.expectEnd(t, 0)
	})
}

func TestConnectionsMayBeIdle(t *testing.T) {
	withHostilePeer(t, nil, func(t *testing.T, h hostile) {
		message := voteRequest(t)
		for range 3 {
			time.Sleep(24 * time.Hour)
			if _, err := h.Write(message); err != nil {
				t.Fatal(err)
			}
			if n, err := h.Read(make([]byte, 4096)); n == 0 || err != nil {
				t.Fatalf("the answer has %d bytes, %v", n, err)
			}
		}
	})
}

func TestMessagesThatAreNotAwaited(t *testing.T) {
	withHostilePeer(t, nil, func(t *testing.T, h hostile) {
		message := voteRequest(t)
		go func() { _, _ = h.Write(append(bytes.Clone(message), message...)) }()
		h.expectEnd(t, 0)
	})
}

// hostileServer returns a transport whose dials reach a server that greets properly and is then
// handed to behave.
func hostileServer(t *testing.T, behave func(conn net.Conn)) *Transport {
	t.Helper()
	back := func(hello greeting) greeting {
		hello.sender, hello.receiver = hello.receiver, hello.sender
		return hello
	}
	l := answering(t, back, behave)
	trans := peerOf(t, l, "c", "n2").Transport("shard-0")
	t.Cleanup(func() { _ = trans.Close() })
	return trans
}

func TestAnswerWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		trans := hostileServer(t, func(conn net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			_, _ = conn.Write([]byte("\xc6\xff\xff\xff\xff")) // a text of 4 GiB
			for {
				n, err := conn.Write(make([]byte, 4096))
				if sent += n; err != nil {
					return
				}
			}
		})
		start := time.Now()
		err := trans.AppendEntries("n1.1", "n1.1", &raft.AppendEntriesRequest{}, &raft.AppendEntriesResponse{})
		synctest.Wait()
		if err == nil || time.Since(start) != 0 || sent > 2*replyBytesMax {
			t.Errorf("after %v and %d bytes the error is %v", time.Since(start), sent, err)
		}
	})
}

// The library gives a snapshot of a gigabyte eleven hours.
func TestServerThatTakesNoSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		defer func() { <-ended }()
		trans := hostileServer(t, func(conn net.Conn) {
			defer close(ended)
			_, _ = io.CopyN(io.Discard, conn, 1<<20)
			time.Sleep(24 * time.Hour)
		})
		start := time.Now()
		req := &raft.InstallSnapshotRequest{Size: 1 << 30}
		err := trans.InstallSnapshot("n1.1", "n1.1", req, &raft.InstallSnapshotResponse{}, io.LimitReader(zeros{}, 1<<30))
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != rpcTimeout {
			t.Errorf("after %v the error is %v", time.Since(start), err)
		}
	})
}

// zeros is endless.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestManyLargeEntriesAreSentInParts(t *testing.T) {
	tests := []struct{ entries, size, want int }{
		{0, 0, 0}, {64, 1000, 64}, {1, EntryBytesMax, 1}, {3, EntryBytesMax, 1}, {64, 512 << 10, 7}, {5, 1 << 20, 3},
	}
	for _, tt := range tests {
		if got := firstEntries(entriesOf(tt.entries, tt.size)); len(got) != tt.want {
			t.Errorf("of %d entries of %d bytes %d are sent, want %d", tt.entries, tt.size, len(got), tt.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		m, l := startMux(t)
		echo(t, m.Transport("shard-0"))
		trans := peerOf(t, l, "c", "n2").Transport("shard-0")
		defer func() { _ = trans.Close() }()
		req := &raft.AppendEntriesRequest{Term: 7, Entries: entriesOf(3, EntryBytesMax)}
		for _, e := range req.Entries {
			e.Term = 7
		}
		if err := trans.AppendEntries("n1.1", "n1.1", req, &raft.AppendEntriesResponse{}); err != nil ||
			len(req.Entries) != 1 {
			t.Errorf("%d entries are left in the request, %v", len(req.Entries), err)
		}
		if f := trans.followers["n1.1"]; f.Index != 1 || f.Term != 7 {
			t.Errorf("of the follower is known %+v", f)
		}
	})
}
