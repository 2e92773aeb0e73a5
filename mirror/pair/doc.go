// Package pair works on a pair of queues, one in Redis and the one of Belfry that it belongs to. It
// sees to it that one process at a time does so, that Redis refuses all others, and that notes
// about the pair outlive them all. What is moved, and how, is up to its callers.
package pair
