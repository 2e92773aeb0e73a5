package rpc

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"

	"github.com/belfrydb/belfry/fsm"
)

// leaseVersion is the first byte of a lease token. A later layout takes another number; this one stays readable, since
// tokens live as long as leases do, across an upgrade.
const leaseVersion = 1

// leaseTextMax bounds the text that is looked at: version, a queue of 256 bytes, four varints and the checksum.
const leaseTextMax = 420

// errLease says that a text is no lease token; why does not help anybody.
var errLease = errors.New("not a lease: pass on the string that Reserve gave, unchanged")

// formatLease returns the token that names one reservation of a job. It is opaque to callers and no secret.
//
//	base64url( version(1) │ len(queue) uvarint │ queue │ partition uvarint │ serial uvarint │ fence uvarint │ CRC32C(4) )
//
// The checksum runs over everything before it, little endian at the end. It finds damage, not malice.
func formatLease(ref fsm.Ref) string { return new(leaseWriter).format(ref) }

// leaseWriter formats many tokens with the same scratch memory.
type leaseWriter struct{ raw, text []byte }

// format is formatLease.
func (w *leaseWriter) format(ref fsm.Ref) string {
	b := slices.Grow(w.raw[:0], 1+len(ref.Queue)+4*binary.MaxVarintLen64+crc32.Size)
	b = append(b, leaseVersion)
	b = binary.AppendUvarint(b, uint64(len(ref.Queue)))
	b = append(b, ref.Queue...)
	b = binary.AppendUvarint(b, uint64(ref.Partition))
	b = binary.AppendUvarint(b, ref.Serial)
	b = binary.AppendUvarint(b, ref.Fence)
	w.raw = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	w.text = base64.RawURLEncoding.AppendEncode(w.text[:0], w.raw) // it grows text once
	return string(w.text)
}

// parseLease is the inverse of formatLease. Only what formatLease can have written is accepted, so that one reservation
// has one token.
func parseLease(token string) (fsm.Ref, error) {
	if token == "" || len(token) > leaseTextMax {
		return fsm.Ref{}, errLease
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token) // it skips line breaks
	if err != nil || len(b) < 1+crc32.Size || b[0] != leaseVersion || len(token) != base64.RawURLEncoding.EncodedLen(len(b)) {
		return fsm.Ref{}, errLease
	}
	payload, sum := b[:len(b)-crc32.Size], b[len(b)-crc32.Size:]
	if crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(sum) {
		return fsm.Ref{}, errLease
	}
	r := leaseReader{rest: payload[1:]}
	ref := fsm.Ref{Queue: r.text()}
	partition := r.number()
	ref.Partition, ref.Serial, ref.Fence = uint32(partition), r.number(), r.number()
	if r.failed || len(r.rest) != 0 || partition > 1<<32-1 {
		return fsm.Ref{}, errLease
	}
	return ref, nil
}

// leaseReader takes the fields of a token from its bytes. After a failure it yields zeros.
type leaseReader struct {
	rest   []byte
	failed bool
}

// number takes a uvarint in its shortest form.
func (r *leaseReader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || size > 1 && r.rest[size-1] == 0 {
		r.failed, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// text takes a length and as many bytes.
func (r *leaseReader) text() string {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.failed, r.rest = true, nil
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}
