package placement

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The servers find jobs by these numbers, and hold themselves to the same.
func TestPlacementIsTheServers(t *testing.T) {
	var partitions []uint32
	var shards []int
	for _, id := range []string{"", "a", "b", "order-42", "order-43", "namespace/queue", "ärger",
		"0123456789012345678901234567890123456789"} {
		partitions = append(partitions, PartitionOf(id, 7))
		for _, p := range []uint32{0, 1, 5, 6} {
			shards = append(shards, ShardOf(id, p, 6))
		}
	}
	if diff := cmp.Diff([]uint32{3, 3, 2, 4, 1, 0, 4, 5}, partitions); diff != "" {
		t.Errorf("partitions of 7 (-want +got):\n%s", diff)
	}
	want := []int{0, 2, 1, 0, 0, 4, 5, 0, 2, 0, 5, 2, 2, 3, 4, 2, 1, 3, 2, 1, 2, 3, 5, 2, 2, 5, 3, 2, 4, 3, 0, 4}
	if diff := cmp.Diff(want, shards); diff != "" {
		t.Errorf("shards of 6 (-want +got):\n%s", diff)
	}
	if p := PartitionOf("5-1234", 7); p != 5 {
		t.Errorf("a generated id is in partition %d", p)
	}
	var keys []uint32
	for _, key := range []string{"a", "b", "customer-42", "customer-43", "ärger", "5-1234"} {
		keys = append(keys, PartitionOfKey(key, 7))
	}
	if diff := cmp.Diff([]uint32{3, 2, 6, 2, 4, 4}, keys); diff != "" {
		t.Errorf("partitions of keys (-want +got):\n%s", diff)
	}
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

func TestLeasePlace(t *testing.T) {
	// The token of partition 2 of queue "a", serial 3, fence 4, with any checksum.
	if got, want := OfLease("AQFhAgMEAAAAAA"), (Place{Queue: "a", Partition: 2, Known: true}); got != want {
		t.Errorf("%+v", got)
	}
	for _, lease := range []string{"", "x", "!", "AQ", "AgFhAgME", "Af9hAgME", "lease-1"} {
		if got := OfLease(lease); got.Known {
			t.Errorf("%q: %+v", lease, got)
		}
	}
}
