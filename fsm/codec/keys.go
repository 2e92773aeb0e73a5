package codec

import (
	"encoding/binary"
	"fmt"

	"github.com/belfrydb/belfry/fsm"
)

// Tagged fields are a uvarint tag, a uvarint length and so many bytes, for each field that is set.
// DESIGN.md lists all tags.

// tagged appends one field whose value f appends.
func tagged(dst []byte, tag byte, f func([]byte) []byte) []byte {
	start := len(dst) + 1
	return SetLength(f(append(dst, tag, 0)), start, 1)
}

// taggedNumber appends a field that is a uvarint, nothing if it is 0.
func taggedNumber(dst []byte, tag byte, n uint64) []byte {
	if n == 0 {
		return dst
	}
	return tagged(dst, tag, func(b []byte) []byte { return binary.AppendUvarint(b, n) })
}

// taggedFlag appends a field without a value, nothing if it is not set.
func taggedFlag(dst []byte, tag byte, set bool) []byte {
	if !set {
		return dst
	}
	return append(dst, tag, 0)
}

// taggedText appends a field that is a text, nothing if it is empty.
func taggedText(dst []byte, tag byte, s string) []byte {
	if s == "" {
		return dst
	}
	return tagged(dst, tag, func(b []byte) []byte { return append(b, s...) })
}

// refKey is the tagged field of Cancel and Reschedule: the bytes of the key. refPriority is that of Nack
// and Release: uvarint rank.
const (
	refKey      = 1
	refPriority = 1
)

// commandFields reads the tagged fields at the end of a command.
func (r *Reader) commandFields(c fsm.Command) {
	switch c := c.(type) {
	case *fsm.Nack:
		c.PriorityGiven, c.Priority = r.priorityField("nack")
	case *fsm.Release:
		c.PriorityGiven, c.Priority = r.priorityField("release")
	case *fsm.Put:
		r.putFields(c)
	case *fsm.Cancel:
		r.refFields("cancel", &c.Key)
	case *fsm.Reschedule:
		r.refFields("reschedule", &c.Key)
	case *fsm.Configure:
		c.Settings.Keys = r.KeySettings()
	default:
		r.laterTag(fmt.Sprintf("command kind %d", c.Kind()), r.Uvarint())
	}
}

func (r *Reader) priorityField(of string) (given bool, priority int64) {
	r.fields(of, func(tag uint64, field *Reader) bool {
		if tag == refPriority {
			given, priority = true, fsm.PriorityOf(field.Uint32())
		}
		return tag == refPriority
	})
	return given, priority
}

func (r *Reader) refFields(of string, key *string) {
	r.fields(of, func(tag uint64, field *Reader) bool {
		if tag == refKey {
			*key = field.remainder()
		}
		return tag == refKey
	})
}

// fields calls f with each tagged field that is left. f reports false for a tag that it does not
// know.
func (r *Reader) fields(of string, f func(tag uint64, field *Reader) bool) {
	for len(r.B) > 0 {
		tag := r.Uvarint()
		field := Reader{B: r.Bytes(), dry: r.dry, err: r.err}
		if field.err == nil && !f(tag, &field) {
			field.laterTag(of, tag)
		}
		if err := field.CheckEnd(); err != nil {
			r.fail(err)
		}
	}
}

// The tagged fields of a Put.
const (
	putKey        = 1 // the bytes of the key
	putOnExisting = 2 // byte
	putMaxWait    = 3 // uvarint
	putIfVersion  = 4 // uvarint
)

func appendPutFields(dst []byte, c *fsm.Put) []byte {
	dst = taggedNumber(taggedText(dst, putKey, c.Key), putOnExisting, uint64(c.OnExisting))
	dst = taggedNumber(dst, putMaxWait, Unsigned(c.MaxWait))
	return taggedNumber(dst, putIfVersion, c.IfVersion)
}

func (r *Reader) putFields(c *fsm.Put) {
	r.fields("put", func(tag uint64, field *Reader) bool {
		switch tag {
		case putKey:
			c.Key = field.remainder()
		case putOnExisting:
			c.OnExisting = field.onExisting()
		case putMaxWait:
			c.MaxWait = field.duration()
		case putIfVersion:
			c.IfVersion = field.Uvarint()
		default:
			return false
		}
		return true
	})
}

// remainder reads all that is left as a text.
func (r *Reader) remainder() string {
	if b := r.NextBytes(len(r.B)); !r.dry {
		return string(b)
	}
	return ""
}

func (r *Reader) onExisting() fsm.OnExisting {
	v := r.Uvarint()
	if v > uint64(fsm.NextExisting) {
		r.Damaged("unknown choice for a put whose id exists")
		return fsm.ReturnExisting
	}
	return fsm.OnExisting(v)
}

// The tagged fields of the settings of a queue.
const (
	keysConcurrency = 1 // uvarint
	keysRate        = 2 // uvarint count, per, burst
	keysOrdered     = 3
	keysFair        = 4
	keysHoldOnDead  = 5
	keysRefused     = 6
)

