// Package pair works on a pair of queues: one in Redis, and the queue of Belfry that it belongs to.
// It ensures that one process at a time does so, that Redis refuses all others, and that notes
// about the pair outlive these processes. Its callers decide what to move, and how.
package pair
