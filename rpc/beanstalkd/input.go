package beanstalkd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/belfrydb/belfry/rpc/beanstalkd/protocol"
)

// bufferBytes is the size of a connection's buffer. A larger one is made for a larger job.
const bufferBytes = 8 << 10

// lineEnd ends each line and each body.
const lineEnd = "\r\n"

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0) //nolint:gochecknoglobals // a constant

// input is what a connection has read and not carried out yet.
type input struct {
	buffer []byte // the memory of data
	data   []byte
	// need is how many bytes of data the command has that is at the start, 0 if that is not known.
	need int
	// ended says that the client sends no more.
	ended bool
	// skip is how many bytes of a body are still to be dropped; then refused is the answer. skipLine
	// drops the rest of a line that was too long.
	skip     int
	skipLine bool
	refused  string
	// limited says that reads have a deadline.
	limited bool
}

// found says what is at the start of an input.
type found int

const (
	nothing found = iota // more bytes must come first
	refusal              // bytes that were wrong and are dropped; input.refused is the answer
	command              // a command, and its body if it is a put
)

// next takes what is at the start. Tube and body alias the input until more is read.
func (in *input) next(d *Door) (cmd protocol.Command, body []byte, what found) {
	in.need = 0
	if in.skip > 0 || in.skipLine {
		if !in.drop() {
			return cmd, nil, nothing
		}
		if in.refused != "" {
			return cmd, nil, refusal
		}
	}
	end := bytes.Index(in.data[:min(len(in.data), protocol.LineBytesMax)], []byte(lineEnd))
	if end < 0 && len(in.data) < protocol.LineBytesMax {
		return cmd, nil, nothing
	}
	if end < 0 {
		in.skipLine, in.refused = true, "" // the answer is this one
		return cmd, nil, in.refuse(0, protocol.BadFormat)
	}
	cmd, wrong := protocol.Parse(in.data[:end])
	line := end + len(lineEnd)
	if wrong != "" {
		return cmd, nil, in.refuse(line, wrong)
	}
	if cmd.Op == protocol.Put {
		return in.nextPut(d, cmd, line)
	}
	in.data = in.data[line:]
	return cmd, nil, command
}

// refuse drops n bytes.
func (in *input) refuse(n int, answer string) found {
	in.data, in.refused = in.data[n:], answer
	return refusal
}

// drop drops bytes of a body or a line that was refused. It reports whether it has dropped all.
func (in *input) drop() bool {
	if in.skip > 0 {
		n := min(in.skip, len(in.data))
		in.data, in.skip = in.data[n:], in.skip-n
		return in.skip == 0
	}
	end := bytes.Index(in.data, []byte(lineEnd))
	if end < 0 {
		in.data = in.data[max(0, len(in.data)-1):] // the last byte may begin the end of the line
		return false
	}
	in.data, in.skipLine, in.refused = in.data[end+len(lineEnd):], false, ""
	return true
}

// nextPut takes a put, whose line has so many bytes, with its body.
func (in *input) nextPut(d *Door, cmd protocol.Command, line int) (protocol.Command, []byte, found) {
	size := int(cmd.BodyBytes)
	refused := ""
	switch {
	case size > d.cfg.JobBytesMax:
		refused = protocol.JobTooBig
	case d.cfg.Drain.HasStarted():
		refused = protocol.Draining
	}
	if refused != "" {
		in.data, in.skip, in.refused = in.data[line:], size+len(lineEnd), refused
		if in.drop() {
			return cmd, nil, refusal
		}
		return cmd, nil, nothing
	}
	whole := line + size + len(lineEnd)
	if len(in.data) < whole {
		in.need = whole
		return cmd, nil, nothing
	}
	body, end := in.data[line:line+size], in.data[line+size:whole]
	if string(end) != lineEnd {
		return cmd, nil, in.refuse(whole, protocol.ExpectedCRLF)
	}
	in.data = in.data[whole:]
	return cmd, body, command
}

// makeRoom makes room for more of the command that has begun. It makes no more than about as much as
// has come, since a client may announce a body and never send it. A large buffer is dropped once it is
// empty.
func (in *input) makeRoom() {
	if len(in.data) == 0 {
		if cap(in.buffer) > bufferBytes {
			in.buffer = nil
		}
		in.data = in.buffer[:0]
	}
	need := len(in.data) + 1
	if in.need > 0 {
		need = max(need, min(in.need, max(bufferBytes, 2*len(in.data))))
	}
	switch {
	case need <= cap(in.data):
	case need <= cap(in.buffer):
		in.data = append(in.buffer[:0], in.data...)
	default:
		in.buffer = make([]byte, 0, max(bufferBytes, need))
		in.data = append(in.buffer, in.data...)
	}
}

// read reads more from a connection. A client that closes its side ends the input.
func (in *input) read(from net.Conn) error {
	in.makeRoom()
	n, err := from.Read(in.data[len(in.data):cap(in.data)])
	in.data = in.data[:len(in.data)+n]
	switch {
	case errors.Is(err, io.EOF):
		in.ended = true
	case err != nil && n == 0:
		return fmt.Errorf("reading from a beanstalkd client: %w", err)
	}
	return nil
}

// fill waits for more bytes. A client that has begun a command must go on in time.
func (c *conn) fill() error {
	if begun := len(c.in.data) > 0 || c.in.skip > 0 || c.in.skipLine; begun || c.in.limited {
		deadline := time.Time{}
		if begun {
			deadline = time.Now().Add(c.door.cfg.SendWait)
		}
		if err := c.setReadDeadline(deadline); err != nil {
			return err
		}
		c.in.limited = begun
	}
	return c.in.read(c.net)
}

// setReadDeadline sets the deadline of reads, unless all reads are to end.
func (c *conn) setReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.interrupted || c.readStopped {
		t = longAgo
	}
	if err := c.net.SetReadDeadline(t); err != nil {
		return fmt.Errorf("limiting the time of a command: %w", err)
	}
	return nil
}

// stopReading ends all reads, or allows them again.
func (c *conn) stopReading(stop bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readStopped = stop; stop {
		_ = c.net.SetReadDeadline(longAgo) // a connection that is closed needs none
	}
}

// answer gives a fixed answer.
func (c *conn) answer(text string) { c.out = append(c.out, text...) }

// flush writes the answers.
func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	if err := c.net.SetWriteDeadline(time.Now().Add(c.door.cfg.SendWait)); err != nil {
		return fmt.Errorf("limiting the time of an answer: %w", err)
	}
	_, err := c.net.Write(c.out)
	if c.out = c.out[:0]; cap(c.out) > answersBytesMax {
		c.out = nil
	}
	if err != nil {
		return fmt.Errorf("answering a beanstalkd client: %w", err)
	}
	return nil
}
