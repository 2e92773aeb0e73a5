package redisconn

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// A TypedKey is a key of Redis, and the type that it has if it exists, as the command TYPE says it.
type TypedKey struct{ Key, Kind string }

// SortedSet names a key that holds a sorted set.
func SortedSet(key string) TypedKey { return TypedKey{key, "zset"} }

// List names a key that holds a list.
func List(key string) TypedKey { return TypedKey{key, "list"} }

// Hash names a key that holds a hash.
func Hash(key string) TypedKey { return TypedKey{key, "hash"} }

// Set names a key that holds a set.
func Set(key string) TypedKey { return TypedKey{key, "set"} }

// CheckTypes returns an error that names the first key of another type than it should have. A key
// that does not exist is right.
func CheckTypes(ctx context.Context, r redis.UniversalClient, types []TypedKey) error {
	names := make([]string, len(types))
	for n, want := range types {
		names[n] = want.Key
	}
	kinds, err := TypesOf(ctx, r, names...)
	if err != nil {
		return err
	}
	for n, want := range types {
		if kinds[n] != "none" && kinds[n] != want.Kind {
			return fmt.Errorf("the key %s is a %s, should be a %s: another program made it; rename it, or name another "+
				"queue: 'belfry mirror inspect' shows them", want.Key, kinds[n], want.Kind)
		}
	}
	return nil
}

// TypesOf returns the types of keys in their order, "none" for one that does not exist. It sends
// one command for each key, so that the keys may be in different slots of a Redis Cluster.
func TypesOf(ctx context.Context, r redis.UniversalClient, keys ...string) ([]string, error) {
	kinds := make([]string, len(keys))
	replies := make([]*redis.StatusCmd, len(keys))
	_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, key := range keys {
			replies[n] = p.Type(ctx, key)
		}
		return nil
	})
	for n, reply := range replies {
		if HasCode(reply.Err(), "NOPERM") {
			return nil, Explained(fmt.Errorf("the Redis user may not look at the key %s; it needs ~%s and +type: %w",
				keys[n], keys[n], reply.Err()))
		}
		kinds[n] = reply.Val()
	}
	return kinds, err
}
