package redisconn

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// ScanPage is how many elements one round trip of a scan reads, about.
const ScanPage = 500

// ScanKeys calls f with each page of the keys that match a pattern, all keys if it is empty. A key
// may come twice. It returns the first error, of Redis or of f, as it is.
func ScanKeys(ctx context.Context, r redis.UniversalClient, pattern string, f func(keys []string) error) error {
	for cursor := uint64(0); ; {
		page, next, err := r.Scan(ctx, cursor, pattern, ScanPage).Result()
		if err != nil {
			return err
		}
		if len(page) > 0 {
			if err := f(page); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// ScanScores calls f with each page of a sorted set's members that match a pattern, all members if
// it is empty. A page has member and score one after the other. A member may come twice.
func ScanScores(ctx context.Context, r redis.UniversalClient, key, pattern string, f func(page []string) error) error {
	for cursor := uint64(0); ; {
		page, next, err := r.ZScan(ctx, key, cursor, pattern, ScanPage).Result()
		if err != nil {
			return err
		}
		if err := f(page); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// EachPage calls f with each page of a list, from its head. What others do to the list meanwhile
// may hide an element or show it twice.
func EachPage(ctx context.Context, r redis.UniversalClient, list string, f func(elements []string) error) error {
	for at := int64(0); ; at += ScanPage {
		page, err := r.LRange(ctx, list, at, at+ScanPage-1).Result()
		if err != nil || len(page) == 0 {
			return err
		}
		if err := f(page); err != nil {
			return err
		}
	}
}

// GlobEscape returns a pattern that matches a text and nothing else.
func GlobEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// Subscribers returns how many connections subscribe to a channel, on all nodes of a Redis Cluster.
func Subscribers(ctx context.Context, r redis.UniversalClient, channel string) (int64, error) {
	cluster, ok := r.(*redis.ClusterClient)
	if !ok {
		found, err := r.PubSubNumSub(ctx, channel).Result()
		return found[channel], err
	}
	var all atomic.Int64
	err := cluster.ForEachShard(ctx, func(ctx context.Context, one *redis.Client) error {
		found, err := one.PubSubNumSub(ctx, channel).Result()
		all.Add(found[channel])
		return err
	})
	return all.Load(), err
}
