// Package placement says which shard holds a job, as the servers compute it.
package placement

import (
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"math"
	"strings"
)

// A Place is what a call concerns, as far as it helps to find the shard's leader. The zero value is
// an unknown place.
type Place struct {
	Queue     string
	ID        string // of a job, "" if the call names none
	Key       string // of a job, "" if it has none, or the call names none; it counts before the id
	Partition uint32 // counts if Known is set
	Known     bool
}

// OfLease returns the queue and the partition in a lease token; the zero value if it does not
// understand the token, which all other code treats as opaque.
func OfLease(lease string) Place {
	b, err := base64.RawURLEncoding.DecodeString(lease)
	if err != nil || len(b) < 2 || b[0] != 1 {
		return Place{}
	}
	length, n := binary.Uvarint(b[1:])
	if b = b[1+max(n, 0):]; n <= 0 || length > uint64(len(b)) {
		return Place{}
	}
	partition, n := binary.Uvarint(b[length:])
	if n <= 0 || partition > math.MaxUint32 {
		return Place{}
	}
	return Place{Queue: string(b[:length]), Partition: uint32(partition), Known: true}
}

// HashVersion is the version of the hashes in this package. The servers say which version is in
// force. Golden tests hold both sides to it.
const HashVersion = 1

// ShardOf returns the shard that holds a partition of a queue, of so many shards (1 or more).
// Rendezvous hashing ranks the shards, and partition p is in the shard of rank p, modulo the number
// of shards.
func ShardOf(queue string, partition uint32, shards int) int {
	ranked := make([]int, 0, shards)
	scores := make([]uint64, shards)
	for shard := range shards {
		scores[shard] = placementHash(queue, uint64(shard)+1)
		at := len(ranked)
		for at > 0 && scores[ranked[at-1]] < scores[shard] {
			at--
		}
		ranked = append(ranked, 0)
		copy(ranked[at+1:], ranked[at:])
		ranked[at] = shard
	}
	return ranked[int(partition%uint32(shards))] //nolint:gosec // few shards
}

// PartitionOf returns the partition of the job with an id, of so many partitions (1 or more). A
// generated id begins with its partition. The id of a schedule's job, cron:<name>@<time>, is placed by
// the name.
func PartitionOf(id string, partitions uint32) uint32 {
	if p, ok := generatedIn(id); ok {
		return p % partitions
	}
	if rest, ok := strings.CutPrefix(id, "cron:"); ok {
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			id = rest[:at]
		}
	}
	return uint32(placementHash(id, 0) % uint64(partitions)) //nolint:gosec // below partitions
}

// PartitionOfKey returns the partition of the jobs with a key, of so many partitions (1 or more).
func PartitionOfKey(key string, partitions uint32) uint32 {
	return uint32(placementHash(key, 0) % uint64(partitions)) //nolint:gosec // below partitions
}

// generatedIn reads the partition from an id of the form <partition>-<serial>.
func generatedIn(id string) (partition uint32, ok bool) {
	digits, dash := 0, -1
	var p uint64
	for i, c := range []byte(id) {
		switch {
		case c == '-' && dash < 0 && digits > 0:
			dash, digits = i, 0
		case c >= '0' && c <= '9' && i < 32:
			digits++
			if dash < 0 {
				p = p*10 + uint64(c-'0')
			}
		default:
			return 0, false
		}
	}
	return uint32(p), dash >= 0 && digits > 0 && p <= math.MaxUint32 //nolint:gosec // checked beside it
}

// placementHash is the servers' hash of names; see HashVersion.
func placementHash(name string, salt uint64) uint64 {
	h := fnv.New64a()
	h.Write([]byte{HashVersion}) // a hash never fails
	h.Write([]byte(name))
	h.Write(binary.LittleEndian.AppendUint64(nil, salt))
	sum := h.Sum64()
	sum ^= sum >> 33
	sum *= 0xff51afd7ed558ccd
	sum ^= sum >> 33
	sum *= 0xc4ceb9fe1a85ec53
	return sum ^ sum>>33
}
