package peer

import (
	"fmt"
	"net"
	"time"
)

// progressBytes is how much of a snapshot a peer must send or take in each rpcTimeout. Raft's own
// deadline for a snapshot assumes the same rate.
const progressBytes = 256 << 10

// inboundConn is an accepted connection of a Raft group. The library reads its messages without a
// deadline or a limit. It answers each message before it reads the next. inboundConn adds:
//
//   - the first byte of a message may take for ever, because the peer keeps connections for later
//     use; the rest of the message has rpcTimeout;
//   - messageScan finds a message that is too large before it is decoded;
//   - a snapshot, which follows its message, has rpcTimeout for each progressBytes, and may be as
//     large as the room on the disk;
//   - a write has rpcTimeout, so that a peer that does not read cannot hold a goroutine.
//
// Only time spent waiting for the peer counts. One goroutine at a time uses it: that of the
// connection, and while that waits for an answer, Raft's.
type inboundConn struct {
	*framedConn
	scan     messageScan
	timeLeft time.Duration // left for the message, or for the next progressBytes of a snapshot
	progress int64         // bytes of the snapshot since timeLeft was renewed
	snapshot int64         // bytes that the snapshot may still have
}

// newInboundConn returns conn with limits.
func newInboundConn(conn *framedConn) net.Conn {
	c := &inboundConn{framedConn: conn}
	c.reset()
	return c
}

// reset prepares for the next message.
func (c *inboundConn) reset() {
	c.scan, c.timeLeft, c.progress, c.snapshot = messageScan{}, rpcTimeout, 0, 0
}

// Read enforces the limits. An error closes the connection at once. The library answers a snapshot
// that failed; if it did so on an open connection, it would take the rest of the snapshot for a
// message.
func (c *inboundConn) Read(p []byte) (int, error) {
	n, err := c.read(p)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

func (c *inboundConn) read(p []byte) (int, error) {
	if !c.scan.begun {
		if err := c.await(); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	if err := c.framedConn.SetReadDeadline(start.Add(c.timeLeft)); err != nil {
		return 0, fmt.Errorf("setting a deadline for a peer's message: %w", err)
	}
	n, err := c.framedConn.Read(p)
	c.timeLeft -= time.Since(start)
	if broken := c.follow(p[:n]); broken != nil {
		return 0, fmt.Errorf("from server %q: %w", c.peer, broken)
	}
	return n, err
}

// await waits for the first byte of a message's first frame.
func (c *inboundConn) await() error {
	if err := c.framedConn.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("waiting for a peer's message: %w", err)
	}
	return c.in.await()
}

// follow checks what was read against the limits.
func (c *inboundConn) follow(p []byte) error {
	if !c.scan.ended {
		used, err := c.scan.feed(p)
		if err != nil {
			return err
		}
		if p = p[used:]; c.scan.ended && c.scan.kind == kindInstallSnapshot {
			c.timeLeft, c.snapshot = rpcTimeout, int64(min(c.mux.cfg.Room(), 1<<62))
		}
	}
	if len(p) == 0 {
		return nil
	}
	if c.scan.kind != kindInstallSnapshot {
		return fmt.Errorf("%d bytes after a message that was not answered yet", len(p))
	}
	if c.snapshot -= int64(len(p)); c.snapshot < 0 {
		return fmt.Errorf("a snapshot that is larger than the room on the disk")
	}
	if c.progress += int64(len(p)); c.progress >= progressBytes {
		c.timeLeft, c.progress = rpcTimeout, 0
	}
	return nil
}

// Write sends an answer, after which the next message may come.
func (c *inboundConn) Write(p []byte) (int, error) {
	if err := c.framedConn.SetWriteDeadline(time.Now().Add(rpcTimeout)); err != nil {
		return 0, fmt.Errorf("setting a deadline for the answer to a peer: %w", err)
	}
	c.reset()
	return c.framedConn.Write(p)
}

// outboundConn is a dialled connection of a Raft group. The library sets a deadline for each
// message with its answer, but no limit for the answer, and a deadline of hours for a snapshot.
// outboundConn limits the size of the answer. It bounds each write by rpcTimeout, so that a peer
// that takes no more is noticed soon. One goroutine at a time uses it.
type outboundConn struct {
	*framedConn
	deadline time.Time
	answer   int64 // bytes read since the last write
}

// SetDeadline sets the deadline for reads, and the latest one for writes.
func (c *outboundConn) SetDeadline(t time.Time) error {
	c.deadline = t
	return c.framedConn.SetDeadline(t)
}

// Write sends a part of a message.
func (c *outboundConn) Write(p []byte) (int, error) {
	soon := time.Now().Add(rpcTimeout)
	if !c.deadline.IsZero() && c.deadline.Before(soon) {
		soon = c.deadline
	}
	if err := c.framedConn.SetWriteDeadline(soon); err != nil {
		return 0, fmt.Errorf("setting a deadline for a message: %w", err)
	}
	c.answer = 0
	return c.framedConn.Write(p)
}

// Read reads a part of an answer.
func (c *outboundConn) Read(p []byte) (int, error) {
	n, err := c.framedConn.Read(p)
	if c.answer += int64(n); c.answer > replyBytesMax {
		return 0, fmt.Errorf("server %q answers with more than %d bytes", c.peer, replyBytesMax)
	}
	return n, err
}
