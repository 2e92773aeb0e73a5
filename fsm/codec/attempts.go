package codec

import (
	"encoding/binary"
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

// The tagged fields of a held job: a uvarint number of bytes, and in them for each field a uvarint
// tag and a length with so many bytes. DESIGN.md lists all tags.
const heldWork = 1 // uvarint leased, text client, attempts

// AppendHeldFields appends the tagged fields of a held job.
func AppendHeldFields(dst []byte, leased fsm.Time, client string, attempts []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, heldWork, 0)
	dst = append(AppendText(binary.AppendUvarint(dst, Unsigned(leased)), client), attempts...)
	return SetLength(SetLength(dst, start+2, 1), start, 1)
}

// heldFields reads what AppendHeldFields appended.
func (r *Reader) heldFields(v *fsm.Job) {
	fields := Reader{B: r.Bytes(), err: r.err}
	for len(fields.B) > 0 {
		tag := fields.Uvarint()
		field := Reader{B: fields.Bytes(), err: fields.err}
		if tag == heldWork {
			v.Leased, v.Client, v.Attempts = field.Time(), field.Text(), field.Attempts()
		} else {
			field.laterTag("job", tag)
		}
		fields.err = field.err
	}
	if fields.err != nil {
		r.fail(fields.err)
	} else if v.Leased == 0 && v.Client != "" {
		r.Damaged("job that nobody has leased with a client")
	}
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
