package digest

import (
	"encoding/binary"
	"github.com/belfrydb/belfry/fsm"
	"math/bits"
)

// Hasher is a fixed 64-bit hash of a sequence of values, fast enough to run at every change of a
// job: each 64-bit word is folded in with one 64×64→128-bit multiplication. It is not
// cryptographic; the digest guards against faults, not forgers.
type Hasher uint64

// The multipliers are odd and have no simple relation: the fractional parts of √2, √3 and √5.
const (
	hashMul1 = 0x6a09e667f3bcc909
	hashMul2 = 0xbb67ae8584caa73b
	hashMul3 = 0x3c6ef372fe94f82b
)

// The first word of each kind of record keeps records of two kinds from ever being mixed up.
const (
	hashOfJob Hasher = iota + 1
	hashOfTombstone
	hashOfFinished
	hashOfAnswer
	hashOfQueue
	hashOfScalars
	hashOfID
	hashOfSerial
	hashOfRestore
	hashOfClient
	hashOfKey
	hashOfSchedule
)

// hashOfFIFO is what a FIFO job adds to its hash.
const hashOfFIFO = 0x54ff53a5f1d36f1d

// Word folds a word into the hash.
func (h Hasher) Word(v uint64) Hasher {
	hi, lo := bits.Mul64(uint64(h)^v^hashMul1, hashMul2^uint64(h)>>32)
	return Hasher(hi ^ lo + hashMul3)
}

func (h Hasher) time(t fsm.Time) Hasher { return h.Word(uint64(t)) }

func (h Hasher) bytes(b []byte) Hasher {
	h = h.Word(uint64(len(b)))
	for ; len(b) >= 8; b = b[8:] {
		h = h.Word(binary.LittleEndian.Uint64(b))
	}
	if len(b) > 0 {
		var tail [8]byte
		copy(tail[:], b)
		h = h.Word(binary.LittleEndian.Uint64(tail[:]))
	}
	return h
}

func (h Hasher) text(s string) Hasher {
	h = h.Word(uint64(len(s)))
	for len(s) > 0 {
		var w uint64
		n := min(len(s), 8)
		for i := range n {
			w |= uint64(s[i]) << (8 * i)
		}
		h, s = h.Word(w), s[n:]
	}
	return h
}

// Sum finishes the hash.
func (h Hasher) Sum() uint64 { return uint64(h.Word(hashMul1)) }
