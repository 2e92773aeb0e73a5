// Package redisson has the formats in which Redisson's RDelayedQueue keeps its entries in Redis:
// the names of its keys, the members of its timer and list in both generations, its scores, and the
// payloads of the codecs whose strings can be read outside of Java. It talks to no Redis.
//
// A delayed queue is four keys and a channel, see [Keys]. The timer is a sorted set from [Member]
// to due time, the list holds the same members in the order of the offers, and the ready list takes
// the payload of a member once it is due.
//
// The functions have no state. They may be called from any number of goroutines.
package redisson
