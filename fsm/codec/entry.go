package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"github.com/belfrydb/belfry/fsm"
	"hash/crc32"
)

// The log entry:
//
//	byte     Format
//	varint   stamp
//	uvarint  number of requests, then each:
//	           text caller, text request id, from format 3 on text client,
//	           uvarint number of commands, uvarint bytes of the commands,
//	           then each command: byte Kind, uvarint bytes of the rest, rest
//	4 bytes  CRC32C of all before, little-endian
//
// A text is a uvarint length and its bytes. From format 3 on, tagged fields may follow the fields of
// a command; see keys.go.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendRequest is AppendRequestIn for FirstFormat.
func AppendRequest(dst []byte, r *fsm.Request) []byte {
	return AppendRequestIn(dst, fsm.FirstFormat, r)
}

// AppendRequestIn appends the encoding of r to dst. What the format does not have is left out.
func AppendRequestIn(dst []byte, format fsm.Format, r *fsm.Request) []byte {
	dst = AppendText(dst, r.Caller)
	dst = AppendText(dst, r.ID)
	if format >= 3 {
		dst = AppendText(dst, r.Client)
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.Commands)))
	start, room := len(dst), min(len(r.Commands), 2)
	dst = append(dst, make([]byte, room)...)
	return SetLength(appendCommands(dst, r.Commands), start, room)
}

func appendCommands(dst []byte, commands []fsm.Command) []byte {
	room := 1 // neighbours are often about as long
	for _, c := range commands {
		dst = append(dst, byte(c.Kind()))
		start := len(dst)
		dst = append(dst, make([]byte, room)...)
		dst = SetLength(appendCommand(dst, c), start, room)
		_, room = binary.Uvarint(dst[start:])
	}
	return dst
}

// AppendEntry is AppendEntryIn for FirstFormat, which every program reads.
func AppendEntry(dst []byte, stamp fsm.Time, requests [][]byte) []byte {
	return AppendEntryIn(dst, fsm.FirstFormat, stamp, requests)
}

