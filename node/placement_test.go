package node

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Jobs are found by these numbers: they must never change for a cluster that exists.
func TestPlacementIsAsItEverWas(t *testing.T) {
	var partitions, shards []uint32
	for _, id := range []string{"", "a", "b", "order-42", "order-43", "namespace/queue", "ärger",
		"0123456789012345678901234567890123456789"} {
		partitions = append(partitions, PartitionOf(id, 7))
		for _, p := range []uint32{0, 1, 5, 6} {
			shards = append(shards, ShardOf(id, p, 6))
		}
	}
	if diff := cmp.Diff(goldenPartitions(), partitions); diff != "" {
		t.Errorf("partitions of 7 (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(goldenShards(), shards); diff != "" {
		t.Errorf("shards of 6 (-want +got):\n%s", diff)
	}
}

// A key is hashed as an id is, also one that looks like a generated id. The SDK has the same numbers.
func TestPlacementOfKeysIsAsItEverWas(t *testing.T) {
	var partitions []uint32
	for _, key := range []string{"a", "b", "customer-42", "customer-43", "ärger", "5-1234"} {
		partitions = append(partitions, PartitionOf(key, 7))
	}
	if diff := cmp.Diff([]uint32{3, 2, 6, 2, 4, 4}, partitions); diff != "" {
		t.Errorf("partitions of 7 (-want +got):\n%s", diff)
	}
}

func goldenPartitions() []uint32 { return []uint32{3, 3, 2, 4, 1, 0, 4, 5} }

func goldenShards() []uint32 {
	return []uint32{0, 2, 1, 0, 0, 4, 5, 0, 2, 0, 5, 2, 2, 3, 4, 2, 1, 3, 2, 1, 2, 3, 5, 2, 2, 5, 3, 2, 4, 3, 0, 4}
}

// TestJobsOfAScheduleAreInItsPartition: their ids are placed by the name of the schedule alone.
func TestJobsOfAScheduleAreInItsPartition(t *testing.T) {
	for id, like := range map[string]string{
		"cron:a@2027-03-28T01:00:00Z": "a", "cron:namespace/queue@x": "namespace/queue", "cron:a@b@c": "a@b",
		"cron:@": "",
	} {
		if got, want := PartitionOf(id, 7), PartitionOf(like, 7); got != want {
			t.Errorf("%s is in partition %d, %q in %d", id, got, like, want)
		}
	}
	if PartitionOf("cron:b", 7) == PartitionOf("b", 7) {
		t.Error("an id without a time is placed as if it had one")
	}
}

func TestPartitionsAreEvenAndInRange(t *testing.T) {
	for _, partitions := range []int{1, 2, 7, 64} {
		const ids = 20_000
		counts := make([]int, partitions)
		for i := range ids {
			counts[PartitionOf(fmt.Sprintf("order-%d", i), partitions)]++
		}
		for p, n := range counts {
			if mean := ids / partitions; n < mean*3/4 || n > mean*5/4 {
				t.Errorf("of %d ids, partition %d of %d has %d", ids, p, partitions, n)
			}
		}
	}
}

func TestShardsOfAQueueAreDistinct(t *testing.T) {
	for _, shards := range []int{1, 2, 6, 17} {
		for q := range 50 {
			queue := fmt.Sprintf("queue-%d", q)
			seen := map[uint32]bool{}
			for p := range uint32(shards) {
				shard := ShardOf(queue, p, shards)
				if int(shard) >= shards || seen[shard] {
					t.Fatalf("partition %d of %s is in shard %d of %d, which has one already or is none", p, queue, shard, shards)
				}
				seen[shard] = true
				if again := ShardOf(queue, p+uint32(shards), shards); again != shard {
					t.Errorf("partitions %d and %d of %s are in shards %d and %d", p, int(p)+shards, queue, shard, again)
				}
			}
		}
	}
}

func TestHomeShardsAreEven(t *testing.T) {
	const shards, queues = 6, 6_000
	var counts [shards]int
	for i := range queues {
		counts[ShardOf(fmt.Sprintf("queue-%d", i), 0, shards)]++
	}
	for shard, n := range counts {
		if n < queues/shards*3/4 || n > queues/shards*5/4 {
			t.Errorf("of %d queues, shard %d is home to %d", queues, shard, n)
		}
	}
}

// A shard more takes over its share of the home shards and leaves the others where they are.
func TestRendezvousMovesLittle(t *testing.T) {
	for i := range 1000 {
		queue := fmt.Sprintf("queue-%d", i)
		if before, after := ShardOf(queue, 0, 6), ShardOf(queue, 0, 7); after != before && after != 6 {
			t.Errorf("with a seventh shard %s moves from %d to %d", queue, before, after)
		}
	}
}
