// Package oneway brings the jobs of another service's queue in Redis to Belfry, one way. It has
// what such imports have in common: claim, commit, ack, and the end. A [Service] knows what its
// jobs look like.
package oneway
