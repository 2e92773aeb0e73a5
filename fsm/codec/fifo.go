package codec

import (
	"encoding/binary"
	"fmt"

	"github.com/belfrydb/belfry/fsm"
)

// Narrow returns the byte of a priority. That of a priority that takes more is the nearest one: it is
// written once more, as a rank.
func Narrow(priority int64) byte {
	return byte(int8(min(max(priority, fsm.PriorityMin), fsm.PriorityNarrow)))
}

// wide reads the rank of a priority that takes more than a byte.
func (r *Reader) wide() int64 {
	p := fsm.PriorityOf(r.Uint32())
	if r.err == nil && !fsm.IsWide(p) {
		r.Damaged("priority of a byte that takes more")
		return 0
	}
	return p
}

// taggedRank appends a field with a priority, nothing if it is not given.
func taggedRank(dst []byte, tag byte, given bool, priority int64) []byte {
	if !given {
		return dst
	}
	return tagged(dst, tag, func(b []byte) []byte {
		return binary.AppendUvarint(b, uint64(fsm.RankOf(priority)))
	})
}

func appendUses(dst []byte, u *fsm.Uses) []byte {
	for _, n := range u.List() {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

// uses reads what appendUses appended.
func (r *Reader) uses() (u fsm.Uses) {
	list := u.List()
	for i := range list {
		list[i] = r.Uint32()
	}
	u.Set(list)
	return u
}

// The flags of what a reading says of a job in fsm.FIFOFormat.
const (
	jobWide = 1 << iota
	jobFIFO
	jobUsed
	jobFIFOEnd
)

// appendFIFO appends what a reading says of a job in fsm.FIFOFormat: a byte of the flags, uvarint rank
// of a priority that takes more than a byte, and the uses, if there are any.
func appendFIFO(dst []byte, j *fsm.Job) []byte {
	flags := byte(0)
	for bit, set := range [...]bool{fsm.IsWide(j.Priority), j.FIFO, j.Uses != nil} {
		if set {
			flags |= 1 << bit
		}
	}
	if dst = append(dst, flags); flags&jobWide != 0 {
		dst = binary.AppendUvarint(dst, uint64(fsm.RankOf(j.Priority)))
	}
	if flags&jobUsed != 0 {
		dst = appendUses(dst, j.Uses)
	}
	return dst
}

// fifo reads what appendFIFO appended.
func (r *Reader) fifo(j *fsm.Job) {
	flags := r.Byte()
	if flags >= jobFIFOEnd {
		r.fail(fmt.Errorf("%w: job with flags %08b", fsm.ErrVersion, flags))
	}
	if j.FIFO = flags&jobFIFO != 0; flags&jobWide != 0 {
		j.Priority = r.wide()
	}
	if flags&jobUsed != 0 {
		j.Uses = r.uses().OrNil()
	}
}
