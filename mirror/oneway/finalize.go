package oneway

import (
	"context"
	"fmt"

	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisconn"
)

// Finalize ends an import: it removes what the mirror has of the source, and the queues remember
// the ids of ended jobs as they did before the first. Empty are lists of the mirror's that must be.
func (i *Importer) Finalize(ctx context.Context, from Service, empty ...string) (checks []pair.Check, err error) {
	i.from = from
	if err := i.Identify(ctx); err != nil {
		return nil, err
	}
	ended := func(ctx context.Context) error {
		if checks, err = i.left(ctx, empty); err != nil {
			return pair.Explain(err)
		}
		if err := pair.Failed(checks); err != nil {
			return fmt.Errorf("the import from %s cannot be ended yet: %w", i.RedisQueue, err)
		}
		return nil
	}
	queues := append([]string{i.Queue}, i.source.Beside...)
	if done, err := i.Finalized(ctx, queues...); err != nil {
		return nil, err
	} else if done {
		if err := ended(ctx); err != nil {
			return checks, err
		}
		if err := i.Began(ctx); err != nil {
			return nil, pair.Explain(err)
		}
		return checks, nil
	}
	err = i.WithHold(ctx, func(ctx context.Context) error {
		if err := i.RefuseEarlier(ctx); err != nil { // no other process moves jobs from here on
			return pair.Explain(err)
		}
		if err := ended(ctx); err != nil {
			return err
		}
		for _, queue := range queues {
			if err := i.RestoreDedup(ctx, queue); err != nil {
				return err
			}
		}
		if err := i.RemoveKeys(ctx, i.TrialKey, append([]string{i.Handover, i.Aside}, empty...)...); err != nil {
			return pair.Explain(err)
		}
		return nil
	})
	return checks, err
}

// left looks whether anything of the source is not in Belfry yet.
func (i *Importer) left(ctx context.Context, empty []string) ([]pair.Check, error) {
	if err := redisconn.CheckTypes(ctx, i.Redis, i.types); err != nil {
		return nil, err
	}
	found, err := i.from.Survey(ctx)
	if err != nil {
		return nil, err
	}
	checks := []pair.Check{
		{What: "no job waits at the source", Found: fmt.Sprintf("%d delayed, %d ready, %d held by consumers",
			found.Delayed, found.Ready, found.Reserved), OK: found.Delayed+found.Ready+found.Reserved == 0},
		{What: "every claimed job is in Belfry", Found: fmt.Sprintf("%s has %d", i.Handover, found.HandedOver),
			OK: found.HandedOver == 0},
		{What: "no job is set aside", Found: fmt.Sprintf("%s has %d", i.Aside, found.Aside), OK: found.Aside == 0},
	}
	for _, list := range empty {
		n, err := i.Redis.LLen(ctx, list).Result()
		if err != nil {
			return nil, err
		}
		checks = append(checks, pair.Check{What: "nothing unreadable is set aside", Found: fmt.Sprintf("%s has %d", list,
			n), OK: n == 0})
	}
	return checks, nil
}
