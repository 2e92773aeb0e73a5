package mirror

import (
	"context"
	"fmt"
	"github.com/belfrydb/belfry/mirror/redisconn"
)

// finalize ends an import: it removes what the mirror has of the source, and the queues remember the ids of ended jobs as they did before the first. Empty are lists of the mirror's that must be.
func (i *carrier) finalize(ctx context.Context, empty ...string) (checks []Check, err error) {
	if err := i.identify(ctx); err != nil {
		return nil, err
	}
	ended := func(ctx context.Context) error {
		if checks, err = i.left(ctx, empty); err != nil {
			return explain(err)
		}
		if err := failed(checks); err != nil {
			return fmt.Errorf("the import from %s cannot be ended yet: %w", i.redisQueue, err)
		}
		return nil
	}
	queues := append([]string{i.queue}, i.beside...)
	if done, err := i.finalized(ctx, queues...); err != nil {
		return nil, err
	} else if done {
		if err := ended(ctx); err != nil {
			return checks, err
		}
		if err := i.began(ctx); err != nil {
			return nil, explain(err)
		}
		return checks, nil
	}
	err = i.withHold(ctx, func(ctx context.Context) error {
		if _, _, err := i.link.script(ctx, fenceScript, []string{i.keys.state}); err != nil { // nobody else moves anything from here on
			return explain(err)
		}
		if err := ended(ctx); err != nil {
			return err
		}
		for _, queue := range queues {
			if err := i.restoreDedup(ctx, queue); err != nil {
				return err
			}
		}
		if _, _, err := i.link.script(ctx, endScript, append([]string{i.keys.state, i.keys.trial, i.handover, i.aside}, empty...)); err != nil {
			return explain(err)
		}
		return nil
	})
	return checks, err
}

// left looks whether anything of the source is not in Belfry yet.
func (i *carrier) left(ctx context.Context, empty []string) ([]Check, error) {
	if err := redisconn.CheckTypes(ctx, i.redis, i.types); err != nil {
		return nil, err
	}
	found, err := i.from.survey(ctx)
	if err != nil {
		return nil, err
	}
	checks := []Check{
		{"no job waits at the source", fmt.Sprintf("%d delayed, %d ready, %d held by consumers", found.Delayed, found.Ready, found.Reserved), found.Delayed+found.Ready+found.Reserved == 0},
		{"every claimed job is in Belfry", fmt.Sprintf("%s has %d", i.handover, found.HandedOver), found.HandedOver == 0},
		{"no job is set aside", fmt.Sprintf("%s has %d", i.aside, found.Aside), found.Aside == 0},
	}
	for _, list := range empty {
		n, err := i.redis.LLen(ctx, list).Result()
		if err != nil {
			return nil, err
		}
		checks = append(checks, Check{"nothing unreadable is set aside", fmt.Sprintf("%s has %d", list, n), n == 0})
	}
	return checks, nil
}
