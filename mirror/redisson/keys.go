package redisson

import "strings"

// Keys are where one delayed queue lives in Redis. The names are the same in all versions of
// Redisson, and whether Redis is one server, has sentinels or is a cluster.
type Keys struct {
	// Ready is the list from which consumers take payloads: the destination queue itself.
	Ready string
	// Timer is the sorted set of packed members; a score is a due time, see [ParseScore].
	Timer string
	// List is the list of the same members in the order of the offers.
	List string
	// Channel is a channel of Pub/Sub and no key. A message is the due time of a new head, in Unix
	// milliseconds as decimal text.
	Channel string
	// Semaphore exists only if the destination is a bounded queue. Taking from Ready without
	// releasing it loses capacity.
	Semaphore string
}

// KeysOf returns the keys of the delayed queue whose destination has this name, as Redis knows it:
// after the name mapper of the client, if that has one.
func KeysOf(queue string) Keys {
	return Keys{
		Ready:     queue,
		Timer:     KeyOf("redisson_delay_queue_timeout", queue),
		List:      KeyOf("redisson_delay_queue", queue),
		Channel:   KeyOf("redisson_delay_queue_channel", queue),
		Semaphore: KeyOf("redisson_bqs", queue),
	}
}

// KeyOf returns the key of the given kind that belongs to a queue, in the slot of the queue's other
// keys if they share one. Redisson makes its keys so, and the mirror those that it adds. The prefix
// holds no brace.
func KeyOf(prefix, queue string) string {
	if strings.Contains(queue, "{") {
		return prefix + ":" + queue
	}
	return prefix + ":{" + queue + "}"
}

// SameSlot reports whether Redis Cluster keeps all keys of a queue in one slot. Where it does not,
// as for the names "a{b", "a}b" and "{}x", Redisson's scripts fail with CROSSSLOT; without a
// cluster such a queue works.
func SameSlot(queue string) bool { return hashed(queue) == hashed(KeyOf("x", queue)) }

// hashed returns the part of a key that decides about its slot: what is between the first opening
// brace and the first closing one after it, or the whole key if there is nothing between them or no
// such pair.
func hashed(key string) string {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}
