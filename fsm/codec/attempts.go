package codec

import (
	"encoding/binary"
	"fmt"

	"github.com/belfrydb/belfry/fsm"
)

// attemptBytesMin is the least bytes of an attempt.
const attemptBytesMin = 6

// AppendAttempts appends attempts, nothing if there are none. Of each: uvarint number, began, ended;
// flag lapsed; text client, text error.
func AppendAttempts(dst []byte, list []fsm.Attempt) []byte {
	for i := range list {
		a := &list[i]
		for _, v := range [...]uint64{uint64(a.Number), Unsigned(a.Began), Unsigned(a.Ended)} {
			dst = binary.AppendUvarint(dst, v)
		}
		dst = AppendText(AppendText(appendFlag(dst, a.Lapsed), a.Client), a.Error)
	}
	return dst
}

// Attempts reads all attempts that are left.
func (r *Reader) Attempts() []fsm.Attempt {
	if len(r.B) == 0 {
		return nil
	}
	list := make([]fsm.Attempt, 0, min(fsm.AttemptsKept, len(r.B)/attemptBytesMin))
	for len(r.B) > 0 {
		list = append(list, fsm.Attempt{
			Number: r.Uint32(), Began: r.Time(), Ended: r.Time(), Lapsed: r.flag(), Client: r.Text(), Error: r.Text(),
		})
	}
	if len(list) > fsm.AttemptsKept {
		r.Damaged("too many attempts")
	}
	return list
}

// ParseAttempts reads what AppendAttempts appended, from bytes that were found sound before.
func ParseAttempts(b []byte) []fsm.Attempt {
	r := PlainReader(b)
	return r.Attempts()
}

// The tagged fields of a held job, after a uvarint number of bytes.
const (
	heldWork    = 1  // uvarint leased, text client, attempts
	heldKey     = 2  // the bytes of the key
	heldVersion = 3  // uvarint
	heldNext    = 6  // see AppendSuccessor
	heldRank    = 7  // uvarint, of a priority that takes more than a byte
	heldPlace   = 8  // uvarint
	heldFIFO    = 9  // nothing
	heldUses    = 10 // uvarints, see fsm.Uses
)

// HeldFields are what the tagged fields of a held job say.
type HeldFields struct {
	Leased   fsm.Time
	Client   string
	Attempts []byte // encoded
	Key      string
	Version  uint64
	Place    uint64
	// Priority is the one that takes more than a byte, 0 if it does not.
	Priority int64
	FIFO     bool
	Uses     fsm.Uses
	// Next is the successor, nil if there is none.
	Next *fsm.Successor
}

// Any reports whether a job has any of the fields.
func (f *HeldFields) Any() bool {
	return f.Leased != 0 || len(f.Attempts) > 0 || f.Key != "" || f.Version != 0 || f.Place != 0 || f.Next != nil ||
		f.Priority != 0 || f.FIFO || f.Uses != (fsm.Uses{})
}

// AppendHeldFields appends the tagged fields of a held job.
func AppendHeldFields(dst []byte, f *HeldFields) []byte {
	start := len(dst)
	dst = append(dst, 0)
	if f.Leased != 0 || f.Client != "" || len(f.Attempts) > 0 {
		dst = tagged(dst, heldWork, func(b []byte) []byte {
			return append(AppendText(binary.AppendUvarint(b, Unsigned(f.Leased)), f.Client), f.Attempts...)
		})
	}
	dst = taggedNumber(taggedText(dst, heldKey, f.Key), heldVersion, f.Version)
	if f.Next != nil {
		dst = tagged(dst, heldNext, func(b []byte) []byte { return AppendSuccessor(b, f.Next) })
	}
	dst = taggedNumber(taggedRank(dst, heldRank, f.Priority != 0, f.Priority), heldPlace, f.Place)
	dst = taggedFlag(dst, heldFIFO, f.FIFO)
	if f.Uses != (fsm.Uses{}) {
		dst = tagged(dst, heldUses, func(b []byte) []byte { return appendUses(b, &f.Uses) })
	}
	return SetLength(dst, start, 1)
}

