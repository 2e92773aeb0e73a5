package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Reach returns an error if no Redis answers; one that refuses does answer.
func Reach(ctx context.Context, r redis.UniversalClient) error {
	err := r.Ping(ctx).Err()
	if _, answered := errors.AsType[redis.Error](err); err == nil || answered {
		return nil
	}
	return explain(err)
}

// noRetries has the library send nothing twice: whoever calls decides that, and knows what may have been done.
const noRetries = -1

// Connect returns a client for a Redis that a URL names; nothing is sent yet. redis:// and rediss:// (TLS) name a server, as in redis://user:password@host:6379/0; redis+cluster:// and rediss+cluster:// one node
// of a Redis Cluster; redis+sentinel:// and rediss+sentinel:// a Sentinel, with ?master_name=… and more addresses as addr=host:port.
func Connect(text string) (redis.UniversalClient, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	base, kind, _ := strings.Cut(scheme, "+")
	if !ok || base != "redis" && base != "rediss" && base != "unix" {
		return nil, fmt.Errorf("the Redis URL is %q, should begin with redis://, rediss://, redis+cluster:// or redis+sentinel://", withoutPassword(text))
	}
	plain := base + "://" + rest
	switch kind {
	case "":
		o, err := redis.ParseURL(plain)
		if err != nil {
			return nil, badURL(text, err)
		}
		o.MaxRetries = noRetries
		return redis.NewClient(o), nil
	case "cluster":
		o, err := redis.ParseClusterURL(plain)
		if err != nil {
			return nil, badURL(text, err)
		}
		o.MaxRetries, o.ReadOnly, o.RouteByLatency, o.RouteRandomly = noRetries, false, false, false // a replica may lack what was written
		return redis.NewClusterClient(o), nil
	case "sentinel":
		o, err := redis.ParseFailoverURL(plain)
		if err != nil {
			return nil, badURL(text, err)
		}
		if o.MasterName == "" {
			return nil, badURL(text, fmt.Errorf("it lacks ?master_name="))
		}
		o.MaxRetries, o.ReplicaOnly = noRetries, false
		return redis.NewFailoverClient(o), nil
	default:
		return nil, fmt.Errorf("the Redis URL is %q: there is no kind %q, only cluster and sentinel", withoutPassword(text), kind)
	}
}

func badURL(text string, err error) error {
	if parsing, ok := errors.AsType[*url.Error](err); ok {
		err = parsing.Err // without the URL
	}
	return fmt.Errorf("the Redis URL is %q: %w", withoutPassword(text), err)
}

// withoutPassword is a URL as it may be shown. Options may be passwords as well.
func withoutPassword(text string) string {
	text, options, _ := strings.Cut(text, "?")
	if options != "" {
		options = "?…"
	}
	scheme, rest := "", text
	if end := strings.Index(text, "://"); end >= 0 {
		scheme, rest = text[:end+3], text[end+3:]
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, _, _ := strings.Cut(rest[:at], ":")
		rest = user + ":…" + rest[at:]
	}
	return scheme + rest + options
}
