package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// The log entry:
//
//	byte     Format
//	varint   stamp
//	uvarint  number of requests, then each:
//	           text caller, text request id, uvarint number of commands, uvarint bytes of the commands,
//	           then each command: byte Kind, uvarint bytes of the rest, rest
//	4 bytes  CRC32C of all before, little-endian
//
// A text is a uvarint length and its bytes. Fields of a command are only ever added at its end, in a new Format.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrDamaged is wrapped by every error about bytes that are not what an encoder of this package wrote.
var ErrDamaged = errors.New("damaged")

// ErrVersion is wrapped by every error about bytes that a later version of this package wrote.
var ErrVersion = errors.New("written by a later version")

// AppendRequest appends the encoding of r to dst.
func AppendRequest(dst []byte, r *Request) []byte {
	dst = appendText(dst, r.Caller)
	dst = appendText(dst, r.ID)
	dst = binary.AppendUvarint(dst, uint64(len(r.Commands)))
	start, room := len(dst), min(len(r.Commands), 2)
	dst = append(dst, make([]byte, room)...)
	return setLength(appendCommands(dst, r.Commands), start, room)
}

func appendCommands(dst []byte, commands []Command) []byte {
	room := 1 // neighbours are often about as long
	for _, c := range commands {
		dst = append(dst, byte(c.Kind()))
		start := len(dst)
		dst = append(dst, make([]byte, room)...)
		dst = setLength(appendCommand(dst, c), start, room)
		_, room = binary.Uvarint(dst[start:])
	}
	return dst
}

// lengthBytes is how many bytes a length takes as a uvarint.
func lengthBytes(n int) int {
	var b [binary.MaxVarintLen64]byte
	return binary.PutUvarint(b[:], uint64(n))
}

// setLength sets the length of all that follows the room for it, which begins at start. What follows is moved where the room is not just as large as it must be.
func setLength(dst []byte, start, room int) []byte {
	n := len(dst) - start - room
	w := lengthBytes(n)
	if w > room {
		dst = append(dst, make([]byte, w-room)...)
	}
	if w != room {
		copy(dst[start+w:], dst[start+room:start+room+n])
	}
	binary.PutUvarint(dst[start:], uint64(n))
	return dst[:start+w+n]
}

// AppendEntry is AppendEntryIn for FirstFormat, which every program reads.
func AppendEntry(dst []byte, stamp Time, requests [][]byte) []byte {
	return AppendEntryIn(dst, FirstFormat, stamp, requests)
}