// heldFields reads what AppendHeldFields appended.
func (r *Reader) heldFields(v *fsm.Job) {
	fields := Reader{B: r.Bytes(), err: r.err}
	fields.fields("job", func(tag uint64, field *Reader) bool {
		switch tag {
		case heldWork:
			v.Leased, v.Client, v.Attempts = field.Time(), field.Text(), field.Attempts()
		case heldKey:
			v.Key = field.remainder()
		case heldVersion:
			v.Version = field.Uvarint()
		case heldNext:
			v.Next = field.successor()
		case heldPlace:
			v.Place = field.Uvarint()
		case heldRank:
			v.Priority = field.wide()
		case heldFIFO:
			v.FIFO = true
		case heldUses:
			v.Uses = field.uses().OrNil()
		default:
			return false
		}
		return true
	})
	if fields.err != nil {
		r.fail(fields.err)
	} else if v.Leased == 0 && v.Client != "" {
		r.Damaged("job that nobody has leased with a client")
	}
}

// The flags of a successor.
const (
	successorHeaders = 1 << iota
	successorFIFO
	successorWide
	successorFlagsEnd
)

// AppendSuccessor appends: uvarint version, due; byte priority; byte of the flags below; 16 bytes
// content; uvarint rank, if the priority takes more than a byte; uvarint created; then as a held job:
// first due, options, headers, body.
func AppendSuccessor(dst []byte, n *fsm.Successor) []byte {
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, n.Version), Unsigned(n.Due))
	flags := byte(0)
	for bit, set := range [...]bool{len(n.Headers) > 0, n.FIFO, fsm.IsWide(n.Priority)} {
		if set {
			flags |= 1 << bit
		}
	}
	dst = append(append(dst, Narrow(n.Priority), flags), n.Content[:]...)
	if flags&successorWide != 0 {
		dst = binary.AppendUvarint(dst, uint64(fsm.RankOf(n.Priority)))
	}
	dst = binary.AppendUvarint(dst, Unsigned(n.Created))
	return AppendPayload(dst, &n.Job)
}

// successor reads all that is left as what AppendSuccessor appended.
func (r *Reader) successor() *fsm.Successor {
	n := &fsm.Successor{}
	n.Version, n.Due, n.Priority = r.Uvarint(), r.Time(), int64(int8(r.Byte()))
	flags, held := r.Byte(), HeldFlags(0)
	if flags >= successorFlagsEnd {
		r.fail(fmt.Errorf("%w: successor with flags %08b", fsm.ErrVersion, flags))
	}
	if flags&successorHeaders != 0 {
		held = HeldHasHeaders
	}
	n.Content = r.Array16()
	if n.FIFO = flags&successorFIFO != 0; flags&successorWide != 0 {
		n.Priority = r.wide()
	}
	n.Created = r.Time()
	r.Payload(&n.Job, held)
	n.BodyBytes = uint32(len(n.Body))
	return n
}

// Successor reads what AppendSuccessor appended, from bytes that were found sound before.
func Successor(b []byte) *fsm.Successor {
	r := PlainReader(b)
	return r.successor()
}

// appendWork appends what a reading says of a job's client and attempts: uvarint leased, text
// client, and the attempts with a length before them.
func appendWork(dst []byte, j *fsm.Job) []byte {
	dst = append(AppendText(binary.AppendUvarint(dst, Unsigned(j.Leased)), j.Client), 0)
	return SetLength(AppendAttempts(dst, j.Attempts), len(dst)-1, 1)
}

// work reads what appendWork appended.
func (r *Reader) work(j *fsm.Job) {
	j.Leased, j.Client = r.Time(), r.Text()
	attempts := Reader{B: r.Bytes(), err: r.err}
	if j.Attempts = attempts.Attempts(); attempts.err != nil {
		r.fail(attempts.err)
	}
}
