package wire

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/belfrydb/belfry/fsm"
)

// leaseVersion is the first byte of a lease token. A later layout gets another number. This layout
// stays readable: tokens live as long as their leases, also across an upgrade.
const leaseVersion = 1

// leaseTextMax bounds the text of a token: version, a queue of 256 bytes, four varints and the
// checksum.
const leaseTextMax = 420

// errLease is the error for a text that is no lease token. The exact flaw would not help the
// caller.
var errLease = errors.New("not a lease: pass on the string that Reserve gave, unchanged")

// FormatLease returns the token that names one reservation of a job. It is opaque to callers, and
// not secret.
//
//	base64url( version(1) │ len(queue) uvarint │ queue │ partition uvarint │ serial uvarint │ fence uvarint │ CRC32C(4) )
//
// The checksum covers all bytes before it, and is little endian. It detects damage, not malice.
func FormatLease(ref fsm.Ref) string { return new(leaseWriter).format(ref) }

// leaseWriter formats many tokens with the same scratch memory.
type leaseWriter struct {
	raw   []byte
	table *crc32.Table
}

// format is FormatLease.
func (w *leaseWriter) format(ref fsm.Ref) string { return string(w.append(nil, ref)) }

// append appends the token to dst.
func (w *leaseWriter) append(dst []byte, ref fsm.Ref) []byte {
	if w.table == nil {
		w.table = crc32.MakeTable(crc32.Castagnoli)
	}
	b := append(w.raw[:0], leaseVersion)
	b = binary.AppendUvarint(b, uint64(len(ref.Queue)))
	b = append(b, ref.Queue...)
	b = binary.AppendUvarint(b, uint64(ref.Partition))
	b = binary.AppendUvarint(b, ref.Serial)
	b = binary.AppendUvarint(b, ref.Fence)
	w.raw = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, w.table))
	return base64.RawURLEncoding.AppendEncode(dst, w.raw)
}

// ParseLease is the inverse of FormatLease. It only accepts texts that FormatLease can write, so
// that one reservation has one token.
func ParseLease(token string) (fsm.Ref, error) { return new(LeaseReader).Parse([]byte(token)) }

// LeaseReader parses many tokens with the same scratch memory. Neighbours of one queue share its
// name.
type LeaseReader struct {
	encoding *base64.Encoding
	table    *crc32.Table
	raw      [leaseTextMax]byte
	queue    string
}

// Parse is ParseLease. It may be called for any number of tokens, by one goroutine.
func (r *LeaseReader) Parse(token []byte) (fsm.Ref, error) {
	if len(token) == 0 || len(token) > leaseTextMax {
		return fsm.Ref{}, errLease
	}
	if r.encoding == nil {
		r.encoding, r.table = base64.RawURLEncoding.Strict(), crc32.MakeTable(crc32.Castagnoli)
	}
	n, err := r.encoding.Decode(r.raw[:], token) // it skips line breaks
	if err != nil || n < 1+crc32.Size || r.raw[0] != leaseVersion || len(token) != base64.RawURLEncoding.EncodedLen(n) {
		return fsm.Ref{}, errLease
	}
	payload, sum := r.raw[:n-crc32.Size], r.raw[n-crc32.Size:n]
	if crc32.Checksum(payload, r.table) != binary.LittleEndian.Uint32(sum) {
		return fsm.Ref{}, errLease
	}
	fields := leaseFields{rest: payload[1:]}
	if queue := fields.text(); string(queue) != r.queue {
		r.queue = string(queue)
	}
	ref := fsm.Ref{Queue: r.queue}
	partition := fields.number()
	ref.Partition, ref.Serial, ref.Fence = uint32(partition), fields.number(), fields.number()
	if fields.failed || len(fields.rest) != 0 || partition > 1<<32-1 {
		return fsm.Ref{}, errLease
	}
	return ref, nil
}

// leaseFields reads the fields of a token from its bytes. After a failure it returns zeros.
type leaseFields struct {
	rest   []byte
	failed bool
}

// number reads a uvarint in its shortest form.
func (r *leaseFields) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || size > 1 && r.rest[size-1] == 0 {
		r.failed, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// text reads a length, and that many bytes.
func (r *leaseFields) text() []byte {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.failed, r.rest = true, nil
		return nil
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}