// AppendKeySettings appends the settings that concern keys, nothing if none is set.
func AppendKeySettings(dst []byte, s *fsm.KeySettings) []byte {
	dst = taggedNumber(dst, keysConcurrency, uint64(s.Concurrency))
	if s.Rate != (fsm.KeyRate{}) {
		dst = tagged(dst, keysRate, func(b []byte) []byte {
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(s.Rate.Count)), Unsigned(s.Rate.Per))
			return binary.AppendUvarint(b, uint64(s.Rate.Burst))
		})
	}
	dst = taggedFlag(dst, keysOrdered, s.Ordered)
	dst = taggedFlag(dst, keysFair, s.Fair)
	dst = taggedFlag(dst, keysHoldOnDead, s.HoldOnDead)
	return taggedFlag(dst, keysRefused, s.Refused)
}

// KeySettings reads all that is left as what AppendKeySettings appended.
func (r *Reader) KeySettings() (s fsm.KeySettings) {
	r.fields("queue", func(tag uint64, field *Reader) bool {
		switch tag {
		case keysConcurrency:
			s.Concurrency = field.Uint32()
		case keysRate:
			s.Rate = fsm.KeyRate{Count: field.Uint32(), Per: field.duration(), Burst: field.Uint32()}
		case keysOrdered:
			s.Ordered = true
		case keysFair:
			s.Fair = true
		case keysHoldOnDead:
			s.HoldOnDead = true
		case keysRefused:
			s.Refused = true
		default:
			return false
		}
		return true
	})
	return s
}

// AppendKeyMemory appends: text key; uvarint serial, rate at, round; flag paused. The queue comes
// before it.
func AppendKeyMemory(dst []byte, k *fsm.KeyMemory) []byte {
	dst = AppendText(dst, k.Key)
	for _, v := range [...]uint64{k.Serial, Unsigned(k.RateAt), k.Round} {
		dst = binary.AppendUvarint(dst, v)
	}
	return appendFlag(dst, k.Paused)
}

// KeyMemory reads what AppendKeyMemory appended.
func (r *Reader) KeyMemory() fsm.KeyMemory {
	return fsm.KeyMemory{Key: r.Text(), Serial: r.Serial(), RateAt: r.Time(), Round: r.Uvarint(), Paused: r.flag()}
}

// appendKeyed appends what a reading says of the key of a job: text key, uvarint version and place,
// and the successor with a length before it, 0 if there is none.
func appendKeyed(dst []byte, j *fsm.Job) []byte {
	dst = binary.AppendUvarint(binary.AppendUvarint(AppendText(dst, j.Key), j.Version), j.Place)
	start := len(dst)
	dst = append(dst, 0)
	if j.Next != nil {
		dst = AppendSuccessor(dst, j.Next)
	}
	return SetLength(dst, start, 1)
}

// keyed reads what appendKeyed appended.
func (r *Reader) keyed(j *fsm.Job) {
	j.Key, j.Version, j.Place = r.Text(), r.Uvarint(), r.Uvarint()
	next := Reader{B: r.Bytes(), err: r.err}
	if len(next.B) > 0 {
		j.Next = next.successor()
	}
	r.failWith(next.err)
}

// keyBytesMin is the least bytes of a key of a reading.
const keyBytesMin = 9

// appendKeys appends: uvarint scanned, next, number of keys; of each text name, uvarints delayed, ready,
// reserved, dead, flag paused, uvarint next token, byte blocked, uvarint due of the head.
func appendKeys(dst []byte, v *fsm.Reading) []byte {
	for _, n := range [...]uint64{v.Scanned, uint64(v.Next), uint64(len(v.Keys))} {
		dst = binary.AppendUvarint(dst, n)
	}
	for i := range v.Keys {
		k := &v.Keys[i]
		dst = AppendText(dst, k.Name)
		for _, n := range [...]uint32{k.Delayed, k.Ready, k.Reserved, k.Dead} {
			dst = binary.AppendUvarint(dst, uint64(n))
		}
		dst = binary.AppendUvarint(appendFlag(dst, k.Paused), Unsigned(k.NextToken))
		dst = binary.AppendUvarint(append(dst, byte(k.Blocked)), Unsigned(k.HeadDue))
	}
	return dst
}

// keys reads what appendKeys appended.
func (r *Reader) keys(v *fsm.Reading) {
	v.Scanned, v.Next = r.Uvarint(), r.Uint32()
	if n := r.Length(keyBytesMin); n > 0 {
		v.Keys = make([]fsm.Key, n)
	}
	for i := range v.Keys {
		v.Keys[i] = fsm.Key{
			Name: r.Text(), Delayed: r.Uint32(), Ready: r.Uint32(), Reserved: r.Uint32(), Dead: r.Uint32(),
			Paused: r.flag(), NextToken: r.Time(), Blocked: fsm.KeyBlock(r.Byte()), HeadDue: r.Time(),
		}
		if v.Keys[i].Blocked > fsm.BlockedByRate {
			r.fail(fmt.Errorf("%w: key blocked by %d", fsm.ErrVersion, v.Keys[i].Blocked))
		}
	}
}