// AppendEntryIn appends a log entry of encoded requests to dst. It may be called from any
// goroutine.
func AppendEntryIn(dst []byte, format fsm.Format, stamp fsm.Time, requests [][]byte) []byte {
	start := len(dst)
	dst = append(dst, byte(format))
	dst = binary.AppendVarint(dst, int64(stamp))
	dst = binary.AppendUvarint(dst, uint64(len(requests)))
	for _, r := range requests {
		dst = append(dst, r...)
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// ParseRequest reads back what AppendRequestIn wrote. The bodies of puts alias b; nothing else does.
// Errors wrap ErrDamaged or ErrVersion.
func ParseRequest(b []byte, format fsm.Format) (*fsm.Request, error) {
	e := Entry{r: NewReader(b), Format: format, scratch: &Scratch{}}
	h := e.NextRequest()
	req := &fsm.Request{Caller: h.Caller, ID: h.ID, Client: h.Client}
	if rest := len(e.r.B) - len(h.Encoded); e.r.err == nil && rest > 0 {
		e.r.Damaged("bytes after the end")
	}
	req.Commands = e.ownCommands(h.Commands)
	if err := e.r.CheckEnd(); err != nil {
		return nil, err
	}
	return req, nil
}

// DecodeEntry reads a log entry back. The bodies of puts alias entry; nothing else does. Errors
// wrap ErrDamaged or ErrVersion.
func DecodeEntry(entry []byte) (fsm.Time, []fsm.Request, error) {
	e, err := OpenEntry(entry, &Scratch{})
	if err != nil {
		return 0, nil, err
	}
	requests := make([]fsm.Request, e.Requests)
	for i := range requests {
		r := e.NextRequest()
		requests[i] = fsm.Request{Caller: r.Caller, ID: r.ID, Client: r.Client, Commands: e.ownCommands(r.Commands)}
	}
	return e.Stamp, requests, nil
}

// Entry walks over an entry that was found sound from end to end when it was opened, so that no
// command is carried out of an entry of which a later part cannot be read.
type Entry struct {
	r        Reader
	Format   fsm.Format
	Stamp    fsm.Time
	Requests int
	Commands int // in all requests
	scratch  *Scratch
}

// RequestHead is what comes before the commands of a request.
type RequestHead struct {
	Caller, ID, Client string
	Commands           int
	Encoded            []byte // the commands
}

// OpenEntry begins to read an entry. The commands that are read are in scratch, each until the next
// of its kind.
func OpenEntry(entry []byte, scratch *Scratch) (Entry, error) {
	if len(entry) < 5 {
		return Entry{}, fmt.Errorf("%w: %d bytes", fsm.ErrDamaged, len(entry))
	}
	body, tail := entry[:len(entry)-4], entry[len(entry)-4:]
	if got, want := crc32.Checksum(body, castagnoli), binary.LittleEndian.Uint32(tail); got != want {
		return Entry{}, fmt.Errorf("%w: checksum is %08x, should be %08x", fsm.ErrDamaged, got, want)
	}
	format := fsm.Format(body[0])
	if err := format.Readable(); err != nil {
		return Entry{}, fmt.Errorf("log entry: %w", err)
	}
	e := Entry{r: NewReader(body[1:]), Format: format, scratch: scratch}
	e.Stamp = fsm.Time(e.r.Varint())
	e.Requests = e.r.Length(3)
	check := e
	check.r.dry = true
	for range e.Requests {
		r := check.NextRequest()
		e.Commands += r.Commands
		for range r.Commands {
			if check.NextCommand() == nil {
				break
			}
		}
		if check.r.err != nil {
			return Entry{}, check.r.err
		}
	}
	if check.r.err != nil || e.r.err != nil {
		return Entry{}, errors.Join(e.r.err, check.r.err)
	}
	if len(check.r.B) != 0 {
		return Entry{}, fmt.Errorf("%w: %d bytes after the last request", fsm.ErrDamaged, len(check.r.B))
	}
	return e, nil
}

// NextRequest reads the head of the next request; its commands follow.
func (e *Entry) NextRequest() RequestHead {
	h := RequestHead{Caller: e.r.ownText(), ID: e.r.ownText()}
	if e.Format >= 3 {
		h.Client = e.r.Text()
	}
	h.Commands = e.r.Length(2)
	h.Encoded = e.r.peek(e.r.Length(1))
	return h
}

// Skip passes over the commands of the request at hand.
func (e *Entry) Skip(encoded []byte) { e.r.NextBytes(len(encoded)) }

// NextCommand returns the next command, nil after an error. It is overwritten by the next command
// of its kind.
func (e *Entry) NextCommand() fsm.Command {
	kind := fsm.Kind(e.r.Byte())
	n := e.r.Length(1)
	if e.r.err != nil {
		return nil
	}
	rest := len(e.r.B) - n
	var c fsm.Command
	if kind.Format() <= e.Format {
		c = e.scratch.read(kind, &e.r)
	}
	if c == nil {
		e.r.fail(fmt.Errorf("%w: command kind %d", fsm.ErrVersion, kind))
	} else if e.r.err == nil && e.Format >= FieldsFormat && len(e.r.B) > rest {
		e.fields(c, len(e.r.B)-rest)
	} else if e.r.err == nil && len(e.r.B) != rest {
		e.r.fail(fmt.Errorf("%w: command kind %d is not %d bytes long", fsm.ErrDamaged, kind, n))
	}
	if e.r.err == nil && e.Format < fsm.FIFOFormat && fsm.FormatOfCommand(c) >= fsm.FIFOFormat {
		e.r.fail(fmt.Errorf("%w: command kind %d with what format %d adds", fsm.ErrVersion, kind, fsm.FIFOFormat))
	}
	if e.r.err != nil {
		return nil
	}
	return c
}

// fields reads the tagged fields at the end of a command, which take n bytes.
func (e *Entry) fields(c fsm.Command, n int) {
	r := Reader{B: e.r.NextBytes(n), dry: e.r.dry}
	if e.Format >= fsm.KeysFormat {
		r.commandFields(c)
	} else {
		r.laterTag(fmt.Sprintf("command kind %d", c.Kind()), r.Uvarint())
	}
	if r.err != nil {
		e.r.fail(r.err)
	}
}

// ownCommands returns the next n commands; they are the caller's. After an error some are missing.
func (e *Entry) ownCommands(n int) []fsm.Command {
	if n == 0 {
		return nil
	}
	list := make([]fsm.Command, 0, n)
	for range n {
		c := e.NextCommand()
		if c == nil {
			break
		}
		list = append(list, e.scratch.own(c))
	}
	return list
}
