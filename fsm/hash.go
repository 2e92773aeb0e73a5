package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
)

// hasher is a fixed 64-bit hash of a sequence of values, fast enough to run at every change of a job: each 64-bit word is
// folded in with one 64×64→128-bit multiplication. It is not cryptographic; the digest guards against faults, not forgers.
type hasher uint64

// The multipliers are odd and have no simple relation: the fractional parts of √2, √3 and √5.
const (
	hashMul1 = 0x6a09e667f3bcc909
	hashMul2 = 0xbb67ae8584caa73b
	hashMul3 = 0x3c6ef372fe94f82b
)

// The first word of each kind of record keeps records of two kinds from ever being mixed up.
const (
	hashOfJob hasher = iota + 1
	hashOfTombstone
	hashOfFinished
	hashOfAnswer
	hashOfQueue
	hashOfScalars
	hashOfID
	hashOfSerial
	hashOfRestore
)

func (h hasher) word(v uint64) hasher {
	hi, lo := bits.Mul64(uint64(h)^v^hashMul1, hashMul2^uint64(h)>>32)
	return hasher(hi ^ lo + hashMul3)
}

func (h hasher) time(t Time) hasher { return h.word(uint64(t)) }

func (h hasher) bytes(b []byte) hasher {
	h = h.word(uint64(len(b)))
	for ; len(b) >= 8; b = b[8:] {
		h = h.word(binary.LittleEndian.Uint64(b))
	}
	if len(b) > 0 {
		var tail [8]byte
		copy(tail[:], b)
		h = h.word(binary.LittleEndian.Uint64(tail[:]))
	}
	return h
}

func (h hasher) text(s string) hasher {
	h = h.word(uint64(len(s)))
	for len(s) > 0 {
		var w uint64
		n := min(len(s), 8)
		for i := range n {
			w |= uint64(s[i]) << (8 * i)
		}
		h, s = h.word(w), s[n:]
	}
	return h
}

// sum finishes the hash.
func (h hasher) sum() uint64 { return uint64(h.word(hashMul1)) }

// ContentHash is the identity of what a Put asks for: body, headers and options as written. Two puts with the same id and the
// same content hash are the same put. Headers that carry a trace are no part of it: a repeat belongs to a trace of its own.
func ContentHash(p *Put) [16]byte {
	if slices.ContainsFunc(p.Headers, CarriesTrace) {
		asked := *p
		asked.Headers = slices.DeleteFunc(slices.Clone(p.Headers), CarriesTrace)
		p = &asked
	}
	var room [512]byte // enough for a small job, so that its hash is no garbage
	return contentHash(appendContent(room[:0], p))
}

// CarriesTrace reports whether a header is one of W3C Trace Context, which is no part of a job's content.
func CarriesTrace(h Header) bool { return h.Name == "traceparent" || h.Name == "tracestate" }

// RequestHash is the identity of a request's commands.
func RequestHash(r *Request) [16]byte { return contentHash(appendCommands(nil, r.Commands)) }

func contentHash(encoded []byte) [16]byte {
	sum := sha256.Sum256(encoded)
	return [16]byte(sum[:16])
}
