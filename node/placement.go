package node

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/belfrydb/belfry/fsm"
)

// PlacementVersion is the version of the hashes in this file, and part of each of them. These
// hashes find the jobs, so neither they nor the version may ever change for a cluster that exists.
// Golden tests check them.
const PlacementVersion = 1

// PartitionOf returns the partition, below partitions, of the jobs with a key, or of the job with a
// client-chosen id and no key.
// Generated ids carry theirs; the id of a schedule's job is placed by the name of the schedule.
func PartitionOf(id string, partitions int) uint32 {
	if partitions <= 1 {
		return 0
	}
	if name, ok := fsm.ScheduleOf(id); ok {
		id = name
	}
	return uint32(placementHash(id, 0) % uint64(partitions))
}

// ShardOf returns the shard, below shards, that holds a partition of a queue. Rendezvous hashing of
// the queue's name ranks the shards. Partition p lives in the shard of rank p modulo shards, so
// that neighbouring partitions live in different shards.
func ShardOf(queue string, partition uint32, shards int) uint32 {
	if shards <= 1 {
		return 0
	}
	if partition == 0 {
		return firstShard(queue, shards)
	}
	ranked := make([]uint32, shards)
	scores := make([]uint64, shards)
	for i := range ranked {
		ranked[i], scores[i] = uint32(i), placementHash(queue, uint64(i)+1)
	}
	slices.SortFunc(ranked, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b))
	})
	return ranked[int(partition%uint32(shards))]
}

// firstShard returns the shard of rank 0 without ranking the others.
func firstShard(queue string, shards int) uint32 {
	var first uint32
	var highest uint64
	for i := range shards {
		if score := placementHash(queue, uint64(i)+1); i == 0 || score > highest {
			first, highest = uint32(i), score
		}
	}
	return first
}

// placementHash is FNV-1a over the version, the name and the salt, finished with the 64-bit
// finalizer of MurmurHash3, because the high bits of FNV-1a barely depend on the last bytes.
func placementHash(name string, salt uint64) uint64 {
	h := fnv.New64a()
	var word [8]byte
	word[0] = PlacementVersion
	h.Write(word[:1]) // a hash never fails
	h.Write([]byte(name))
	binary.LittleEndian.PutUint64(word[:], salt)
	h.Write(word[:])
	sum := h.Sum64()
	sum ^= sum >> 33
	sum *= 0xff51afd7ed558ccd
	sum ^= sum >> 33
	sum *= 0xc4ceb9fe1a85ec53
	return sum ^ sum>>33
}