// AppendEntryIn appends a log entry of encoded requests to dst. It may be called from any goroutine.
func AppendEntryIn(dst []byte, format Format, stamp Time, requests [][]byte) []byte {
	start := len(dst)
	dst = append(dst, byte(format))
	dst = binary.AppendVarint(dst, int64(stamp))
	dst = binary.AppendUvarint(dst, uint64(len(requests)))
	for _, r := range requests {
		dst = append(dst, r...)
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// ParseRequest reads back what AppendRequest wrote. The bodies of puts alias b; nothing else does. Errors wrap ErrDamaged or ErrVersion.
func ParseRequest(b []byte) (*Request, error) {
	e := entryReader{r: newReader(b), scratch: &commandScratch{}}
	h := e.nextRequest()
	req := &Request{Caller: h.caller, ID: h.id}
	if rest := len(e.r.b) - len(h.encoded); e.r.err == nil && rest > 0 {
		e.r.damaged("bytes after the end")
	}
	req.Commands = e.ownCommands(h.commands)
	if err := e.r.checkEnd(); err != nil {
		return nil, err
	}
	return req, nil
}

// DecodeEntry reads a log entry back. The bodies of puts alias entry; nothing else does. Errors wrap ErrDamaged or ErrVersion.
func DecodeEntry(entry []byte) (Time, []Request, error) {
	e, err := openEntry(entry, &commandScratch{})
	if err != nil {
		return 0, nil, err
	}
	requests := make([]Request, e.requests)
	for i := range requests {
		r := e.nextRequest()
		requests[i] = Request{Caller: r.caller, ID: r.id, Commands: e.ownCommands(r.commands)}
	}
	return e.stamp, requests, nil
}

// entryReader walks over an entry that was found sound from end to end when it was opened, so that no command is carried
// out of an entry of which a later part cannot be read.
type entryReader struct {
	r        reader
	format   Format
	stamp    Time
	requests int
	commands int // in all requests
	scratch  *commandScratch
}

type requestHeader struct {
	caller, id string
	commands   int
	encoded    []byte // the commands
}

// openEntry begins to read an entry. The commands that are read are in scratch, each until the next of its kind.
func openEntry(entry []byte, scratch *commandScratch) (entryReader, error) {
	if len(entry) < 5 {
		return entryReader{}, fmt.Errorf("%w: %d bytes", ErrDamaged, len(entry))
	}
	body, tail := entry[:len(entry)-4], entry[len(entry)-4:]
	if got, want := crc32.Checksum(body, castagnoli), binary.LittleEndian.Uint32(tail); got != want {
		return entryReader{}, fmt.Errorf("%w: checksum is %08x, should be %08x", ErrDamaged, got, want)
	}
	format := Format(body[0])
	if err := format.Readable(); err != nil {
		return entryReader{}, fmt.Errorf("log entry: %w", err)
	}
	e := entryReader{r: newReader(body[1:]), format: format, scratch: scratch}
	e.stamp = Time(e.r.varint())
	e.requests = e.r.length(3)
	check := e
	check.r.dry = true
	for range e.requests {
		r := check.nextRequest()
		e.commands += r.commands
		for range r.commands {
			if check.nextCommand() == nil {
				break
			}
		}
		if check.r.err != nil {
			return entryReader{}, check.r.err
		}
	}
	if check.r.err != nil || e.r.err != nil {
		return entryReader{}, errors.Join(e.r.err, check.r.err)
	}
	if len(check.r.b) != 0 {
		return entryReader{}, fmt.Errorf("%w: %d bytes after the last request", ErrDamaged, len(check.r.b))
	}
	return e, nil
}

func (e *entryReader) nextRequest() requestHeader {
	h := requestHeader{caller: e.r.ownText(), id: e.r.ownText()}
	h.commands = e.r.length(2)
	h.encoded = e.r.peek(e.r.length(1))
	return h
}

// skip passes over the commands of the request at hand.
func (e *entryReader) skip(encoded []byte) { e.r.nextBytes(len(encoded)) }

// nextCommand returns the next command, nil after an error. It is overwritten by the next command of its kind.
func (e *entryReader) nextCommand() Command {
	kind := Kind(e.r.byte())
	n := e.r.length(1)
	if e.r.err != nil {
		return nil
	}
	rest := len(e.r.b) - n
	c := e.scratch.read(kind, &e.r)
	if c == nil {
		e.r.fail(fmt.Errorf("%w: command kind %d", ErrVersion, kind))
	} else if e.r.err == nil && len(e.r.b) != rest {
		e.r.fail(fmt.Errorf("%w: command kind %d is not %d bytes long", ErrDamaged, kind, n))
	}
	if e.r.err != nil {
		return nil
	}
	return c
}

// ownCommands returns the next n commands; they are the caller's. After an error some are missing.
func (e *entryReader) ownCommands(n int) []Command {
	if n == 0 {
		return nil
	}
	list := make([]Command, 0, n)
	for range n {
		c := e.nextCommand()
		if c == nil {
			break
		}
		list = append(list, e.scratch.own(c))
	}
	return list
}

// reader takes values off the front of b. After the first error every value is zero. Of a reader that newReader made, a text that equals the last
// one is the same string, since one queue is named in most commands of an entry, and others are parts of s, a copy of all that is made for the
// first of them: texts cost no allocation each.
type reader struct {
	b, all []byte
	s      string
	last   string
	dry    bool // texts are passed over
	err    error
}

func newReader(b []byte) reader { return reader{b: b, all: b} }

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

func (r *reader) damaged(what string) {
	r.fail(fmt.Errorf("%w: %s, %d bytes before the end", ErrDamaged, what, len(r.b)))
}

// nextBytes returns the next n bytes, which alias b.
func (r *reader) nextBytes(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.damaged("value cut short")
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) peek(n int) []byte {
	if n > len(r.b) {
		r.damaged("value cut short")
		return nil
	}
	return r.b[:n:n]
}

func (r *reader) byte() byte {
	if b := r.nextBytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) flag() bool {
	switch b := r.byte(); b {
	case 0, 1:
		return b == 1
	default:
		r.damaged("flag is neither 0 nor 1")
		return false
	}
}

func (r *reader) uvarint() uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 { // most are
		v := r.b[0]
		r.b = r.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.damaged("number cut short or too long")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.damaged("number cut short or too long")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) uint32() uint32 {
	v := r.uvarint()
	if v > 1<<32-1 {
		r.damaged("number above 32 bits")
		return 0
	}
	return uint32(v)
}

func (r *reader) uint64() uint64 {
	if b := r.nextBytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) time() Time { return Time(r.duration()) }

func (r *reader) duration() time.Duration {
	v := r.uvarint()
	if v > 1<<63-1 {
		r.damaged("time out of range")
		return 0
	}
	return time.Duration(v)
}

// length reads a count of things of at least size bytes each, so that no damaged count makes the reader allocate.
func (r *reader) length(size int) int {
	v := r.uvarint()
	if v > uint64(len(r.b)/size) {
		r.damaged("count beyond the end")
		return 0
	}
	return int(v)
}

func (r *reader) text() string {
	n := r.length(1)
	b := r.nextBytes(n)
	if len(b) == 0 || r.dry {
		return ""
	}
	if string(b) == r.last {
		return r.last
	}
	if r.all == nil || r.last == "" {
		r.last = string(b)
		return r.last
	}
	if r.s == "" {
		r.s = string(r.all)
	}
	end := len(r.s) - len(r.b)
	r.last = r.s[end-n : end]
	return r.last
}

// ownText is text for one that is unlike the others of its input.
func (r *reader) ownText() string {
	if b := r.bytes(); !r.dry {
		return string(b)
	}
	return ""
}

// bytes reads a length and that many bytes, aliasing the input.
func (r *reader) bytes() []byte { return r.nextBytes(r.length(1)) }

func (r *reader) durations() []time.Duration {
	n := r.length(1)
	if n == 0 {
		return nil
	}
	list := make([]time.Duration, n)
	for i := range list {
		list[i] = r.duration()
	}
	return list
}

func (r *reader) headers() []Header {
	n := r.length(2)
	if n == 0 {
		return nil
	}
	list := make([]Header, n)
	for i := range list {
		list[i] = Header{Name: r.text(), Value: r.text()}
	}
	return list
}

func (r *reader) array16() (a [16]byte) {
	copy(a[:], r.nextBytes(16))
	return a
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// unsigned makes a negative time or duration 0, so that no caller's mistake ends as an entry that no replica can read.
func unsigned[T ~int64](v T) uint64 { return uint64(max(v, 0)) }

func appendFlag(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendDurations(dst []byte, list []time.Duration) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, d := range list {
		dst = binary.AppendUvarint(dst, unsigned(d))
	}
	return dst
}

func appendHeaders(dst []byte, list []Header) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, h := range list {
		dst = appendText(appendText(dst, h.Name), h.Value)
	}
	return dst
}
