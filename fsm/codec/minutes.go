package codec

import (
	"encoding/binary"
	"github.com/belfrydb/belfry/fsm"
)

// minuteBytesMin is the least bytes of a minute.
const minuteBytesMin = 7

// appendMinutes appends: uvarints since, number of minutes; of each, uvarints its number since the
// epoch, puts, grants, acks, failures, lateness p50 and p99.
func appendMinutes(dst []byte, v *fsm.Reading) []byte {
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, Unsigned(v.Since)), uint64(len(v.Minutes)))
	for i := range v.Minutes {
		m := &v.Minutes[i]
		for _, n := range [...]uint64{
			Unsigned(m.Start / fsm.Minute), uint64(m.Puts), uint64(m.Grants), uint64(m.Acks), uint64(m.Failures),
			Unsigned(m.LateP50), Unsigned(m.LateP99),
		} {
			dst = binary.AppendUvarint(dst, n)
		}
	}
	return dst
}

func (r *Reader) minutes(v *fsm.Reading) {
	v.Since = r.Time()
	n := r.Length(minuteBytesMin)
	for range n {
		number := r.Uvarint()
		if number > uint64(fsm.TimeMax/fsm.Minute) {
			r.Damaged("minute out of range")
			return
		}
		v.Minutes = append(v.Minutes, fsm.QueueMinute{
			Start: fsm.Time(number) * fsm.Minute, Puts: r.Uint32(), Grants: r.Uint32(), Acks: r.Uint32(), Failures: r.Uint32(),
			LateP50: r.duration(), LateP99: r.duration(),
		})
	}
}
