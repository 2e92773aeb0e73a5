package codec

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/belfrydb/belfry/fsm"
)

// ContentHash is the identity of what a Put asks for: body, headers and options as written. Two
// puts with the same id and the same content hash are the same put. Headers that carry a trace are
// no part of it: a repeat belongs to a trace of its own.
func ContentHash(p *fsm.Put) [16]byte {
	if slices.ContainsFunc(p.Headers, fsm.CarriesTrace) {
		asked := *p
		asked.Headers = slices.DeleteFunc(slices.Clone(p.Headers), fsm.CarriesTrace)
		p = &asked
	}
	var room [512]byte // enough for a small job, so that its hash is no garbage
	content := appendContent(room[:0], p)
	if p.Key != "" {
		content = AppendText(content, p.Key)
	}
	return hashOf(content)
}

// RequestHash is the identity of a request's commands.
func RequestHash(r *fsm.Request) [16]byte { return EncodedHash(appendCommands(nil, r.Commands)) }

// EncodedHash is RequestHash of encoded commands. The next firing that a PutSchedule names, and how it was
// found, are no part of it: an attempt that comes later finds another one.
func EncodedHash(commands []byte) [16]byte {
	if len(commands) > 0 && fsm.Kind(commands[0]) == fsm.KindPutSchedule {
		r := Reader{B: commands[1:]}
		r.Length(1)
		put, ok := readScheduleCommand(fsm.KindPutSchedule, &r).(*fsm.PutSchedule)
		if ok && r.err == nil && len(r.B) == 0 {
			put.Next, put.NextAfter, put.ZoneData = 0, 0, ""
			commands = appendCommands(nil, []fsm.Command{put})
		}
	}
	return hashOf(commands)
}

func hashOf(encoded []byte) [16]byte {
	sum := sha256.Sum256(encoded)
	return [16]byte(sum[:16])
}

// RecallOf returns the query for the jobs that an earlier attempt at req was granted.
func RecallOf(req *fsm.Request) *fsm.RecallQuery {
	return &fsm.RecallQuery{Caller: req.Caller, RequestID: req.ID, Content: RequestHash(req)}
}

// AnswerBytes is what an answer counts against Config.AnswersBytesMax: its encoded size and 64
// bytes of overhead.
func AnswerBytes(a *fsm.Answer) int64 { return int64(len(AppendAnswer(nil, a))) + AnswerOverheadBytes }

// AnswerOverheadBytes is what a remembered request counts besides its encoded bytes.
const AnswerOverheadBytes = 64

// The content of a put. A content that needs fsm.FIFOFormat has contentExtended in the byte of its
// options, and a byte of the flags below after it. If contentWide is among them, the priority is a
// uvarint rank instead of a byte.
const (
	contentExtended = 1 << 7
	contentWide     = 1 << 0
	contentFIFO     = 1 << 1
)

// appendContent appends what ContentHash covers: options as written, headers, body. The form must
// never change without a new version of the hash, since remembered hashes are compared with it.
func appendContent(dst []byte, p *fsm.Put) []byte {
	given, extension := byte(p.Given)&^contentExtended, contentExtension(p)
	if extension != 0 {
		given |= contentExtended
	}
	if dst = append(dst, given); extension != 0 {
		dst = append(dst, extension)
	}
	if p.Given.Has(fsm.GivenDelay) {
		dst = binary.AppendUvarint(dst, Unsigned(p.Delay))
	}
	if p.Given.Has(fsm.GivenDueAt) {
		dst = binary.AppendUvarint(dst, Unsigned(p.DueAt))
	}
	if p.Given.Has(fsm.GivenTTR) {
		dst = binary.AppendUvarint(dst, Unsigned(p.TTR))
	}
	if p.Given.Has(fsm.GivenTTL) {
		dst = binary.AppendUvarint(dst, Unsigned(p.TTL))
	}
	switch {
	case extension&contentWide != 0:
		dst = binary.AppendUvarint(dst, uint64(fsm.RankOf(p.Priority)))
	case p.Given.Has(fsm.GivenPriority):
		dst = append(dst, byte(p.Priority))
	}
	if p.Given.Has(fsm.GivenMaxAttempts) {
		dst = binary.AppendUvarint(dst, uint64(p.MaxAttempts))
	}
	if p.Given.Has(fsm.GivenRetryDelays) {
		dst = AppendDurations(dst, p.RetryDelays)
	}
	dst = AppendHeaders(dst, p.Headers)
	return append(binary.AppendUvarint(dst, uint64(len(p.Body))), p.Body...)
}

func contentExtension(p *fsm.Put) (flags byte) {
	if p.Given.Has(fsm.GivenPriority) && fsm.IsWide(p.Priority) {
		flags |= contentWide
	}
	if p.FIFO {
		flags |= contentFIFO
	}
	return flags
}

// content reads what appendContent appended.
func (r *Reader) content(p *fsm.Put) {
	given := r.Byte()
	extension := byte(0)
	if p.Given = fsm.Given(given &^ contentExtended); given&contentExtended != 0 {
		extension = r.extension(p.Given)
	}
	if p.Given.Has(fsm.GivenDelay) {
		p.Delay = r.duration()
	}
	if p.Given.Has(fsm.GivenDueAt) {
		p.DueAt = r.Time()
	}
	if p.Given.Has(fsm.GivenTTR) {
		p.TTR = r.duration()
	}
	if p.Given.Has(fsm.GivenTTL) {
		p.TTL = r.duration()
	}
	switch {
	case extension&contentWide != 0:
		p.Priority = r.wide()
	case p.Given.Has(fsm.GivenPriority):
		p.Priority = int64(int8(r.Byte()))
	}
	if p.Given.Has(fsm.GivenMaxAttempts) {
		p.MaxAttempts = r.Uint32()
	}
	if p.Given.Has(fsm.GivenRetryDelays) {
		p.RetryDelays = r.durations()
	}
	p.FIFO = extension&contentFIFO != 0
	p.Headers = r.headers()
	p.Body = r.Bytes()
}

// extension reads the flags of a content that needs fsm.FIFOFormat.
func (r *Reader) extension(given fsm.Given) byte {
	flags := r.Byte()
	switch {
	case flags&^(contentWide|contentFIFO) != 0:
		r.fail(fmt.Errorf("%w: content with flags %08b", fsm.ErrVersion, flags))
	case flags == 0 || flags&contentWide != 0 && !given.Has(fsm.GivenPriority):
		r.Damaged("content that says it has more and does not")
	}
	return flags
}
